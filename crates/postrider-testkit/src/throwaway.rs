//! What real servers have in common that are thrown away after use.

pub(crate) mod ports;
pub(crate) mod processes;
pub(crate) mod user;
pub(crate) mod watchdog;
