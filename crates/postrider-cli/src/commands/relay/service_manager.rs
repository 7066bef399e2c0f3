//! Messages to systemd, if it has started this process.
//!
//! The socket takes a few messages and then makes the sender wait until systemd has read them. The main loop
//! must not wait, so nothing here does: a message that the socket refuses now is kept for the next time.
//! A message to the watchdog is not kept, because it only speaks of the present.

use std::collections::VecDeque;
use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tracing::warn;

/// States that are kept for a socket which takes nothing; later ones say more than earlier ones.
const UNSENT_MAX: usize = 16;

/// The service manager, if there is one; else everything here does nothing.
pub(super) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    unsent: VecDeque<String>,
    ready: bool,
    /// How often the watchdog is fed, if there is one: a third of the time after which it would bite.
    feed_every: Option<Duration>,
    fed_at: Option<Instant>,
}

impl ServiceManager {
    pub(super) fn new() -> Self {
        let socket = socket().unwrap_or_else(|error| {
            warn!(%error, "the service manager cannot be told");
            None
        });
        let feed_every = sd_notify::watchdog_enabled().map(|within| within / 3);
        Self { socket, unsent: VecDeque::new(), ready: false, feed_every, fed_at: None }
    }

    /// Says once that everything works; whether this was that time.
    pub(super) fn become_ready(&mut self, status: &str) -> bool {
        if self.ready {
            return false;
        }
        self.ready = true;
        self.ready(status);
        true
    }

    /// Says that everything works, or works again after a reload.
    pub(super) fn ready(&mut self, status: &str) {
        // A reload that ends before the first beat must not say more than there is to say.
        if self.ready {
            self.tell(&[NotifyState::Ready, NotifyState::Status(status)]);
        }
    }

    pub(super) fn reloading(&mut self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) if self.ready => self.tell(&[NotifyState::Reloading, now]),
            _ => {}
        }
    }

    pub(super) fn stopping(&mut self) {
        self.tell(&[NotifyState::Stopping, NotifyState::Status("draining")]);
    }

    /// Says what could not be said before, and feeds the watchdog if it is time and the process is `sound`.
    pub(super) fn turn(&mut self, sound: bool) {
        self.send_unsent();
        let Some(every) = self.feed_every.filter(|_| sound && self.unsent.is_empty()) else { return };
        if self.fed_at.is_none_or(|at| at.elapsed() >= every) && self.send(&text(&[NotifyState::Watchdog])) {
            self.fed_at = Some(Instant::now());
        }
    }

    fn tell(&mut self, states: &[NotifyState<'_>]) {
        if self.unsent.len() == UNSENT_MAX {
            self.unsent.pop_front();
        }
        self.unsent.push_back(text(states));
        self.send_unsent();
    }

    fn send_unsent(&mut self) {
        while self.unsent.front().is_some_and(|first| self.send(first)) {
            self.unsent.pop_front();
        }
    }

    /// Whether there is nothing left to be done about this text.
    fn send(&self, text: &str) -> bool {
        let Some((socket, manager)) = &self.socket else { return true };
        match socket.send_to_addr(text.as_bytes(), manager) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                warn!(%error, "the service manager cannot be told");
                true
            }
        }
    }
}

/// A socket that never waits, and where it sends to: a path, or an abstract name behind `@`.
fn socket() -> io::Result<Option<(UnixDatagram, SocketAddr)>> {
    let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return Ok(None) };
    let manager = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(&name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(Some((socket, manager)))
}

fn text(states: &[NotifyState<'_>]) -> String {
    let mut lines: Vec<String> = states.iter().map(ToString::to_string).collect();
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_does_not_listen_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut told = ServiceManager {
            socket: Some((socket, SocketAddr::from_pathname(&path).unwrap())),
            unsent: VecDeque::new(),
            ready: false,
            feed_every: Some(Duration::ZERO),
            fed_at: None,
        };
        // As many as the socket takes, and a good deal more.
        for _ in 0..1_000 {
            told.turn(true);
        }
        assert!(told.become_ready("well"));
        assert_eq!(told.unsent.len(), 1, "what matters is kept");
        let mut buffer = [0; 100];
        while manager.recv(&mut buffer).is_ok_and(|length| &buffer[..length] == b"WATCHDOG=1\n") {
            told.turn(false);
        }
        assert!(buffer.starts_with(b"READY=1\nSTATUS=well\n"));
    }
}
