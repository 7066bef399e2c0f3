//! What a relay promises in mode `queue`.
//!
//! Time is paused and jumps from timer to timer, so that nothing here waits.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod acking;
mod delivery;
mod scene;
mod sharing;
mod trouble;
