//! What the SQLite store promises beyond the conformance suite, each promise with real files.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod dead_letters;
mod due;
mod emit;
mod faults;
mod fetch;
mod open;
mod ownership;
mod prune;
mod queue;
mod queue_model;
mod scene;
mod seek;
mod settle;
