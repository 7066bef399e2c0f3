//! Mode `queue`: what is fed, claimed, settled and swept?

pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod claim;
pub(crate) mod feed;
pub(crate) mod lane;
pub(crate) mod letter;
pub(crate) mod progress;
pub(crate) mod row;
pub(crate) mod settle;
pub(crate) mod sweep;
