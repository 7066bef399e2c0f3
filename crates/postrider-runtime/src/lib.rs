//! Everything of Postrider that runs.
//!
//! This is the only crate that spawns tasks, and it takes time (tokio's, which tests can pause) and
//! randomness (a seed) as arguments, so that the whole of it can be simulated. It contains no SQL: it
//! sees a [`QueueStore`](postrider_core::QueueStore), handlers and sinks.
//!
//! The files, in the order in which an event meets them:
//!
//! | file | question it answers |
//! |---|---|
//! | `relay.rs` | what does the process as a whole do, from joining to leaving? |
//! | `keeper.rs` | how long may this process believe that it lives? |
//! | `group.rs` | which shards of a subscription should it own? |
//! | `owner.rs` | the loop of mode `log`: read, hand out, settle. **Read this first.** |
//! | `lanes.rs` | which event may be handed out, how far may the mark move? Pure, with its proof. |
//! | `feeding.rs` | the loop of whoever feeds a queue: read, plan, feed |
//! | `queue.rs` | the loop of a queue's workers: claim, hand out, settle, sweep |
//! | `leases.rs` | what is in a worker's hands, what is settled, how much is claimed? Pure, with its proof. |
//! | `offer.rs` | what does the feeder claim for the worker beside it? |
//! | `claims.rs` | how long may a claim be trusted? |
//! | `reader.rs` | when is the log read on? |
//! | `handler.rs`, `worker.rs` | what is done with an event? |
//! | `batch_size.rs` | how many events does a batch hold? |
//! | `breaker.rs`, `poller.rs` | when is a sick receiver asked again, when is the store? |
//! | `permits.rs`, `in_place.rs` | how much may run at a time, and on which task? |
//! | `schedules.rs` | who emits the events of schedules, and when? |
//! | `maintenance.rs` | what happens to old events? |

mod batch_size;
mod breaker;
mod call;
mod claims;
mod failures;
mod feeding;
mod fine_timer;
mod group;
mod handler;
mod in_place;
mod keeper;
mod lanes;
mod leases;
mod maintenance;
mod offer;
mod owner;
mod permits;
mod poller;
mod queue;
mod reader;
mod relay;
#[cfg(feature = "sabotage")]
pub mod sabotage;
mod schedules;
mod serving;
mod worker;

pub use keeper::Pulse;
pub use relay::{Relay, Summary};
pub use worker::{InTasks, InTransaction, RunsOn, Worker};
