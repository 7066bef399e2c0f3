//! A file that holds this process's number while it runs, for scripts that signal it.
//!
//! The process that has the file keeps it locked, so only one of two processes that start at once has it. It
//! is opened without following a link. A file with any content but a process's number belongs to another
//! program and stays as it is.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use postrider_core::{Error, ErrorKind, Result};
use rustix::fs::OFlags;
use tracing::warn;

/// The file, which is gone when this is dropped.
pub(super) struct PidFile {
    path: PathBuf,
    /// Locked as long as this is open.
    _file: File,
}

/// Why a file is not ours.
enum Refused {
    Runs(String),
    Foreign,
    Failed(io::Error),
}

impl PidFile {
    /// Writes the file. One that names another process which lives is a conflict; one that was left behind is replaced.
    pub(super) fn write(path: PathBuf) -> Result<Self> {
        let shown = path.display();
        match take(&path) {
            Ok(file) => Ok(Self { path, _file: file }),
            Err(Refused::Runs(pid)) => Err(Error::new(
                ErrorKind::Conflict,
                format!("process {pid} runs, and `{shown}` is its file: end it first, or name another file"),
            )),
            Err(Refused::Foreign) => Err(Error::invalid(format!(
                "`{shown}` is there and holds no process's number, so it is left as it is: name another pid file"
            ))),
            Err(Refused::Failed(error)) => {
                Err(Error::invalid(format!("cannot write the pid file `{shown}`")).with_source(error))
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            warn!(%error, path = %self.path.display(), "the pid file could not be removed");
        }
    }
}

/// Opens, locks and fills the file.
fn take(path: &Path) -> Result<File, Refused> {
    loop {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(path)
            .map_err(Refused::Failed)?;
        if !file.metadata().map_err(Refused::Failed)?.is_file() {
            return Err(Refused::Foreign);
        }
        let content = content_of(&mut file)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Refused::Runs(content)),
            Err(TryLockError::Error(error)) => return Err(Refused::Failed(error)),
        }
        // The last holder removes the file before it releases the lock, and then no path leads to this file.
        let is_there = fs::symlink_metadata(path).map(|found| found.ino());
        if is_there.ok() != file.metadata().ok().map(|held| held.ino()) {
            continue;
        }
        let content = content_of(&mut file)?;
        if lives(&content) {
            return Err(Refused::Runs(content));
        }
        return fill(&mut file).map(|()| file).map_err(Refused::Failed);
    }
}

/// The number that the file holds; empty if nothing is in it.
fn content_of(file: &mut File) -> Result<String, Refused> {
    let mut content = String::new();
    file.rewind().map_err(Refused::Failed)?;
    file.take(32).read_to_string(&mut content).map_err(|_| Refused::Foreign)?;
    let content = content.trim().to_owned();
    if content.chars().all(|c| c.is_ascii_digit()) { Ok(content) } else { Err(Refused::Foreign) }
}

fn fill(file: &mut File) -> io::Result<()> {
    let line = format!("{}\n", std::process::id());
    file.rewind()?;
    file.write_all(line.as_bytes())?;
    file.set_len(line.len() as u64)
}

/// Whether a file names another process, which lives: it may belong to a program that locks nothing.
fn lives(pid: &str) -> bool {
    !pid.is_empty() && pid != std::process::id().to_string() && Path::new("/proc").join(pid).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &Path) -> ErrorKind {
        PidFile::write(path.to_owned()).err().expect("refused").kind()
    }

    #[test]
    fn a_file_that_was_left_behind_is_replaced_and_one_of_the_living_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.pid");
        // Numbers of processes are smaller than this.
        for left in ["4194999\n", ""] {
            fs::write(&path, left).unwrap();
            let file = PidFile::write(path.clone()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
            drop(file);
            assert!(!path.exists());
        }
        fs::write(&path, "1\n").unwrap();
        assert_eq!(refused(&path), ErrorKind::Conflict);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    }

    #[test]
    fn of_two_that_start_at_once_one_has_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.pid");
        let file = PidFile::write(path.clone()).unwrap();
        assert_eq!(refused(&path), ErrorKind::Conflict, "it is locked, though the number in it is our own");
        drop(file);
        drop(PidFile::write(path.clone()).unwrap());
    }

    #[test]
    fn what_is_not_ours_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("p.pid"), dir.path().join("precious"));
        fs::write(&path, "precious").unwrap();
        assert_eq!(refused(&path), ErrorKind::Invalid);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert_eq!(refused(&path), ErrorKind::Invalid);
        assert_eq!(fs::read_to_string(&target).unwrap(), "");
    }
}
