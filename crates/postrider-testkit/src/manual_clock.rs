//! A clock that moves only when a test says so.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::time::Clock;

/// The time of day and the uptime of a machine, both in the hands of the test. All clones are the same
/// clock.
///
/// ```
/// use std::time::Duration;
/// use postrider_core::time::Clock;
/// use postrider_testkit::ManualClock;
/// let clock = ManualClock::new();
/// let before = (clock.now(), clock.uptime());
/// clock.advance(Duration::from_secs(5));
/// clock.step(-3_000_000);
/// assert_eq!(clock.now().since(before.0), Duration::from_secs(2));
/// assert_eq!(clock.uptime() - before.1, Duration::from_secs(5));
/// ```
#[derive(Clone)]
pub struct ManualClock {
    hands: Arc<Mutex<Hands>>,
    follower: Arc<OnceLock<Follower>>,
}

type Follower = Box<dyn Fn(Timestamp) + Send + Sync>;

#[derive(Debug, Clone, Copy)]
struct Hands {
    now: Timestamp,
    uptime: Duration,
}

impl ManualClock {
    /// Starts on a morning in 2026, on a machine that has been up for an hour: neither is zero, so that
    /// code which confuses the two is found out.
    pub fn new() -> Self {
        Self::starting_at(Timestamp::from_micros(1_794_730_200_000_000))
    }

    /// Starts at an instant of the test's choice.
    pub fn starting_at(now: Timestamp) -> Self {
        let hands = Hands { now, uptime: Duration::from_secs(3600) };
        Self { hands: Arc::new(Mutex::new(hands)), follower: Arc::default() }
    }

    /// Names what has to be told the time of day whenever it changes: the clock of a real database. It is told
    /// the present one at once. There can be one follower.
    pub fn followed_by(&self, follower: impl Fn(Timestamp) + Send + Sync + 'static) {
        follower(self.now());
        assert!(self.follower.set(Box::new(follower)).is_ok(), "a clock has one follower");
    }

    /// Lets time pass: the time of day and the uptime move together.
    pub fn advance(&self, by: Duration) {
        self.turn(|hands| {
            hands.now = hands.now.after(by);
            hands.uptime += by;
        });
        self.tell();
    }

    /// Steps the time of day alone, in either direction, as an operator or a time server does.
    pub fn step(&self, micros: i64) {
        self.turn(|hands| {
            hands.now = Timestamp::from_micros(hands.now.as_micros().saturating_add(micros));
        });
        self.tell();
    }

    fn tell(&self) {
        if let Some(follower) = self.follower.get() {
            follower(self.now());
        }
    }

    fn turn<T>(&self, by: impl FnOnce(&mut Hands) -> T) -> T {
        by(&mut self.hands.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.turn(|hands| *hands).fmt(f)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.turn(|hands| hands.now)
    }

    fn uptime(&self) -> Duration {
        self.turn(|hands| hands.uptime)
    }
}
