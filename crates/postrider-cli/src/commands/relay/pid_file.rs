//! A file that holds this process's number while it runs, for scripts that signal it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use postrider_core::{Error, ErrorKind, Result};
use tracing::warn;

/// The file, which is gone when this is dropped.
pub(super) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes the file. One that names another process which lives is a conflict; one that was left behind is replaced.
    pub(super) fn write(path: PathBuf) -> Result<Self> {
        if let Some(pid) = living(&path) {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "process {pid} runs, and `{}` is its file: end it first, or name another file",
                    path.display()
                ),
            ));
        }
        // Whoever reads it finds all of it or nothing. Whatever lies in the way is not written to: it may lead elsewhere.
        let beside = path.with_added_extension("new");
        drop(fs::remove_file(&beside));
        let written = fs::File::create_new(&beside)
            .and_then(|mut file| writeln!(file, "{}", std::process::id()))
            .and_then(|()| fs::rename(&beside, &path));
        match written {
            Ok(()) => Ok(Self { path }),
            Err(error) => {
                let what = format!("cannot write the pid file `{}`", path.display());
                Err(Error::new(ErrorKind::Invalid, what).with_source(error))
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

/// The process that a file names, if it lives and is another.
fn living(path: &Path) -> Option<u32> {
    let pid: u32 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    let lives = Path::new("/proc").join(pid.to_string()).exists();
    (lives && pid != std::process::id()).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_left_behind_is_replaced_and_one_of_the_living_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.pid");
        // Numbers of processes are smaller than this.
        for left in ["4194999\n", "nonsense", ""] {
            fs::write(&path, left).unwrap();
            let file = PidFile::write(path.clone()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
            drop(file);
            assert!(!path.exists());
        }
        fs::write(&path, "1\n").unwrap();
        let error = PidFile::write(path.clone()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    }
}
