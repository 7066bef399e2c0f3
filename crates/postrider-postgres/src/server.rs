//! How does Postrider talk to the server?

pub(crate) mod connect;
pub(crate) mod event_row;
pub(crate) mod flight;
pub(crate) mod identity;
pub(crate) mod link;
pub(crate) mod migrate;
pub(crate) mod pooler;
pub(crate) mod reach;
pub(crate) mod self_test;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod statement;
pub(crate) mod tls;
pub(crate) mod values;
