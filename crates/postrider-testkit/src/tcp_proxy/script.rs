//! What happens to bytes on their way.

use std::net::SocketAddr;
use std::time::Duration;

/// Who sent a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Who connected to the proxy.
    Client,
    /// To whom the proxy connected.
    Server,
}

/// Which bytes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Those of all connections together, from the moment of arming.
    FromNow,
    /// Those of each connection, from its beginning.
    EachConnection,
}

/// Bytes that were forwarded, by who sent them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// From the client to the server.
    pub client: u64,
    /// From the server to the client.
    pub server: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Open,
    /// In a black hole.
    Held,
    /// The proxy is about to be gone.
    Ended,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    pub(super) side: Side,
    /// How many bytes are forwarded before it strikes.
    pub(super) bytes: u64,
    pub(super) counting: Counting,
    /// Whether it waits for one byte more and loses that.
    pub(super) swallows: bool,
}

/// What the proxy does, and what it has done.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) target: SocketAddr,
    pub(super) flow: Flow,
    pub(super) fault: Option<Fault>,
    pub(super) passed: Passed,
    pub(super) cuts: u64,
    /// How long bytes are on their way.
    pub(super) delay: Duration,
    /// Grows when every connection is to be reset.
    pub(super) resets: u64,
}

/// What becomes of bytes that have arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Ask again when the flow is open.
    Later,
    /// So many of them are forwarded; then perhaps the connection is reset.
    Now { bytes: usize, cut: bool },
}

impl Script {
    pub(super) fn new(target: SocketAddr) -> Self {
        Self {
            target,
            flow: Flow::Open,
            fault: None,
            passed: Passed::default(),
            cuts: 0,
            delay: Duration::ZERO,
            resets: 0,
        }
    }

    /// Decides about bytes from one side of a connection on which `passed` bytes went that way before.
    /// No bytes mean the end of that side, which is forwarded too.
    pub(super) fn admit(&mut self, side: Side, passed: u64, bytes: usize) -> Admission {
        if self.flow != Flow::Open {
            return Admission::Later;
        }
        let all = match side {
            Side::Client => &mut self.passed.client,
            Side::Server => &mut self.passed.server,
        };
        let mut admitted = bytes;
        let mut cut = false;
        if let Some(fault) = self.fault.filter(|fault| fault.side == side && bytes > 0) {
            let before = match fault.counting {
                Counting::FromNow => *all,
                Counting::EachConnection => passed,
            };
            // On a connection that is older than the fault, more may have passed than it allows.
            let room = fault.bytes.saturating_sub(before);
            cut = if fault.swallows { bytes as u64 > room } else { bytes as u64 >= room };
            if cut {
                admitted = room as usize;
                if fault.counting == Counting::FromNow {
                    self.fault = None;
                }
            }
        }
        *all += admitted as u64;
        Admission::Now { bytes: admitted, cut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(bytes: u64, counting: Counting, swallows: bool) -> Script {
        let mut script = Script::new(SocketAddr::from(([127, 0, 0, 1], 1)));
        script.fault = Some(Fault { side: Side::Server, bytes, counting, swallows });
        script
    }

    fn now(bytes: usize, cut: bool) -> Admission {
        Admission::Now { bytes, cut }
    }

    #[test]
    fn a_cut_comes_with_the_last_byte_and_once() {
        let mut script = script(10, Counting::FromNow, false);
        assert_eq!(script.admit(Side::Client, 0, 50), now(50, false));
        assert_eq!(script.admit(Side::Server, 0, 9), now(9, false));
        assert_eq!(script.admit(Side::Server, 0, 0), now(0, false));
        assert_eq!(script.admit(Side::Server, 100, 1), now(1, true));
        assert_eq!(script.admit(Side::Server, 0, 100), now(100, false));
        assert_eq!(script.passed, Passed { client: 50, server: 110 });
    }

    #[test]
    fn a_cut_after_nothing_waits_for_the_first_byte() {
        let mut script = script(0, Counting::FromNow, false);
        assert_eq!(script.admit(Side::Server, 7, 5), now(0, true));
    }

    #[test]
    fn swallowing_waits_for_one_byte_more() {
        let mut script = script(10, Counting::FromNow, true);
        assert_eq!(script.admit(Side::Server, 0, 10), now(10, false));
        assert_eq!(script.admit(Side::Server, 10, 1), now(0, true));
    }

    #[test]
    fn each_connection_is_cut_until_healed() {
        let mut script = script(10, Counting::EachConnection, false);
        for _ in 0..2 {
            assert_eq!(script.admit(Side::Server, 0, 4), now(4, false));
            assert_eq!(script.admit(Side::Server, 4, 40), now(6, true));
        }
        assert_eq!(script.admit(Side::Server, 50, 1), now(0, true));
    }

    #[test]
    fn nothing_passes_a_black_hole() {
        let mut script = script(0, Counting::FromNow, false);
        script.flow = Flow::Held;
        assert_eq!(script.admit(Side::Server, 0, 1), Admission::Later);
        assert_eq!(script.passed, Passed::default());
    }
}
