//! What the PostgreSQL store promises beyond the conformance suite, each promise with a real server.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod checks;
mod dead_letters;
mod events;
mod lag;
mod places;
mod scene;
mod schemas;
mod seeks;
