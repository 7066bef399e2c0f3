//! What a database must do for us: the contract in prose.
//!
//! [`Store`] is the part for people: the CLI, the API and the dashboard read and change state through it and
//! nothing else. [`ScheduleStore`] adds schedules. [`LogStore`] is the part for workers in mode `log`,
//! [`QueueStore`] what mode `queue` needs beyond it. The conformance suite of the testkit states each promise
//! below as a named test; a store is correct when it passes.
//!
//! For all of them: a call that returns an error has changed nothing, except that a lost connection may leave
//! its outcome unknown, so every call but [`LogStore::settle_with`], [`QueueStore::feed`] and
//! [`QueueStore::feed_and_claim`] may be repeated. A store spawns nothing but its connections and the tasks
//! that listen on them, and reads the time from the database's clock only. Dropping a returned future cancels
//! the wait; the call itself may still take effect.

mod actions;
mod contract;
pub mod handshake;
mod query;
pub mod refusal;
mod report;
pub mod statement;

pub use actions::{ActionReport, DeliveryAction};
pub use contract::{LogStore, Pace, Payloads, QueueStore, ScheduleStore, Store, Watch};
pub use query::{DeadLetterQuery, EventQuery, LetterId};
pub use report::{
    AttemptReport, Cancelled, DeadLetter, DeliveryReport, MemberReport, ParkedReport, ProgressReport, Pruned,
    ShardReport, SlotReport, StoreReport, SubscriptionReport, Wake,
};
