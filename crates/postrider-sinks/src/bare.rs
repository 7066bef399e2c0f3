//! The client libraries alone, for `postrider bench` to compare the relay with.
//!
//! The same messages as the sinks send, lying ready in memory, given to the library as fast as it takes them,
//! and each of them acked as the sink wants it: nothing is read from a store, no order is kept, nothing is
//! settled.

use std::fmt;
use std::time::Duration;

use postrider_core::{Delivery, Error, ErrorKind, Result};

use crate::SinkSpec;

/// Sends all of these and waits for all acks. Gives what `read` reads when all is ready to be sent, connected
/// and made into messages, and what it reads after the last ack.
pub async fn publish<T>(spec: &SinkSpec, deliveries: &[Delivery], read: impl Fn() -> T) -> Result<(T, T)> {
    match spec {
        #[cfg(feature = "kafka")]
        SinkSpec::Kafka(options) => crate::kafka::bare::publish(options, deliveries, read).await,
        #[cfg(feature = "nats")]
        SinkSpec::Nats(options) => crate::nats::bare::publish(options, deliveries, read).await,
        #[cfg(feature = "redis")]
        SinkSpec::Redis(options) => crate::redis::bare::publish(options, deliveries, read).await,
        #[cfg(feature = "http")]
        SinkSpec::Http(options) => crate::http::bare::publish(options, deliveries, read).await,
        other => {
            Err(Error::invalid(format!("there is no bare client to compare a sink `{}` with", other.kind())))
        }
    }
}

/// Sends one message every `1 / rate` seconds, whatever became of the last, and gives how long the ack of
/// each took. Kafka only.
pub async fn ack_times(spec: &SinkSpec, deliveries: &[Delivery], rate: u64) -> Result<Vec<Duration>> {
    match spec {
        #[cfg(feature = "kafka")]
        SinkSpec::Kafka(options) => crate::kafka::bare::ack_times(options, deliveries, rate).await,
        other => Err(Error::invalid(format!("acks of a sink `{}` are not measured", other.kind()))),
    }
}

/// A message that could not be made, or was not acked, ends a benchmark.
pub(crate) fn refused(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the bare client could not send a message: {why}"))
}
