//! The client of Redis alone: pipelines of `XADD`, several on their way.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use postrider_core::{Delivery, Error, ErrorKind, Result};
use redis::Pipeline;

use super::RedisOptions;
use crate::bare::refused;
use crate::envelope::BODY_FIELD;
use crate::{Binding, spec::SinkOptions};

/// Messages of a pipeline, and pipelines on their way at a time.
const PIPELINE: usize = 500;
const IN_FLIGHT: usize = 4;

pub(crate) async fn publish(options: &RedisOptions, deliveries: &[Delivery]) -> Result<Duration> {
    let sink = options.open().await?;
    let connection = sink.connection().await.map_err(|failure| refused(&failure))?;
    let pipelines: Vec<Pipeline> =
        deliveries.chunks(PIPELINE).map(|chunk| pipeline(options, chunk)).collect::<Result<_>>()?;
    let began = Instant::now();
    stream::iter(pipelines)
        .map(|pipeline| {
            let mut connection = connection.clone();
            async move {
                let answers = pipeline.query_async::<Vec<String>>(&mut connection).await;
                answers.map(drop).map_err(|error| {
                    let what = format!("the bare client could not send a message: {error}");
                    Error::new(ErrorKind::Unavailable, what)
                })
            }
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    Ok(began.elapsed())
}

fn pipeline(options: &RedisOptions, chunk: &[Delivery]) -> Result<Pipeline> {
    let mut pipeline = Pipeline::new();
    // One transaction: without it a server that flushes before it answers does so every few entries, and takes a third.
    pipeline.atomic();
    for delivery in chunk {
        let stream = options.stream.render(delivery).map_err(|failure| refused(&failure))?;
        let message = options.envelope.wrap(delivery, Binding::Redis).map_err(|failure| refused(&failure))?;
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
