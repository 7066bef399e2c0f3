//! Mode `log`: read, hand out, settle.

pub(crate) mod lanes;
pub(crate) mod owner;
