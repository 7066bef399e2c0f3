//! Mode `queue`: rows that break a limit and are there all the same.

use postrider_core::{Event, EventId, NewSubscription, QueueStore, Store};

use super::oversize::{assert_small, plant, reason};
use super::worker::{Worker, blocks, queue};
use super::{Kept, Rig};

/// A queue is fed with them like with others, whether they stand alone or in a block, and a claim brings them
/// without what breaks a limit.
pub async fn a_claimed_event_that_breaks_a_limit_comes_without_what_does<R: Rig<Store: QueueStore>>(
    rig: &R,
) -> Kept {
    for (name, new) in [("alone", queue()), ("blocks", blocks())] {
        let worker = Worker::create(rig.store(), NewSubscription { name: name.to_owned(), ..new }).await?;
        let before = rig.store().event_emit(vec![Event::new("order")]).await?;
        let (planted, reasons) = plant(rig).await?;
        let after = worker.emit(vec![Event::new("order")]).await?;
        let mut claimed = Vec::new();
        loop {
            let claim = worker.claim(100).await?;
            if claim.rows.is_empty() {
                break;
            }
            claimed.extend(claim.rows.iter().flat_map(|row| row.events.iter().cloned()));
            worker.ack(&claim).await?;
        }
        claimed.sort_by_key(|event| event.id);
        let ids: Vec<EventId> = claimed.iter().map(|event| event.id).collect();
        assert_eq!(ids, [before, planted, after].concat(), "{name}");
        let told: Vec<&str> = claimed.iter().map(|event| reason(event)).collect();
        assert_eq!(told, [vec![""], reasons, vec![""]].concat(), "{name}");
        for event in &claimed {
            assert_small(event);
        }
    }
    Ok(())
}
