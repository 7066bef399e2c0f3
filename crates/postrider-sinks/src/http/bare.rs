//! hyper alone: a plain loop over the same client, with as many requests on their way as the sink has.

use futures_util::{StreamExt, TryStreamExt, stream};
use postrider_core::{Delivery, Result};

use super::HttpOptions;
use crate::bare::refused;
use crate::options::SinkOptions;

pub(crate) async fn publish<T>(
    options: &HttpOptions,
    deliveries: &[Delivery],
    read: impl Fn() -> T,
) -> Result<(T, T)> {
    let sink = options.open().await?;
    let requests = deliveries.iter().map(|delivery| sink.prepare(delivery).map_err(refused));
    let requests: Vec<_> = requests.collect::<Result<_>>()?;
    let client = &sink.shared.client;
    let before = read();
    stream::iter(requests)
        .map(|request| async move {
            let answer = client.request(request).await.map_err(refused)?;
            let status = answer.status();
            super::drain(answer.into_body(), &mut Vec::new()).await;
            if status.is_success() { Ok(()) } else { Err(refused(status)) }
        })
        .buffer_unordered(options.concurrency.get())
        .try_collect::<()>()
        .await?;
    Ok((before, read()))
}
