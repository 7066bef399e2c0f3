//! Where programs are kept that have no package of Debian's.
//!
//! They are installed beside their place and then moved there, so that what is there is whole.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::{env, fs};

use anyhow::{Context, Result, bail};

/// The cache of root: its own is in a folder that the servers' user may not enter, and servers do not
/// run as root.
const CACHE_OF_ROOT: &str = "/var/cache/postrider";

/// Something in a folder of the cache; the testkit looks there by the same name.
pub(super) struct Kept {
    pub(super) folder: &'static str,
    /// Whether what is in this folder is what is wanted.
    pub(super) is_current: fn(&Path) -> bool,
    /// Fills a new folder.
    pub(super) fill: fn(&Path) -> Result<()>,
}

impl Kept {
    pub(super) fn is_there(&self) -> Result<bool> {
        let own = own()?;
        // The testkit takes the first that exists, so that is the one that must be right.
        let mut present =
            [own.as_path(), Path::new(CACHE_OF_ROOT)].map(|cache| cache.join(self.folder)).into_iter();
        Ok(present.find(|folder| folder.exists()).is_some_and(|folder| (self.is_current)(&folder)))
    }

    pub(super) fn install(&self) -> Result<()> {
        let own = own()?;
        fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
        succeed(Command::new("chmod").arg("a+rx").arg(&own))?;
        let new = own.join(format!("{}.{}", self.folder, process::id()));
        let installed = self.install_beside(&new, &own.join(self.folder));
        if installed.is_err() {
            let _ = fs::remove_dir_all(&new);
        }
        installed
    }

    fn install_beside(&self, new: &Path, place: &Path) -> Result<()> {
        fs::create_dir(new)?;
        (self.fill)(new)?;
        // Whatever the umask is, the servers' user reads it.
        succeed(Command::new("chmod").args(["-R", "a+rX"]).arg(new))?;
        if place.exists() {
            fs::remove_dir_all(place)?;
        }
        fs::rename(new, place).with_context(|| format!("cannot make {}", place.display()))
    }
}

fn own() -> Result<PathBuf> {
    if super::is_root()? {
        return Ok(CACHE_OF_ROOT.into());
    }
    let cache = match env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(cache.join("postrider"))
}

/// Runs it to its end and returns what it wrote to its output.
pub(super) fn succeed(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        let told = [output.stdout, output.stderr].concat();
        bail!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&told));
    }
    Ok(output.stdout)
}
