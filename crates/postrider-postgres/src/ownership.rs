//! Who owns which shard, and who waits for whom?

pub(crate) mod fence;
pub(crate) mod lock;
pub(crate) mod member;
pub(crate) mod shard;
