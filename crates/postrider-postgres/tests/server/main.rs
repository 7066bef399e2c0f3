//! Order, visibility and faults, each with real servers: what a model of PostgreSQL could get wrong.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod crashes;
mod relay;
mod stage;
mod visibility;
