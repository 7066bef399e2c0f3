//! The client of Redis alone: pipelines of `XADD`, several on their way.

use futures_util::{StreamExt, TryStreamExt, stream};
use postrider_core::{Delivery, Result};
use redis::Pipeline;

use super::RedisOptions;
use crate::bare::refused;
use crate::envelope::BODY_FIELD;
use crate::{Binding, options::SinkOptions};

/// Messages of a pipeline, and pipelines on their way at a time.
const PIPELINE: usize = 500;
const IN_FLIGHT: usize = 4;

pub(crate) async fn publish<T>(
    options: &RedisOptions,
    deliveries: &[Delivery],
    read: impl Fn() -> T,
) -> Result<(T, T)> {
    let sink = options.open().await?;
    let connection = sink.connection().await.map_err(refused)?;
    let pipelines: Vec<Pipeline> =
        deliveries.chunks(PIPELINE).map(|chunk| pipeline(options, chunk)).collect::<Result<_>>()?;
    let before = read();
    stream::iter(pipelines)
        .map(|pipeline| {
            let mut connection = connection.clone();
            async move {
                let answers = pipeline.query_async::<Vec<String>>(&mut connection).await;
                answers.map(drop).map_err(refused)
            }
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    Ok((before, read()))
}

fn pipeline(options: &RedisOptions, chunk: &[Delivery]) -> Result<Pipeline> {
    let mut pipeline = Pipeline::new();
    // One transaction: without it a server that flushes before it answers does so every few entries, and takes a third.
    pipeline.atomic();
    for delivery in chunk {
        let stream = options.stream.render(delivery).map_err(refused)?;
        let message = options.envelope.wrap(delivery, Binding::Redis).map_err(refused)?;
        let add = pipeline.cmd("XADD").arg(&*stream);
        if let Some(maxlen) = options.maxlen {
            add.arg("MAXLEN").arg("~").arg(maxlen.get());
        }
        add.arg("*").arg(BODY_FIELD).arg(&message.body[..]);
        for (name, value) in message.pairs() {
            add.arg(name).arg(value);
        }
    }
    Ok(pipeline)
}
