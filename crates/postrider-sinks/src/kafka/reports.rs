//! What a producer has reported of the records that are on their way.
//!
//! A producer serves one batch at a time, and a batch one wave at a time, so that one list will do: a record
//! is known to the client by its number in the wave. The client's thread reports; the task that sends waits
//! for a number of reports, and is woken once for all of them. (A future for each record cost as much as
//! handing it to the client.)

use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::error::KafkaError;
use tokio::sync::Notify;

/// What was reported of one record; none while it is on its way.
pub(super) type Report = Option<Result<(), KafkaError>>;

#[derive(Debug, Default)]
pub(super) struct Reports {
    wave: Mutex<Wave>,
    reached: Notify,
}

#[derive(Debug, Default)]
struct Wave {
    reports: Vec<Report>,
    arrived: usize,
    /// How many are waited for.
    wanted: usize,
    has_failures: bool,
}

impl Reports {
    /// Forgets the last wave. Nothing of it may be on its way any more.
    pub(super) fn begin(&self, records: usize) {
        let mut wave = self.wave();
        wave.reports.clear();
        wave.reports.resize(records, None);
        (wave.arrived, wave.has_failures) = (0, false);
    }

    /// Notes a report of the client. No batch reads the reports of a producer that was given up.
    pub(super) fn note(&self, number: usize, report: Result<(), KafkaError>) {
        let mut wave = self.wave();
        wave.has_failures |= report.is_err();
        let Some(slot @ None) = wave.reports.get_mut(number) else { return };
        *slot = Some(report);
        wave.arrived += 1;
        if wave.arrived == wave.wanted {
            self.reached.notify_one();
        }
    }

    pub(super) fn arrived(&self) -> usize {
        self.wave().arrived
    }

    pub(super) fn has_failures(&self) -> bool {
        self.wave().has_failures
    }

    /// Waits until so many have been reported. For one task at a time; cancel safe.
    pub(super) async fn reach(&self, wanted: usize) {
        loop {
            {
                let mut wave = self.wave();
                if wave.arrived >= wanted {
                    return;
                }
                wave.wanted = wanted;
            }
            // A report that arrives in between leaves a permit, which ends the next wait at once.
            self.reached.notified().await;
        }
    }

    /// All reports of the wave, by number.
    pub(super) fn take(&self) -> Vec<Report> {
        std::mem::take(&mut self.wave().reports)
    }

    fn wave(&self) -> MutexGuard<'_, Wave> {
        // Nothing panics while it is held.
        self.wave.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_woken_by_the_last_that_is_wanted() {
        let reports = Reports::default();
        reports.begin(3);
        let waits = reports.reach(2);
        let reported = async {
            reports.note(2, Ok(()));
            tokio::task::yield_now().await;
            assert_eq!(reports.arrived(), 1);
            reports.note(0, Err(KafkaError::Canceled));
        };
        tokio::join!(waits, reported);
        reports.reach(1).await;
        assert!(reports.has_failures());
        assert_eq!(reports.take(), [Some(Err(KafkaError::Canceled)), None, Some(Ok(()))]);
    }

    #[tokio::test]
    async fn what_is_reported_twice_or_too_late_counts_for_nothing() {
        let reports = Reports::default();
        reports.begin(1);
        reports.note(0, Ok(()));
        reports.note(0, Ok(()));
        reports.note(7, Ok(()));
        assert_eq!((reports.arrived(), reports.take()), (1, vec![Some(Ok(()))]));
        reports.note(0, Ok(()));
        reports.begin(1);
        assert_eq!((reports.arrived(), reports.has_failures()), (0, false));
    }
}
