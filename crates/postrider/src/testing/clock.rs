//! A clock that a test can put forward.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use postrider_core::Timestamp;
use postrider_core::time::Clock;

/// The machine's time, put forward by as much as the test wants. It goes on by itself, as any clock. All
/// clones are the same clock.
///
/// ```
/// use std::time::Duration;
/// use postrider::testing::TestClock;
///
/// let clock = TestClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3600));
/// assert!(clock.now().since(before) >= Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone)]
pub struct TestClock {
    began: Instant,
    ahead_us: Arc<AtomicU64>,
}

impl TestClock {
    /// The machine's time.
    pub fn new() -> Self {
        Self { began: Instant::now(), ahead_us: Arc::default() }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        Timestamp::from(SystemTime::now()).after(self.ahead())
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.ahead_us.fetch_add(by, Ordering::Relaxed);
    }

    fn ahead(&self) -> Duration {
        Duration::from_micros(self.ahead_us.load(Ordering::Relaxed))
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }

    fn uptime(&self) -> Duration {
        // Only one process has this clock, so that any beginning will do.
        self.began.elapsed() + self.ahead()
    }
}
