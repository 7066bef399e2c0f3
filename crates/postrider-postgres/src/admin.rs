//! What do people change and look at?

pub(crate) mod adopt;
pub(crate) mod audit;
pub(crate) mod check;
pub(crate) mod dead_letter;
pub(crate) mod delivery;
pub(crate) mod event;
pub(crate) mod lag;
pub(crate) mod outbox;
pub(crate) mod place;
pub(crate) mod report;
pub(crate) mod roles;
pub(crate) mod seek;
pub(crate) mod subscription;
