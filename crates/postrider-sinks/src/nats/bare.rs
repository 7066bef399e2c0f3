//! The client of NATS alone: acks of the stream are awaited, many at a time.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use postrider_core::{Delivery, Error, ErrorKind, Result};

use super::{Connection, NatsOptions, NatsSink, Prepared};
use crate::bare::refused;
use crate::spec::SinkOptions;

/// Messages on their way at a time. With 500 it was slower, with 8,000 no faster.
const IN_FLIGHT: usize = 2_000;

pub(crate) async fn publish(options: &NatsOptions, deliveries: &[Delivery]) -> Result<Duration> {
    let sink: NatsSink = options.open().await?;
    let connection = sink.connection().await.map_err(|failure| refused(&failure))?;
    let connection: &Connection = &connection;
    let prepared: Vec<Prepared> = deliveries
        .iter()
        .map(|delivery| Prepared::of(delivery, options).map_err(|failure| refused(&failure)))
        .collect::<Result<_>>()?;
    let began = Instant::now();
    stream::iter(prepared)
        .map(|prepared| async move {
            let sent = connection.context.send_publish(prepared.subject, prepared.publish).await;
            let told = |error: async_nats::jetstream::context::PublishError| {
                Error::new(
                    ErrorKind::Unavailable,
                    format!("the bare client could not send a message: {error}"),
                )
            };
            sent.map_err(told)?.await.map_err(told).map(drop)
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    Ok(began.elapsed())
}
