//! How does Postrider talk to the file?

pub(crate) mod busy;
pub(crate) mod connection;
pub(crate) mod event_row;
pub(crate) mod migrate;
pub(crate) mod open;
