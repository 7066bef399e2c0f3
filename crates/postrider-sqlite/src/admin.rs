//! What do people change and look at?

pub(crate) mod check;
pub(crate) mod dead_letter;
pub(crate) mod event;
pub(crate) mod report;
pub(crate) mod seek;
pub(crate) mod subscription;
