//! Which sink a text names: `stdout`, `null` or `file:PATH`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use postrider_core::{Delivery, Error, Outcome, Result, Sink};

use crate::{FileSink, NullSink, StdoutSink};

/// A sink as it is written in the CLI and in config. Reading the text touches nothing, so that a whole
/// config can be checked before anything starts; [`open`](SinkSpec::open) then makes the sink.
///
/// ```
/// use postrider_sinks::SinkSpec;
/// let spec: SinkSpec = "file:events.jsonl".parse()?;
/// assert_eq!(spec.to_string(), "file:events.jsonl");
/// assert!("fax:+41".parse::<SinkSpec>().is_err());
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SinkSpec {
    /// Standard output, one JSON object a line.
    Stdout,
    /// Takes everything, keeps nothing.
    Null,
    /// A file, one JSON object a line.
    File(PathBuf),
}

impl SinkSpec {
    /// Makes the sink: opens the file, takes standard output.
    pub fn open(&self) -> Result<AnySink> {
        match self {
            Self::Stdout => StdoutSink::open().map(AnySink::Stdout),
            Self::Null => Ok(AnySink::Null(NullSink)),
            Self::File(path) => FileSink::open(path).map(AnySink::File),
        }
    }
}

impl FromStr for SinkSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "stdout" => Ok(Self::Stdout),
            None if text == "null" => Ok(Self::Null),
            Some(("file", path)) => file_path(path).map(Self::File),
            None if text == "file" => {
                Err(Error::invalid("sink `file` needs a path: write file:events.jsonl"))
            }
            _ => Err(Error::invalid(format!(
                "there is no sink `{}`: use stdout, null or file:PATH",
                scheme_only(text)
            ))),
        }
    }
}

/// `file:PATH`, and also `file:///PATH` since people write it. `file://name` would name a host.
fn file_path(text: &str) -> Result<PathBuf> {
    let path = match text.strip_prefix("//") {
        Some(absolute) if absolute.starts_with('/') => absolute,
        Some(host) => {
            return Err(Error::invalid(format!(
                "sink `file:{text}` names a host: write file:{host} or file:///{host}"
            )));
        }
        None => text,
    };
    if path.is_empty() {
        return Err(Error::invalid("sink `file:` needs a path: write file:events.jsonl"));
    }
    if path.contains('\0') {
        return Err(Error::invalid("the path of a file sink contains a zero byte"));
    }
    Ok(PathBuf::from(path))
}

/// What may be repeated in an error: a broker's URL can hold a password.
fn scheme_only(text: &str) -> String {
    match text.split_once(':') {
        Some((scheme, _)) => format!("{}:…", scheme.escape_default()),
        None => text.escape_default().to_string(),
    }
}

impl fmt::Display for SinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Null => f.write_str("null"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// Any of this crate's sinks. Clones share what is open.
#[derive(Debug, Clone)]
pub enum AnySink {
    /// Standard output.
    Stdout(StdoutSink),
    /// Nowhere.
    Null(NullSink),
    /// A file.
    File(FileSink),
}

impl Sink for AnySink {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        match self {
            Self::Stdout(sink) => sink.send(batch).await,
            Self::Null(sink) => sink.send(batch).await,
            Self::File(sink) => sink.send(batch).await,
        }
    }

    fn keeps_order(&self) -> bool {
        match self {
            Self::Stdout(sink) => sink.keeps_order(),
            Self::Null(sink) => sink.keeps_order(),
            Self::File(sink) => sink.keeps_order(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::sample::delivery;

    fn check(text: &str, spec: &SinkSpec) {
        assert_eq!(text.parse::<SinkSpec>().unwrap(), *spec, "{text}");
        assert_eq!(spec.to_string().parse::<SinkSpec>().unwrap(), *spec, "{text}");
    }

    #[test]
    fn sinks_are_read_as_people_write_them() {
        check("stdout", &SinkSpec::Stdout);
        check("null", &SinkSpec::Null);
        check("file:out/events.jsonl", &SinkSpec::File("out/events.jsonl".into()));
        check("file:/tmp/with space:colon", &SinkSpec::File("/tmp/with space:colon".into()));
        check("file:///tmp/a", &SinkSpec::File("/tmp/a".into()));
    }

    #[test]
    fn a_sink_that_does_not_exist_is_refused_with_those_that_do() {
        for bad in ["", "std", "STDOUT", "stdout:", "null:x", "kafka://user:secret@host"] {
            let error = bad.parse::<SinkSpec>().unwrap_err().to_string();
            assert!(error.ends_with("use stdout, null or file:PATH"), "{bad}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        for bad in ["file", "file:", "file://", "file://host/x", "file:a\0b"] {
            assert!(bad.parse::<SinkSpec>().is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn an_opened_spec_sends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        let sink = SinkSpec::File(path.clone()).open().unwrap();
        assert!(sink.keeps_order());
        assert_eq!(sink.send(vec![delivery(1, b"1")]).await, [Outcome::Ack]);
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 1);
        assert!(SinkSpec::File(directory.path().join("no/x")).open().is_err());
        assert!(SinkSpec::Null.open().is_ok());
    }
}
