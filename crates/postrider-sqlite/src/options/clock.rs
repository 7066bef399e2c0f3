//! Where the time comes from. SQLite has no clock; the time is the machine's.

use std::time::{Duration, SystemTime};

use postrider_core::Timestamp;
use postrider_core::time::Clock;

/// The machine's clocks.
///
/// The time of day may step; due times and retention follow it. Leases do not: they are measured by the
/// time since the machine started, which is the same for all its processes and goes on while it sleeps.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn uptime(&self) -> Duration {
        uptime()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn uptime() -> Duration {
    since_start(rustix::time::ClockId::Boottime)
}

/// Elsewhere the monotonic clock also counts from the start of the machine, for all processes alike.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn uptime() -> Duration {
    since_start(rustix::time::ClockId::Monotonic)
}

/// Without such a clock the time of day must do: it is at least the same for all processes. A step of it
/// can cost a change of owner, which the epochs make harmless.
#[cfg(not(unix))]
fn uptime() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(unix)]
fn since_start(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}
