//! What may go, and where does the log go on?

pub(crate) mod prune;
pub(crate) mod ring;
