//! How far handlers have come, kept beside their results.

use postrider_core::Result;
use postrider_core::queue::EventProgress;

use crate::server::session::Tx;

const WHAT: &str = "keep how far handlers have come";

/// Writes down how far handlers have come; of each event there is one note.
pub(super) async fn progress_put<'a>(
    tx: &Tx<'_>,
    progress: impl Iterator<Item = &'a EventProgress>,
) -> Result<()> {
    let (mut subscriptions, mut events, mut notes, mut percents) = (vec![], vec![], vec![], vec![]);
    for noted in progress {
        subscriptions.push(noted.subscription.0);
        events.push(noted.event_id.0);
        notes.push(noted.progress.note.replace('\0', "\u{fffd}"));
        percents.push(noted.progress.percent.map(i16::from));
    }
    if events.is_empty() {
        return Ok(());
    }
    tx.execute(sql!("queue/progress/progress_put"), &[&subscriptions, &events, &notes, &percents], WHAT)
        .await
        .map(drop)
}
