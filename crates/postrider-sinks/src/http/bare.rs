//! hyper alone: a plain loop over the same client, with as many requests on their way as the sink has.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use postrider_core::{Delivery, Error, ErrorKind, Result};

use super::HttpOptions;
use crate::bare::refused;
use crate::spec::SinkOptions;

pub(crate) async fn publish(options: &HttpOptions, deliveries: &[Delivery]) -> Result<Duration> {
    let sink = options.open().await?;
    let requests =
        deliveries.iter().map(|delivery| sink.prepare(delivery).map_err(|failure| refused(&failure)));
    let requests: Vec<_> = requests.collect::<Result<_>>()?;
    let client = &sink.shared.client;
    let began = Instant::now();
    stream::iter(requests)
        .map(|request| async move {
            let told = |what: String| {
                Error::new(
                    ErrorKind::Unavailable,
                    format!("the bare client could not send a message: {what}"),
                )
            };
            let answer = client.request(request).await.map_err(|error| told(error.to_string()))?;
            let status = answer.status();
            super::drain(answer.into_body()).await;
            if status.is_success() { Ok(()) } else { Err(told(status.to_string())) }
        })
        .buffer_unordered(options.concurrency.get())
        .try_collect::<()>()
        .await?;
    Ok(began.elapsed())
}
