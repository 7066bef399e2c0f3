//! Real brokers, thrown away after use.
//!
//! ```no_run
//! use postrider_testkit::brokers::nats::Nats;
//! use postrider_testkit::brokers::redis::{self, Redis};
//!
//! // For most tests: one server for all tests of a binary; each test takes names of its own.
//! let url = postrider_testkit::brokers::nats::shared().url();
//!
//! // For tests that crash it: a server of their own.
//! let mut nats = Nats::start();
//! nats.kill();
//! nats.start_again();
//!
//! let redis = Redis::start_with(&redis::Settings { password: Some("secret".into()), ..Default::default() });
//! ```
//!
//! A shared server is lent out as a reference and whatever crashes or freezes one takes `&mut self`, so that no
//! test can break the server of another. Nothing here returns an error: a test without its server fails, and the
//! panic shows the end of the server's log. Servers listen on loopback alone and do not run as root. They and
//! their folders are gone when they are dropped, and when the test process is gone, however it went.
//!
//! | file | question it answers |
//! |---|---|
//! | [`nats`] | where is a NATS server with JetStream? |
//! | [`redis`] | where is a Redis server? |
//! | [`rabbitmq`] | where is a RabbitMQ server? |
//! | [`kafka`] | where is Kafka, with one node or three? |
//! | `program` | how is a program started, killed and cleaned up after? |
//! | `exchange` | how is a server asked whether it is there? |

mod exchange;
pub mod kafka;
pub mod nats;
mod program;
pub mod rabbitmq;
pub mod redis;

use crate::throwaway::ports::{PORT_TRIES_MAX, PORTS, free_port};

/// Who may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// In a URL it is not escaped: letters and digits only.
    pub password: String,
}

impl Credentials {
    /// From texts.
    pub fn new(user: &str, password: &str) -> Self {
        Self { user: user.to_owned(), password: password.to_owned() }
    }
}

/// Tries ports until one is free at the moment when the server takes it.
fn on_free_ports<const N: usize, T>(start: impl Fn([u16; N]) -> Result<T, String>) -> T {
    for _ in 0..PORT_TRIES_MAX {
        match start([(); N].map(|()| free_port())) {
            Ok(started) => return started,
            // Another process took the port between our look and the server's bind.
            Err(told) if told.to_lowercase().contains("already in use") || told.contains("eaddrinuse") => {}
            Err(told) => panic!("{told}"),
        }
    }
    panic!("no free port among {PORTS:?} after {PORT_TRIES_MAX} tries")
}
