//! How a lock is waited for.
//!
//! SQLite's own wait tries again after 1, 2, 5, 10 … 100 ms. Producers that commit one transaction after the
//! other leave the writer lock free for some ten microseconds at a time, and two of them for less: a wait
//! that looks so seldom meets one of these moments after seconds. It keeps no queue either, so no connection
//! is sure of a turn. This wait looks often, and not at equal distances, which might keep time with a
//! producer.

use std::time::{Duration, Instant};

/// Looks at short distances; after them a connection holds the lock for long, and others may have the processor.
const SHORT_LOOKS: u32 = 256;
/// The shortest distance between two looks.
const STEP: Duration = Duration::from_micros(25);
/// The shortest is taken so many times at the most. No power of two, nor a divisor of one.
const STEPS_MAX: u32 = 11;
const LONG_WAIT: Duration = Duration::from_millis(1);

/// Whether to look again, for a connection that waits no longer than `timeout`. SQLite counts the looks at one lock.
pub(crate) fn wait_within(timeout: Duration) -> impl FnMut(i32) -> bool + Send + 'static {
    let mut began = Instant::now();
    move |looks| {
        if looks == 0 {
            began = Instant::now();
        }
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(distance(looks.unsigned_abs()).min(left));
        true
    }
}

fn distance(looks: u32) -> Duration {
    if looks < SHORT_LOOKS { STEP * (1 + looks * 7 % STEPS_MAX) } else { LONG_WAIT }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_its_time() {
        assert!(!wait_within(Duration::ZERO)(0));
        let mut wait = wait_within(Duration::from_millis(2));
        let looks = (0..1_000_000).take_while(|looks| wait(*looks)).count();
        assert!(looks > 0, "it looks again at least once");
    }

    #[test]
    fn looks_follow_each_other_closely_at_first_and_at_changing_distances() {
        let short: Duration = (0..SHORT_LOOKS).map(distance).sum();
        assert!(short < Duration::from_millis(50), "{short:?}");
        assert!((0..STEPS_MAX).all(|looks| distance(looks) != distance(looks + 1)));
        assert_eq!(distance(SHORT_LOOKS), LONG_WAIT);
    }
}
