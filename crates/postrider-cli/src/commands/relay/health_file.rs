//! A file by which a probe sees that a relay is well: it is there, and was touched a moment ago.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tracing::warn;

/// How often it is touched; a probe should allow for twice that.
const TOUCH_EVERY: Duration = Duration::from_secs(5);

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
                fs::write(&self.path, "well\n")
            }
            (false, Some(_)) => {
                self.touched_at = None;
                fs::remove_file(&self.path)
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
}
