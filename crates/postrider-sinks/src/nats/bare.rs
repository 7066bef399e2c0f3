//! The client of NATS alone, its own way of publishing to a stream: acks are awaited, many at a time.

use async_nats::jetstream::message::PublishMessage;
use futures_util::{StreamExt, TryStreamExt, stream};
use postrider_core::{Delivery, Result};

use super::{NatsOptions, NatsSink, Prepared};
use crate::bare::refused;
use crate::options::SinkOptions;

/// Messages on their way at a time. With 500 it was slower, with 8,000 no faster.
const IN_FLIGHT: usize = 2_000;

pub(crate) async fn publish<T>(
    options: &NatsOptions,
    deliveries: &[Delivery],
    read: impl Fn() -> T,
) -> Result<(T, T)> {
    let sink: NatsSink = options.open().await?;
    let connection = sink.connection().await.map_err(refused)?;
    let context = &async_nats::jetstream::new(connection.client.clone());
    let prepared: Vec<Prepared> = deliveries
        .iter()
        .map(|delivery| Prepared::of(delivery, options).map_err(refused))
        .collect::<Result<_>>()?;
    let before = read();
    stream::iter(prepared)
        .map(|prepared| async move {
            let publish = PublishMessage::build().payload(prepared.payload).headers(prepared.headers);
            let sent = context.send_publish(prepared.subject, publish).await;
            sent.map_err(refused)?.await.map_err(refused).map(drop)
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    Ok((before, read()))
}
