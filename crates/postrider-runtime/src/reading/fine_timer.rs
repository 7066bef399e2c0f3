//! Waits of less than a millisecond, which is as fine as the async runtime's timer goes.
//!
//! A reader that polls a store while events flow wants to come back within a fraction of a millisecond. On Linux
//! the kernel has timers that are as fine, as a file that becomes readable. Elsewhere, and where simulated time
//! decides, the runtime's timer must do.

use std::time::Duration;

use tokio::time::Instant;

/// Below this the runtime's own timer is too coarse.
const COARSE: Duration = Duration::from_millis(3);

/// A timer for one waiter at a time.
#[derive(Debug)]
pub(crate) struct FineTimer {
    #[cfg(target_os = "linux")]
    kernel: Option<kernel::Timer>,
}

impl FineTimer {
    /// `fine` says whether the waits can be that short.
    pub(crate) fn new(fine: bool) -> Self {
        Self {
            #[cfg(target_os = "linux")]
            kernel: fine.then(kernel::Timer::new).flatten(),
        }
    }

    /// Waits until `deadline`. Cancel safe.
    pub(crate) async fn wait_until(&self, deadline: Instant) {
        #[cfg(target_os = "linux")]
        if let Some(kernel) = &self.kernel {
            let left = deadline.saturating_duration_since(Instant::now());
            if left < COARSE && kernel.wait(left).await {
                return;
            }
        }
        tokio::time::sleep_until(deadline).await;
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::io::ErrorKind;
    use std::time::Duration;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::net::unix::pipe::Receiver;

    /// To the runtime it is a pipe from which the kernel is read when time is up.
    #[derive(Debug)]
    pub(super) struct Timer(Receiver);

    impl Timer {
        pub(super) fn new() -> Option<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let fd = timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
            Receiver::from_owned_fd_unchecked(fd).ok().map(Self)
        }

        /// Waits; false if the kernel would not.
        pub(super) async fn wait(&self, time: Duration) -> bool {
            // Setting it makes it unreadable until it has run out, and zero would switch it off.
            let time = time.max(Duration::from_nanos(1));
            let once = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) },
            };
            if timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once).is_err() {
                return false;
            }
            loop {
                if self.0.readable().await.is_err() {
                    return false;
                }
                match self.0.try_read(&mut [0; 8]) {
                    Ok(_) => return true,
                    // Readiness of a wait that was given up.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return false,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_after_its_deadline_and_can_be_given_up() {
        let timer = FineTimer::new(true);
        let given_up = timer.wait_until(Instant::now() + Duration::from_micros(900));
        assert!(futures_util::poll!(std::pin::pin!(given_up)).is_pending());
        for micros in [0, 1, 200, 2_000, 4_000] {
            let deadline = Instant::now() + Duration::from_micros(micros);
            timer.wait_until(deadline).await;
            assert!(Instant::now() >= deadline, "{micros}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn simulated_time_is_left_to_the_runtime() {
        let timer = FineTimer::new(false);
        let deadline = Instant::now() + Duration::from_micros(500);
        timer.wait_until(deadline).await;
        assert!(Instant::now() >= deadline);
    }
}
