//! Standard output: one JSON object a line, for pipes.
//!
//! It may be a terminal, or end on one behind a pipe. So control characters beyond ASCII's, DEL, and what
//! turns the direction of text stand as `\uXXXX` in it, which is the same JSON; those of ASCII do in any
//! JSON.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use postrider_core::{Delivery, Error, ErrorKind, Outcome, Result, Sink};

use serde::Deserialize;

use crate::batch::append::{Appender, Device};
use crate::options::SinkOptions;

/// Standard output has nothing to choose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StdoutOptions {}

impl SinkOptions for StdoutOptions {
    type Sink = StdoutSink;
    const SCHEMES: &'static [&'static str] = &["stdout"];

    fn from_text(text: &str) -> Result<Self> {
        if text == "stdout" {
            Ok(Self {})
        } else {
            Err(Error::invalid("sink `stdout` takes nothing: write stdout"))
        }
    }

    async fn open(&self) -> Result<StdoutSink> {
        StdoutSink::open()
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(vec!["writes to standard output".to_owned()])
    }
}

impl fmt::Display for StdoutOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stdout")
    }
}

/// Writes deliveries to standard output.
///
/// An ack means that the pipe, terminal or file behind it took the bytes. The sink cannot know what the
/// reader does with them.
#[derive(Debug, Clone)]
pub struct StdoutSink {
    lines: Appender<Stdout>,
}

/// The descriptor itself, without the buffer of [`io::stdout`]: what a failed flush leaves in that buffer
/// would come out later, after the same events have been written again.
#[derive(Debug)]
struct Stdout(File);

impl StdoutSink {
    /// Takes standard output as it is now.
    pub fn open() -> Result<Self> {
        let descriptor = io::stdout().as_fd().try_clone_to_owned().map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("standard output cannot be used: {error}"))
                .with_source(error)
        })?;
        Ok(Self { lines: Appender::new(Stdout(File::from(descriptor))) })
    }
}

impl Sink for StdoutSink {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        self.lines.send(batch).await
    }

    fn keeps_order(&self) -> bool {
        true
    }
}

impl Device for Stdout {
    const IS_FOR_EYES: bool = true;

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn explain(&self, error: &io::Error) -> String {
        match error.kind() {
            io::ErrorKind::BrokenPipe => {
                "standard output is closed: the program that read it has ended".to_owned()
            }
            _ => format!("standard output cannot be written: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::fd::OwnedFd;

    use postrider_core::FailureClass;

    use super::*;
    use crate::sample::delivery;

    fn piped() -> (io::PipeReader, StdoutSink) {
        let (reader, writer) = io::pipe().unwrap();
        let descriptor = OwnedFd::from(writer);
        (reader, StdoutSink { lines: Appender::new(Stdout(File::from(descriptor))) })
    }

    #[tokio::test]
    async fn lines_arrive_in_order() {
        let (reader, sink) = piped();
        let outcomes = sink.send(vec![delivery(1, b"1"), delivery(2, b"{}")]).await;
        assert_eq!(outcomes, [Outcome::Ack, Outcome::Ack]);
        drop(sink);
        let lines: Vec<_> = BufReader::new(reader).lines().map(io::Result::unwrap).collect();
        assert!(lines[0].starts_with(r#"{"id":1,"#) && lines[1].starts_with(r#"{"id":2,"#), "{lines:?}");
    }

    #[tokio::test]
    async fn no_terminal_obeys_what_an_event_says() {
        let (mut reader, sink) = piped();
        let payload = "{\"a\":\"\u{9b}31m\u{7f}\u{202e}ü\"}";
        let mut event = delivery(1, payload.as_bytes());
        let inner = std::sync::Arc::make_mut(&mut event.event);
        inner.key = Some(postrider_core::Key::new("\u{1b}[2J\u{9d}\u{2066}"));
        sink.send(vec![event]).await;
        drop(sink);
        let mut line = String::new();
        io::Read::read_to_string(&mut reader, &mut line).unwrap();
        assert!(!line.trim_end().contains(crate::batch::said::is_treacherous), "{line:?}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["key"], "\u{1b}[2J\u{9d}\u{2066}");
        assert_eq!(read["payload"]["a"], "\u{9b}31m\u{7f}\u{202e}ü");
    }

    #[tokio::test]
    async fn a_closed_pipe_means_that_the_receiver_is_unavailable() {
        let (reader, sink) = piped();
        drop(reader);
        let outcomes = sink.send(vec![delivery(1, b"1"), delivery(2, b"2")]).await;
        let Outcome::Retry(failure) = &outcomes[0] else { panic!("{outcomes:?}") };
        assert_eq!(failure.class(), FailureClass::Unavailable);
        assert_eq!(failure.message(), "standard output is closed: the program that read it has ended");
        assert_eq!(outcomes[1], Outcome::Untried);
    }
}
