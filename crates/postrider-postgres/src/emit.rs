//! Events that are emitted in a transaction of the store's own.

use postrider_core::{EventId, Key, NewEvent, Result, Timestamp};

use crate::error::Doing;
use crate::session::Tx;
use crate::values::{At, JsonText};

/// Emits all of `events` or none.
pub(crate) async fn event_emit(tx: &Tx<'_>, events: &[NewEvent]) -> Result<Vec<EventId>> {
    let what = "emit events";
    let now = tx.query_one(sql!("log_end"), &[], what).await?.try_get::<_, At>(2).doing(what)?.0;
    let mut ids = Vec::with_capacity(events.len());
    for event in events {
        event.check()?;
        let headers = event.headers().to_json();
        let row = tx
            .query_one(
                sql!("event_insert"),
                &[
                    &event.topic().as_str(),
                    &event.kind_or_topic(),
                    &event.ordering_key().map(Key::as_str),
                    &event.payload_bytes().as_ref(),
                    &headers.as_deref().map(JsonText),
                    &event.due_from(now).map(|at: Timestamp| At(at)),
                ],
                what,
            )
            .await?;
        ids.push(EventId(row.try_get(0).doing(what)?));
    }
    Ok(ids)
}
