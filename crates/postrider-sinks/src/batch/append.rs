//! How a batch of lines reaches a device whole, in order, and before the ack.

use std::io;
use std::sync::Arc;

use postrider_core::{Delivery, Failure, Outcome};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::batch::said;
use crate::envelope::line;

/// Something that bytes can be appended to.
pub(crate) trait Device: Send + 'static {
    /// Whether people look at it, so that nothing may reach it that a terminal obeys.
    const IS_FOR_EYES: bool = false;

    /// Gets ready for a batch, e.g. by opening a file again that was moved away. `true` says that bytes
    /// go to a fresh place, where no torn line can be.
    fn prepare(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// Appends a beginning of `bytes` and says how much of it, as [`io::Write::write`] does.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Returns once everything written is as durable as the device can make it.
    fn sync(&mut self) -> io::Result<()>;

    /// What a person should know about an error of this device.
    fn explain(&self, error: &io::Error) -> String;
}

/// Appends batches to a device, one at a time. Clones share the device.
///
/// A batch waits for its turn before its write begins. The write runs to its end on a separate thread even if
/// its future is dropped. So a dropped future has either written nothing, or writes all of its lines before
/// any later batch begins: lines never interleave, and a late line never overtakes.
#[derive(Debug)]
pub(crate) struct Appender<D> {
    tail: Arc<Mutex<Tail<D>>>,
}

/// The device, and what is known about the end of what it holds.
#[derive(Debug)]
struct Tail<D> {
    device: D,
    /// The last line has no newline yet.
    torn: bool,
}

impl<D> Clone for Appender<D> {
    fn clone(&self) -> Self {
        Self { tail: Arc::clone(&self.tail) }
    }
}

impl<D: Device> Appender<D> {
    /// Appends to `device`, whose last line is whole.
    pub(crate) fn new(device: D) -> Self {
        Self { tail: Arc::new(Mutex::new(Tail { device, torn: false })) }
    }

    /// Appends one line per delivery and syncs, then says what became of each.
    pub(crate) async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        let events = batch.len();
        let mut tail = Arc::clone(&self.tail).lock_owned().await;
        let written = spawn_blocking(move || {
            let lines = Lines::of::<D>(&batch);
            tail.append(&lines)
        });
        written.await.unwrap_or_else(|error| {
            // The thread panicked, or the process is about to end; how much was written is unknown.
            vec![Outcome::Retry(Failure::unavailable(format!("the write was cut short: {error}"))); events]
        })
    }
}

/// A batch as bytes, and where each of its lines ends.
struct Lines {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Lines {
    fn of<D: Device>(batch: &[Delivery]) -> Self {
        let mut lines = Self { bytes: Vec::new(), ends: Vec::with_capacity(batch.len()) };
        for delivery in batch {
            if D::IS_FOR_EYES {
                let mut line = Vec::with_capacity(delivery.payload.len() + 256);
                line::write_line(&mut line, delivery);
                said::escape_json(&mut line);
                lines.bytes.append(&mut line);
            } else {
                line::write_line(&mut lines.bytes, delivery);
            }
            lines.ends.push(lines.bytes.len());
        }
        lines
    }
}

impl<D: Device> Tail<D> {
    fn append(&mut self, lines: &Lines) -> Vec<Outcome> {
        let (written, write_error) = match self.heal() {
            Ok(()) => self.write_all(&lines.bytes),
            Err(error) => (0, Some(error)),
        };
        // What was written before an error is worth a sync: events that are safe need no second attempt.
        let sync_error = if written > 0 { self.device.sync().err() } else { None };
        self.torn |= written > 0 && !lines.ends.contains(&written);

        let failed = |error: &io::Error| Outcome::Retry(Failure::unavailable(self.device.explain(error)));
        let mut begin = 0;
        let mut outcomes = Vec::with_capacity(lines.ends.len());
        let mut error_told = false;
        for &end in &lines.ends {
            outcomes.push(match (&sync_error, &write_error) {
                // The bytes may be there or not; a later sync that succeeds would prove nothing about them.
                (Some(error), _) if begin < written => failed(error),
                (None, _) if end <= written => Outcome::Ack,
                (_, Some(error)) if begin < written || !error_told => {
                    error_told = true;
                    failed(error)
                }
                _ => Outcome::Untried,
            });
            begin = end;
        }
        outcomes
    }

    /// Ends a line that an earlier error has torn, so that the next one begins on its own.
    fn heal(&mut self) -> io::Result<()> {
        if self.device.prepare()? {
            self.torn = false;
        }
        if self.torn {
            let (written, error) = self.write_all(b"\n");
            self.torn = written == 0;
            error.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Writes as much as can be: how much that was, and why not more.
    fn write_all(&mut self, bytes: &[u8]) -> (usize, Option<io::Error>) {
        let mut written = 0;
        while written < bytes.len() {
            match self.device.write(&bytes[written..]) {
                Ok(0) => return (written, Some(io::ErrorKind::WriteZero.into())),
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (written, Some(error)),
            }
        }
        (written, None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;
    use std::sync::mpsc;

    use super::*;
    use crate::sample::delivery;

    /// A device that has room for so many bytes and notes what is asked of it.
    #[derive(Clone, Default)]
    struct Scripted(Arc<StdMutex<Script>>);

    #[derive(Default)]
    struct Script {
        room: usize,
        sync_fails: bool,
        held: Vec<u8>,
        calls: Vec<&'static str>,
    }

    impl Scripted {
        fn with_room(room: usize) -> Self {
            Self(Arc::new(StdMutex::new(Script { room, ..Script::default() })))
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().held.clone()).unwrap()
        }
    }

    impl Device for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut script = self.0.lock().unwrap();
            script.calls.push("write");
            // Short writes, as a signal or a nearly full disk makes them.
            let take = bytes.len().min(script.room).min(100);
            if take == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            script.room -= take;
            script.held.extend_from_slice(&bytes[..take]);
            Ok(take)
        }

        fn sync(&mut self) -> io::Result<()> {
            let mut script = self.0.lock().unwrap();
            script.calls.push("sync");
            if script.sync_fails { Err(io::Error::other("sync failed")) } else { Ok(()) }
        }

        fn explain(&self, error: &io::Error) -> String {
            error.to_string()
        }
    }

    fn line_length() -> usize {
        Lines::of::<Scripted>(&[delivery(1, b"1")]).bytes.len()
    }

    fn batch(ids: std::ops::RangeInclusive<i64>) -> Vec<Delivery> {
        ids.map(|id| delivery(id, b"1")).collect()
    }

    fn words(outcomes: &[Outcome]) -> Vec<&'static str> {
        let word = |outcome: &Outcome| match outcome {
            Outcome::Ack => "ack",
            Outcome::Retry(_) => "retry",
            Outcome::Dead(_) => "dead",
            Outcome::Untried => "untried",
        };
        outcomes.iter().map(word).collect()
    }

    #[tokio::test]
    async fn a_batch_is_synced_once_after_its_last_byte_and_before_the_ack() {
        let device = Scripted::with_room(usize::MAX);
        let outcomes = Appender::new(device.clone()).send(batch(1..=3)).await;
        assert_eq!(words(&outcomes), ["ack", "ack", "ack"]);
        let calls = device.0.lock().unwrap().calls.clone();
        assert_eq!(calls.iter().filter(|call| **call == "sync").count(), 1);
        assert_eq!(calls.last(), Some(&"sync"));
        assert_eq!(device.text().lines().count(), 3);
    }

    #[tokio::test]
    async fn an_empty_batch_does_nothing() {
        let device = Scripted::with_room(0);
        assert!(Appender::new(device.clone()).send(Vec::new()).await.is_empty());
        assert!(device.0.lock().unwrap().calls.is_empty());
    }

    #[tokio::test]
    async fn a_full_disk_acks_what_is_safe_and_tears_no_later_line() {
        let device = Scripted::with_room(line_length() + 10);
        let appender = Appender::new(device.clone());
        assert_eq!(words(&appender.send(batch(1..=4)).await), ["ack", "retry", "untried", "untried"]);
        // Still full: one event is told why, the others are as if never handed out.
        assert_eq!(words(&appender.send(batch(2..=4)).await), ["retry", "untried", "untried"]);

        device.0.lock().unwrap().room = usize::MAX;
        assert_eq!(words(&appender.send(batch(2..=4)).await), ["ack", "ack", "ack"]);
        let text = device.text();
        let whole: Vec<_> =
            text.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).collect();
        assert_eq!(whole.len(), 4);
        assert_eq!(text.lines().count(), 5, "the torn line stands alone");
    }

    #[tokio::test]
    async fn a_cut_right_after_a_line_tears_nothing() {
        let device = Scripted::with_room(line_length());
        let appender = Appender::new(device.clone());
        assert_eq!(words(&appender.send(batch(1..=2)).await), ["ack", "retry"]);
        device.0.lock().unwrap().room = usize::MAX;
        appender.send(batch(2..=2)).await;
        assert_eq!(device.text().lines().count(), 2);
    }

    #[tokio::test]
    async fn nothing_is_acked_when_the_sync_fails() {
        let device = Scripted::with_room(usize::MAX);
        device.0.lock().unwrap().sync_fails = true;
        let outcomes = Appender::new(device.clone()).send(batch(1..=2)).await;
        assert_eq!(words(&outcomes), ["retry", "retry"]);
    }

    #[tokio::test]
    async fn every_outcome_of_a_failed_batch_is_known_wherever_the_cut_falls() {
        let length = line_length();
        for room in 0..=length * 3 {
            let outcomes = Appender::new(Scripted::with_room(room)).send(batch(1..=3)).await;
            let whole = room / length;
            let mut expected = vec!["ack"; whole];
            expected.resize(3.min(whole + 1), "retry");
            expected.resize(3, "untried");
            assert_eq!(words(&outcomes), expected, "room for {room} bytes");
        }
    }

    /// A device whose first write waits until it is let go.
    struct Gate {
        entered: Option<tokio::sync::oneshot::Sender<()>>,
        release: mpsc::Receiver<()>,
        device: Scripted,
    }

    impl Device for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(entered) = self.entered.take() {
                entered.send(()).unwrap();
                self.release.recv().unwrap();
            }
            self.device.write(bytes)
        }

        fn sync(&mut self) -> io::Result<()> {
            self.device.sync()
        }

        fn explain(&self, error: &io::Error) -> String {
            self.device.explain(error)
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_dropped_send_ends_before_a_later_one_begins_and_a_waiting_one_writes_nothing() {
        let device = Scripted::with_room(usize::MAX);
        let (entered, first_entered) = tokio::sync::oneshot::channel();
        let (let_go, release) = mpsc::channel();
        let appender = Appender::new(Gate { entered: Some(entered), release, device: device.clone() });

        let first = tokio::spawn({
            let appender = appender.clone();
            async move { appender.send(batch(1..=2)).await }
        });
        first_entered.await.unwrap();
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        {
            let waiting = std::pin::pin!(appender.send(batch(3..=3)));
            assert!(poll_once(waiting).await.is_pending());
        }
        let_go.send(()).unwrap();
        assert_eq!(words(&appender.send(batch(4..=5)).await), ["ack", "ack"]);

        let text = device.text();
        let ids: Vec<_> = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_i64().unwrap())
            .collect();
        assert_eq!(ids, [1, 2, 4, 5]);
    }

    async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
        std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context))).await
    }
}
