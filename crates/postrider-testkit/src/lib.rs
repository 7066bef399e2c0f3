//! What proves Postrider.
//!
//! A store is correct when the conformance suite passes; a runtime is correct when the history of what
//! it did under interference has no violation. Everything here is deterministic: time comes from a
//! [`ManualClock`], chance from a seed, and nothing iterates over a hash map.
//!
//! | file | question it answers |
//! |---|---|
//! | [`conformance`] | does a store keep every promise of the contract? |
//! | [`memory_store`] | what do these promises mean, as a program? |
//! | [`manual_clock`] | what time is it? The time that the test says. |
//! | [`interference`] | what can go wrong between a call and its return? |
//! | [`history`] | was anything lost, invented, reordered, overlapped or repeated? |
//! | [`receiver`] | does a sink keep every promise, asked at its receiver? |
//! | [`scripted_sink`] | what does a receiver answer, and when? |
//! | [`sim_pg`] | does the reading of a log with many writers hold, whatever the server does in between? |
//! | [`simulation`] | does all of it hold when everything goes wrong? |
//! | `postgres` (feature `postgres`) | where is a real server that a test may crash? |
//! | `tcp_proxy` (feature `postgres`) | what does a client see when the network fails? |

pub mod conformance;
pub mod history;
pub mod interference;
pub mod manual_clock;
pub mod memory_store;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod receiver;
pub mod scripted_sink;
pub mod sim_pg;
pub mod simulation;
#[cfg(feature = "postgres")]
pub mod tcp_proxy;

pub use conformance::Rig;
pub use history::{Expectation, History, Incarnation, Violation};
pub use interference::{Interference, Moment, Odds, SeededInterference, When};
pub use manual_clock::ManualClock;
pub use memory_store::{MemoryOptions, MemoryStore, MemoryTx, MemoryWork};
pub use scripted_sink::{Chance, ScriptedSink, Step};
