//! How long may this process believe that it lives, and which shards should it own?

pub(crate) mod group;
pub(crate) mod keeper;
pub(crate) mod serving;
