//! What becomes of each event of a batch: order per key, sizes, failures, and lines that reach a device whole.

pub(crate) mod append;
pub mod failed_keys;
#[cfg(any(feature = "nats", feature = "http", feature = "exec"))]
pub(crate) mod per_key;
pub(crate) mod said;
pub mod sizes;
