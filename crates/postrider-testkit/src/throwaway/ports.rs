//! Ports that no process listens on.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the range from which Linux takes ports for outgoing connections: while a server is down, no client
/// gets its port by accident.
pub(crate) const PORTS: std::ops::Range<u16> = 20_000..32_000;
pub(crate) const PORT_TRIES_MAX: u32 = 20;

pub(crate) fn free_port() -> u16 {
    // By process, so that two test binaries that start together do not look at the same port.
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU32::new(std::process::id().wrapping_mul(7919)));
    let count = u32::from(PORTS.end - PORTS.start);
    (0..count)
        .map(|_| PORTS.start + (next.fetch_add(1, Ordering::Relaxed) % count) as u16)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("some port is free")
}
