//! A file that grows by one JSON object a line.
//!
//! It is made for its owner alone, unless `mode` says otherwise, because payloads stand in it. A symbolic
//! link in its place is refused: another user who may write to the folder could lead the events, and what
//! they say, to any file of ours.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use postrider_core::{Delivery, Error, ErrorKind, Outcome, Result, Sink};

use rustix::fs::{Access, OFlags, access};
use serde::{Deserialize, Deserializer};

use crate::batch::append::{Appender, Device};
use crate::options::SinkOptions;

/// Where a file sink writes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileOptions {
    /// Where the file is. It is created if it is absent; its directory must exist.
    #[serde(deserialize_with = "path_from_config")]
    pub path: PathBuf,
    /// Who may read and write a file that is created, as `chmod` takes it: `0640`. For its owner alone if left out.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub mode: FileMode,
}

/// Who may read and write a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(u32);

impl Default for FileMode {
    fn default() -> Self {
        Self(0o600)
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mode =
            u32::from_str_radix(&text, 8).ok().filter(|mode| mode & !0o666 == 0 && mode & 0o600 == 0o600);
        mode.map(Self).ok_or_else(|| {
            serde::de::Error::custom(
                "the `mode` of a file is three octal digits, with which its owner reads and writes it: write \"0600\" or \"0640\"",
            )
        })
    }
}

impl SinkOptions for FileOptions {
    type Sink = FileSink;
    const SCHEMES: &'static [&'static str] = &["file"];

    /// `file:PATH`, and also `file:///PATH` since people write it. `file://name` would name a host.
    fn from_text(text: &str) -> Result<Self> {
        let path = text.strip_prefix("file:").unwrap_or_default();
        let path = match path.strip_prefix("//") {
            Some(absolute) if absolute.starts_with('/') => absolute,
            Some(host) => {
                return Err(Error::invalid(format!(
                    "sink `{text}` names a host: write file:{host} or file:///{host}"
                )));
            }
            None => path,
        };
        Ok(Self { path: checked_path(path)?, mode: FileMode::default() })
    }

    async fn open(&self) -> Result<FileSink> {
        FileSink::open_with(&self.path, self.mode)
    }

    async fn check(&self) -> Result<Vec<String>> {
        let path = &self.path;
        let wrong = |error: io::Error| Error::invalid(explain(path, &error)).with_source(error);
        if path.symlink_metadata().is_ok() {
            is_regular(path).map_err(wrong)?;
            access(path, Access::READ_OK | Access::WRITE_OK).map_err(|errno| wrong(errno.into()))?;
            return Ok(vec![format!("appends to the file `{}`", path.display())]);
        }
        access(directory_of(path), Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|errno| wrong(errno.into()))?;
        Ok(vec![format!("would create the file `{}`", path.display())])
    }
}

impl fmt::Display for FileOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file:{}", self.path.display())
    }
}

fn checked_path(path: &str) -> Result<PathBuf> {
    if path.is_empty() {
        return Err(Error::invalid("sink `file` needs a path: write file:events.jsonl"));
    }
    if path.contains('\0') {
        return Err(Error::invalid("the path of a file sink contains a zero byte"));
    }
    Ok(PathBuf::from(path))
}

fn path_from_config<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    checked_path(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// Appends deliveries to a file.
///
/// An ack means that the line is on disk: each batch is synced before any of its events is acked. If
/// log rotation has moved the file away, the next batch creates it again.
#[derive(Debug, Clone)]
pub struct FileSink {
    lines: Appender<AppendFile>,
}

#[derive(Debug)]
struct AppendFile {
    path: PathBuf,
    mode: FileMode,
    file: File,
}

impl FileSink {
    /// Opens the file, or creates it. Its directory must exist.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::open_with(path, FileMode::default())
    }

    /// The same, with who may read and write a file that is created.
    pub fn open_with(path: impl Into<PathBuf>, mode: FileMode) -> Result<Self> {
        let path = path.into();
        let file = open(&path, mode).map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::ResourceBusy => ErrorKind::Unavailable,
                _ => ErrorKind::Invalid,
            };
            Error::new(kind, explain(&path, &error)).with_source(error)
        })?;
        Ok(Self { lines: Appender::new(AppendFile { path, mode, file }) })
    }
}

impl Sink for FileSink {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        self.lines.send(batch).await
    }

    fn keeps_order(&self) -> bool {
        true
    }
}

impl Device for AppendFile {
    fn prepare(&mut self) -> io::Result<bool> {
        let here = match self.path.symlink_metadata() {
            Ok(found) => same_file(&found, &self.file.metadata()?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !here {
            self.file = open(&self.path, self.mode)?;
        }
        Ok(!here)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn explain(&self, error: &io::Error) -> String {
        explain(&self.path, error)
    }
}

fn same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn open(path: &Path, mode: FileMode) -> io::Result<File> {
    is_regular(path)?;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(mode.0);
    // A link that takes its place after the look is refused by the system.
    let mut file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)?;
    let length = file.seek(SeekFrom::End(0))?;
    if length == 0 {
        // The file's name must survive a crash as well as its content.
        File::open(directory_of(path))?.sync_all()?;
    } else {
        end_torn_line(&mut file)?;
    }
    Ok(file)
}

/// A pipe or a terminal would block the open itself, and can neither be read back nor synced.
fn is_regular(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link"))
        }
        Ok(found) if !found.is_file() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
        }
        _ => Ok(()),
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A crash in the middle of a write leaves a line without an end. Its event was not acked and comes again;
/// the next line must not continue it. It is not cut off, since the file may not be ours alone.
fn end_torn_line(file: &mut File) -> io::Result<()> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}

fn explain(path: &Path, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => ": create its directory first",
        io::ErrorKind::PermissionDenied => ": allow this user to write it, or choose another path",
        io::ErrorKind::StorageFull => ": free some space; nothing is lost meanwhile",
        io::ErrorKind::InvalidInput => ": choose another path, or use `stdout` or `null`",
        _ => "",
    };
    format!("file `{}` cannot be written: {error}{advice}", path.display())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::sample::delivery;

    fn ids(path: &Path) -> Vec<i64> {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.ends_with('\n'), "{text:?}");
        text.lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .map(|value| value["id"].as_i64().unwrap())
            .collect()
    }

    async fn send(sink: &FileSink, ids: std::ops::RangeInclusive<i64>) {
        let batch: Vec<_> = ids.map(|id| delivery(id, b"{}")).collect();
        let events = batch.len();
        assert_eq!(sink.send(batch).await, vec![Outcome::Ack; events]);
    }

    #[tokio::test]
    async fn acked_events_are_in_the_file_in_order_and_a_second_sink_goes_on_behind_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        let sink = FileSink::open(&path).unwrap();
        assert!(sink.keeps_order());
        send(&sink, 1..=3).await;
        assert_eq!(ids(&path), [1, 2, 3]);
        send(&FileSink::open(&path).unwrap(), 4..=4).await;
        assert_eq!(ids(&path), [1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn a_file_is_its_owners_alone_unless_config_says_otherwise() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let path = directory.path().join("events.jsonl");
        let sink = FileSink::open(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        fs::rename(&path, directory.path().join("rotated")).unwrap();
        send(&sink, 1..=1).await;
        assert_eq!(mode(&path), 0o600);
        let shared = directory.path().join("shared.jsonl");
        let json = serde_json::json!({"path": shared, "mode": "0640"});
        let options: FileOptions = serde_json::from_value(json).unwrap();
        options.open().await.unwrap();
        // Whatever else the umask of the test takes away.
        assert_eq!(mode(&shared) & 0o604, 0o600);
        for bad in ["", "x", "0777", "0400", "1600", "600 "] {
            let json = serde_json::json!({"path": shared, "mode": bad});
            assert!(serde_json::from_value::<FileOptions>(json).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_link_is_not_followed_when_opened_or_later() {
        let directory = tempfile::tempdir().unwrap();
        let (path, target) = (directory.path().join("events.jsonl"), directory.path().join("target"));
        fs::write(&target, "untouched").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let refused = FileSink::open(&path).unwrap_err().to_string();
        assert!(refused.contains("a symbolic link"), "{refused}");
        fs::remove_file(&path).unwrap();
        let sink = FileSink::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let outcomes = sink.send(vec![delivery(1, b"1")]).await;
        assert!(matches!(&outcomes[..], [Outcome::Retry(_)]), "{outcomes:?}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
    }

    #[tokio::test]
    async fn a_torn_last_line_is_ended_before_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        fs::write(&path, "{\"id\":1}\n{\"id\":2,\"top").unwrap();
        send(&FileSink::open(&path).unwrap(), 2..=2).await;
        assert_eq!(ids(&path), [1, 2]);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3);
    }

    #[tokio::test]
    async fn a_file_that_was_moved_away_is_created_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        let rotated = directory.path().join("events.1.jsonl");
        let sink = FileSink::open(&path).unwrap();
        send(&sink, 1..=1).await;
        fs::rename(&path, &rotated).unwrap();
        send(&sink, 2..=2).await;
        assert_eq!((ids(&rotated), ids(&path)), (vec![1], vec![2]));
    }

    #[tokio::test]
    async fn a_lost_directory_makes_the_receiver_unavailable_until_it_is_back() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let sink = FileSink::open(inner.join("events.jsonl")).unwrap();
        fs::remove_dir_all(&inner).unwrap();
        let outcomes = sink.send(vec![delivery(1, b"1"), delivery(2, b"2")]).await;
        assert!(matches!(&outcomes[..], [Outcome::Retry(_), Outcome::Untried]), "{outcomes:?}");
        fs::create_dir(&inner).unwrap();
        send(&sink, 1..=2).await;
        assert_eq!(ids(&inner.join("events.jsonl")), [1, 2]);
    }

    #[test]
    fn a_path_that_cannot_be_written_is_refused_with_advice() {
        let directory = tempfile::tempdir().unwrap();
        let missing = FileSink::open(directory.path().join("no/events.jsonl")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Invalid);
        assert!(missing.to_string().ends_with("create its directory first"), "{missing}");
        let folder = FileSink::open(directory.path()).unwrap_err();
        assert!(folder.to_string().contains("not a regular file"), "{folder}");
        assert!(FileSink::open("/dev/null").is_err());
    }
}
