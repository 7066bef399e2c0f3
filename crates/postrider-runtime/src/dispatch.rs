//! How is an event handed to a handler, and how much may run at a time?

pub(crate) mod batch_size;
pub(crate) mod breaker;
pub(crate) mod failures;
pub(crate) mod hand_out;
pub(crate) mod handler;
pub(crate) mod in_place;
pub(crate) mod permits;
pub(crate) mod worker;
