//! One command after the other, each with its answer.

use std::time::Duration;

use bytes::Bytes;
use postgres_protocol::message::frontend;
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::timeout;

use super::cursor::Cursor;
use super::refusal::{During, ServerSaid, lost, nonsense};
use super::wire::{Frame, Wire};

/// How much longer we wait than the server, which gives up with a better reason.
const PATIENCE: Duration = Duration::from_secs(5);

/// The rows of an answer.
pub(super) type Rows = Vec<Vec<Option<String>>>;

/// A connection that takes commands: those of replication, and plain SQL without parameters.
pub(super) struct Commands {
    wire: Wire,
    max: Duration,
    /// Whether an answer is still to come: then it is unknown which command the next one answers.
    is_waiting: bool,
}

impl Commands {
    /// `max` is how long each may take.
    pub(super) fn new(wire: Wire, max: Duration) -> Self {
        Self { wire, max, is_waiting: false }
    }

    pub(super) fn max(&self) -> Duration {
        self.max
    }

    /// Sends a command and returns its rows. After one that was not waited for, no other is taken.
    pub(super) async fn run(&mut self, text: &str, what: &str, during: During) -> Result<Rows> {
        self.send(text, what)?;
        let max = self.max.saturating_add(PATIENCE);
        timeout(max, self.answer(what, during)).await.unwrap_or_else(|_| Err(late(what, max)))
    }

    /// Sends a command that makes a stream of the connection.
    pub(super) async fn copy_both(mut self, text: &str, what: &str, during: During) -> Result<Wire> {
        self.send(text, what)?;
        let starting = async {
            loop {
                let frame = self.wire.frame_wait().await.map_err(|error| lost(error, what))?;
                match frame.tag {
                    b'W' => return Ok(()),
                    b'N' | b'S' => {}
                    _ => return Err(refused(frame, what, during)),
                }
            }
        };
        timeout(self.max, starting).await.unwrap_or_else(|_| Err(late(what, self.max)))?;
        Ok(self.wire)
    }

    fn send(&mut self, text: &str, what: &str) -> Result<()> {
        if self.is_waiting {
            let told = "an earlier command was given up: connect again";
            return Err(Error::new(ErrorKind::Unavailable, format!("cannot {what}: {told}")));
        }
        let sent = frontend::query(text, self.wire.outgoing());
        sent.map_err(|error| Error::invalid(format!("cannot {what}: {error}")))?;
        self.is_waiting = true;
        Ok(())
    }

    async fn answer(&mut self, what: &str, during: During) -> Result<Rows> {
        let (mut rows, mut failed) = (Vec::new(), None);
        loop {
            let frame = match self.wire.frame_wait().await {
                Ok(frame) => frame,
                // What the server said last tells more than that it went.
                Err(error) => return Err(failed.unwrap_or_else(|| lost(error, what))),
            };
            match frame.tag {
                b'D' => rows.push(row_read(frame.body).ok_or_else(|| nonsense(what, "half a row"))?),
                b'Z' => {
                    self.is_waiting = false;
                    return failed.map_or(Ok(rows), Err);
                }
                b'T' | b'C' | b'N' | b'S' | b'I' => {}
                _ => failed = Some(refused(frame, what, during)),
            }
        }
    }
}

/// The server has not answered for so long.
pub(super) fn late(what: &str, max: Duration) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot {what}: the server has not answered for {max:?}"))
}

fn refused(frame: Frame, what: &str, during: During) -> Error {
    match (frame.tag, ServerSaid::read(frame.body)) {
        (b'E', Some(said)) => said.into_error(what, during),
        (tag, _) => nonsense(what, &format!("{:?} in answer to a command", char::from(tag))),
    }
}

/// A count, then for each value its length, -1 for null, and its text.
fn row_read(body: Bytes) -> Option<Vec<Option<String>>> {
    let mut cursor = Cursor::new(body);
    let count = cursor.u16()?;
    let mut row = Vec::new();
    for _ in 0..count {
        row.push(match usize::try_from(cursor.i32()?) {
            Ok(length) => Some(String::from_utf8(cursor.bytes(length)?.to_vec()).ok()?),
            Err(_) => None,
        });
    }
    cursor.whole(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_texts_and_nulls() {
        let body = b"\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0";
        assert_eq!(
            row_read(Bytes::from_static(body)),
            Some(vec![Some("ab".to_owned()), None, Some(String::new())])
        );
        for end in 0..body.len() {
            assert_eq!(row_read(Bytes::from_static(&body[..end])), None);
        }
    }
}
