//! Who owns which shard, and whose lease lasts?

pub(crate) mod fence;
pub(crate) mod liveness;
pub(crate) mod member;
pub(crate) mod shard;
