//! How a sink reaches its receiver: addresses, logins, secrets, time limits, and the connection that is shared.

#[cfg(any(feature = "nats", feature = "redis", feature = "inbox"))]
pub(crate) mod connection_slot;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
pub(crate) mod login;
pub mod secret;
pub mod time_limit;
pub mod url;
