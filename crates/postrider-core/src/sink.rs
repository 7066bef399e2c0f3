//! What a receiver of events must do for us.

use std::future::Future;

use crate::delivery::{Delivery, Outcome};

/// Where events are sent: a broker, a webhook, a file.
///
/// # Contract
///
/// *Who calls it.* A worker of the runtime, from several tasks at a time up to the subscription's
/// concurrency. The sink never sees the store.
///
/// *Result.* One [`Outcome`] per delivery, in the order of the batch. A missing one counts as failed.
/// `Ack` means that the receiver has made the event as durable as it ever will; an error after the bytes
/// left is `Retry`, and the event will be sent again with the same [`Delivery::dedup_id`].
///
/// *Order.* Unless [`Sink::keeps_order`] says otherwise, no two deliveries of a batch have the same key.
/// If it does, later deliveries of a key follow earlier ones in the batch, and once one of them fails, no
/// later one of its key may take effect: they are `Untried`.
///
/// *Cancellation.* The future may be dropped at any await: on a time-out, on loss of ownership, at the
/// end of a drain. What was sent by then may be sent again.
pub trait Sink: Send + Sync + 'static {
    /// Sends a batch and says what became of each event.
    fn send(&self, batch: Vec<Delivery>) -> impl Future<Output = Vec<Outcome>> + Send;

    /// Whether a batch may hold several events of one key.
    fn keeps_order(&self) -> bool {
        false
    }
}
