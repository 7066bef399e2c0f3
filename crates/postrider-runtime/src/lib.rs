//! Everything of Postrider that runs.
//!
//! This is the only crate that spawns tasks, and it takes time (tokio's, which tests can pause) and
//! randomness (a seed) as arguments, so that the whole of it can be simulated. It contains no SQL: it
//! sees a [`QueueStore`](postrider_core::QueueStore), handlers and sinks.
//!
//! The files, in the order in which an event meets them:
//!
//! | room | question it answers |
//! |---|---|
//! | `relay.rs` | what does the process as a whole do, from joining to leaving? |
//! | `membership` | how long may this process believe that it lives, and which shards should it own? |
//! | `log_mode` | mode `log`: read, hand out, settle. **Read `owner.rs` first.** `lanes.rs` is pure, with its proof. |
//! | `queue_mode` | mode `queue`: feed, claim, hand out, settle, sweep. `leases.rs` is pure, with its proof. |
//! | `reading` | when is the log read on? |
//! | `dispatch` | how is an event handed to a handler, and how much may run at a time? |
//! | `housekeeping` | what happens beside deliveries: schedules, and old events? |
//! | `context.rs` | what is every loop given, and what does it answer when it ends? |
//! | `handoff.rs` | how does a feeder claim for the worker beside it? |
//! | `call.rs` | which store call is under way? |

mod call;
mod context;
mod dispatch;
mod handoff;
mod housekeeping;
mod log_mode;
mod membership;
mod queue_mode;
mod reading;
mod relay;
#[cfg(feature = "sabotage")]
pub mod sabotage;

pub use context::Summary;
pub use dispatch::worker::{InTasks, InTransaction, RunsOn, Worker};
pub use membership::keeper::Pulse;
pub use relay::Relay;
