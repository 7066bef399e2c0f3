//! What may go?

pub(crate) mod prune;
