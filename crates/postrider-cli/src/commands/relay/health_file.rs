//! A file by which a probe sees that a relay is well: it is there, and was touched a moment ago.
//!
//! It is written beside its place and moved there, so that no link is followed and nothing is truncated.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use tracing::warn;

/// How often it is touched; a probe should allow for twice that.
const TOUCH_EVERY: Duration = Duration::from_secs(5);

/// What is in it.
const CONTENT: &str = "well\n";

pub(super) struct HealthFile {
    path: PathBuf,
    touched_at: Option<Instant>,
}

impl HealthFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, touched_at: None }
    }

    /// Makes or touches the file if all is well, and takes it away if not.
    pub(super) fn tell(&mut self, well: bool) {
        let is_due = self.touched_at.is_none_or(|at| at.elapsed() >= TOUCH_EVERY);
        let done = match (well, self.touched_at) {
            (true, _) if is_due => {
                self.touched_at = Some(Instant::now());
                place(&self.path)
            }
            (false, Some(_)) => {
                self.touched_at = None;
                check_is_ours(&self.path).and_then(|()| fs::remove_file(&self.path))
            }
            _ => Ok(()),
        };
        if let Err(error) = done {
            warn!(%error, path = %self.path.display(), "the health file cannot be written");
        }
    }

    /// Takes the file away at the end.
    pub(super) fn remove(mut self) {
        self.tell(false);
    }
}

/// Puts a new file in the place of an old one.
fn place(path: &Path) -> io::Result<()> {
    match check_is_ours(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let beside = path.with_added_extension("new");
    drop(fs::remove_file(&beside));
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&beside)?
        .write_all(CONTENT.as_bytes())?;
    fs::rename(&beside, path)
}

/// Refuses what a relay has not written.
fn check_is_ours(path: &Path) -> io::Result<()> {
    let foreign = || io::Error::other("something else is there, which is left as it is: name another file");
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(foreign());
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut content = Vec::new();
    file.take(CONTENT.len() as u64 + 1).read_to_end(&mut content)?;
    if content.is_empty() || content == CONTENT.as_bytes() { Ok(()) } else { Err(foreign()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_while_all_is_well() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("well");
        let mut file = HealthFile::new(path.clone());
        file.tell(false);
        assert!(!path.exists());
        file.tell(true);
        assert!(path.exists());
        file.tell(false);
        assert!(!path.exists());
        file.tell(true);
        file.remove();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_ours_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("well"), dir.path().join("precious"));
        fs::write(&target, "precious").unwrap();
        for make in [
            |target: &Path, path: &Path| std::os::unix::fs::symlink(target, path),
            |target: &Path, path: &Path| fs::copy(target, path).map(drop),
        ] {
            make(&target, &path).unwrap();
            HealthFile::new(path.clone()).tell(true);
            let mut file = HealthFile { path: path.clone(), touched_at: Some(Instant::now()) };
            file.tell(false);
            assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }
}
