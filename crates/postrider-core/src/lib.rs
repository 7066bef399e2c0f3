//! The words and rules of Postrider.
//!
//! This crate does no I/O, knows no database, broker or async runtime, and takes time and randomness
//! as arguments. Everything in it can be simulated. Read it in the order in which an event travels:
//!
//! | room | question it answers |
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

pub mod delivery;
pub mod error;
pub mod event;
pub mod inbox;
pub mod limits;
pub mod log;
pub mod position;
pub mod queue;
pub mod schedule;
pub mod settle;
pub mod sink;
pub mod store;
pub mod subscription;
pub mod time;

pub use delivery::ack::{Ack, ack_in};
pub use delivery::retry::RetryPolicy;
pub use delivery::{Delivery, DeliveryState, Failure, FailureClass, Outcome, ack, retry};
pub use error::{Error, ErrorKind, Result};
pub use event::emit::{Emit, emit};
pub use event::unique::Unique;
pub use event::{Event, EventId, Headers, Key, Kind, NewEvent, Topic, emit, unique};
pub use position::{Epoch, Position, Shard, ShardSet};
pub use schedule::{Missed, NewSchedule, Schedule};
pub use sink::Sink;
pub use store::{LogStore, QueueStore, ScheduleStore, Store, handshake, refusal, statement};
pub use subscription::filter::{Filter, Pattern};
pub use subscription::{
    Fair, LeaseBy, Members, Mode, NewSubscription, OnDead, Order, QueueTuning, Rate, Start, Subscription,
    Tuning, balance, filter,
};
pub use time::Timestamp;
