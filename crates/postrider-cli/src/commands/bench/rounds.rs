//! What is made of repeated measurements.

use std::time::{Duration, Instant};

/// Times of ours and of the reference, taken in turns.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pairs: Vec<(f64, f64)>,
}

impl Rounds {
    pub(crate) fn push(&mut self, ours: Duration, reference: Duration) {
        self.pairs.push((ours.as_secs_f64(), reference.as_secs_f64()));
    }

    pub(crate) fn push_raw(&mut self, ours: f64, reference: f64) {
        self.pairs.push((ours, reference));
    }

    /// The median of our times, in seconds.
    pub(crate) fn ours(&self) -> f64 {
        median(self.pairs.iter().map(|pair| pair.0).collect())
    }

    /// The median of the reference's times, in seconds.
    pub(crate) fn reference(&self) -> f64 {
        median(self.pairs.iter().map(|pair| pair.1).collect())
    }

    /// Our speed against the reference's: the median of the rounds' ratios, since both halves of a round
    /// suffer from the same neighbours.
    pub(crate) fn speed(&self) -> f64 {
        median(self.pairs.iter().map(|(ours, reference)| reference / ours).collect())
    }
}

/// Times of one thing, many times.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn median(&self) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// What one in a hundred exceeds.
    pub(crate) fn p99(&self) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() * 99 / 100).copied().unwrap_or_default()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A moment, and what was computed until then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    at: Instant,
    machine: f64,
}

/// What lies between two moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) time: Duration,
    /// Seconds that all processors together have computed, for whomever; zero where the system does not tell.
    pub(crate) cpu: f64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { at: Instant::now(), machine: machine_cpu_seconds() }
    }

    pub(crate) fn until(self, end: Self) -> Spent {
        Spent { time: end.at - self.at, cpu: end.machine - self.machine }
    }
}

fn machine_cpu_seconds() -> f64 {
    // All processors together: user, nice, system, idle, waiting for a disk, interrupts and soft ones, in ticks.
    const COMPUTES: [bool; 7] = [true, true, true, false, false, true, true];
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let computed = fields.zip(COMPUTES).filter(|(_, computes)| *computes);
    let ticks: u64 = computed.filter_map(|(field, _)| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The memory of this process that is resident now; zero where the system does not tell.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()));
    pages.unwrap_or_default() * rustix::param::page_size() as u64
}

/// The most memory of this process that was resident at any time; zero where the system does not tell.
pub(crate) fn resident_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or_default() * 1024
}

/// Seconds that this process has computed so far; zero where the system does not tell.
pub(crate) fn cpu_seconds() -> f64 {
    cpu_seconds_of(std::process::id().cast_signed())
}

/// The same for another process.
pub(crate) fn cpu_seconds_of(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may contain blanks: the twelfth and the thirteenth field, in ticks.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_medians_of_rounds() {
        let mut rounds = Rounds::default();
        for (ours, reference) in [(100, 100), (200, 100), (100, 300)] {
            rounds.push(Duration::from_millis(ours), Duration::from_millis(reference));
        }
        assert!((rounds.speed() - 1.0).abs() < 1e-9);
        assert!((rounds.ours() - 0.1).abs() < 1e-9 && (rounds.reference() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn the_p99_leaves_out_one_in_a_hundred() {
        let mut latencies = Samples::default();
        for n in 1..=100 {
            latencies.push(Duration::from_millis(n));
        }
        assert_eq!(latencies.p99(), Duration::from_millis(100));
        for _ in 0..100 {
            latencies.push(Duration::from_millis(1));
        }
        assert_eq!(latencies.p99(), Duration::from_millis(99));
    }
}
