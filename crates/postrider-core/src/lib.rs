//! The words and rules of Postrider.
//!
//! This crate does no I/O, knows no database, broker or async runtime, and takes time and randomness
//! as arguments. Everything in it can be simulated. Read it in the order in which an event travels:
//!
//! | file | question it answers |
//! |---|---|
//! | [`event`] | what does an application emit, and what is stored? |
//! | [`unique`] | how is something emitted once, or only its newest? |
//! | [`mod@emit`] | how does it get into the caller's own transaction? |
//! | [`filter`], [`subscription`] | who wants which events, and how? |
//! | [`log`] | how is a log read whose writers commit in any order? |
//! | [`position`] | how far has a subscription come, and who may say so? |
//! | [`delivery`] | what can happen to one event for one subscription? |
//! | [`retry`] | when is a failed delivery attempted again? |
//! | [`settle`] | what does a subscription's owner write back? |
//! | [`queue`] | what do the workers of a queue read and write back? |
//! | [`schedule`] | what is emitted at which times, and by whom? |
//! | [`ack`] | how does a handler ack in its own transaction? |
//! | [`store`] | what must a database do for us? The contract in prose. |
//! | [`refusal`], [`statement`] | what do all stores say, and send, in the same way? |
//! | [`sink`] | what must a receiver of events do for us? |
//! | [`inbox`] | what does a table promise into which events are delivered? |
//! | [`limits`], [`time`], [`error`] | bounds, instants, failures |

pub mod ack;
pub mod balance;
pub mod delivery;
pub mod emit;
pub mod error;
pub mod event;
pub mod filter;
pub mod handshake;
pub mod inbox;
pub mod limits;
pub mod log;
pub mod position;
pub mod queue;
pub mod refusal;
pub mod retry;
pub mod schedule;
pub mod settle;
pub mod sink;
pub mod statement;
pub mod store;
pub mod subscription;
pub mod time;
pub mod unique;

pub use ack::{Ack, ack_in};
pub use delivery::{Delivery, DeliveryState, Failure, FailureClass, Outcome};
pub use emit::{Emit, emit};
pub use error::{Error, ErrorKind, Result};
pub use event::{Event, EventId, Headers, Key, Kind, NewEvent, Topic};
pub use filter::{Filter, Pattern};
pub use position::{Epoch, Position, Shard, ShardSet};
pub use retry::RetryPolicy;
pub use schedule::{Missed, NewSchedule, Schedule, ScheduleStore};
pub use sink::Sink;
pub use store::{LogStore, QueueStore, Store};
pub use subscription::{
    Fair, LeaseBy, Members, Mode, NewSubscription, OnDead, Order, QueueTuning, Rate, Start, Subscription,
    Tuning,
};
pub use time::Timestamp;
pub use unique::Unique;
