//! Mode `queue`: feed, claim, hand out, settle, sweep.

pub(crate) mod claims;
pub(crate) mod feeding;
pub(crate) mod leases;
pub(crate) mod queue;
