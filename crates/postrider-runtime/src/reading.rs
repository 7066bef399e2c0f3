//! When is the log read on?

pub(crate) mod fine_timer;
pub(crate) mod poller;
pub(crate) mod reader;
