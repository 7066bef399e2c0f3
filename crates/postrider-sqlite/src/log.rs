//! What is there to read, and is it on disk?

pub(crate) mod durability;
pub(crate) mod event;
pub(crate) mod fetch;
pub(crate) mod reader;
