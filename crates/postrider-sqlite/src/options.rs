//! Which database file, and how it is used.

pub(crate) mod clock;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::time::Clock;
use postrider_core::{Error, Result};

use crate::options::clock::SystemClock;

/// How a [`SqliteStore`](crate::SqliteStore) is opened.
///
/// ```
/// use std::time::Duration;
/// use postrider_sqlite::SqliteOptions;
/// let options = SqliteOptions::from_url("sqlite://postrider.db")?.busy_timeout(Duration::from_secs(1));
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone)]
pub struct SqliteOptions {
    pub(crate) path: PathBuf,
    pub(crate) create: bool,
    pub(crate) check: bool,
    pub(crate) durability: Durability,
    pub(crate) busy_timeout: Duration,
    pub(crate) lease: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What must be on disk before an event is handed out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// The event: it is flushed if its producer did not. What was delivered cannot vanish in a power cut.
    #[default]
    Flush,
    /// Whatever the producers flush. For those that all commit with `synchronous = FULL`, or when a
    /// delivered event may vanish.
    Trust,
}

impl SqliteOptions {
    /// The database at `path`, created if it is absent.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            create: true,
            check: true,
            durability: Durability::default(),
            busy_timeout: Duration::from_secs(5),
            lease: Duration::from_secs(10),
            clock: Arc::new(SystemClock),
        }
    }

    /// The database that a URL names: `sqlite://app.db` is relative to the working directory,
    /// `sqlite:///var/lib/app.db` absolute. A path is taken as it is.
    pub fn from_url(url: &str) -> Result<Self> {
        let path = match url.split_once(':') {
            Some(("sqlite", rest)) => rest.strip_prefix("//").unwrap_or(rest),
            Some((scheme, rest)) if rest.starts_with("//") => {
                return Err(Error::invalid(format!(
                    "`{scheme}://…` is no SQLite store: write sqlite://FILE, or sqlite:///FILE for an absolute path"
                )));
            }
            _ => url,
        };
        if url != path && path.contains('?') {
            return Err(Error::invalid("the URL of an SQLite store takes no options after `?`"));
        }
        if path.is_empty() {
            return Err(Error::invalid("the store's URL names no file: write sqlite://FILE"));
        }
        Ok(Self::new(path))
    }

    /// Which file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether an absent file is created, which is the default.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether the whole file is read through and checked for damage first, which is the default. A short
    /// command on a large file may do without.
    #[must_use]
    pub fn check(mut self, check: bool) -> Self {
        self.check = check;
        self
    }

    /// What must be on disk before an event is handed out.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// How long a call waits for another connection's lock; 5 s by default.
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// How long a member that does not beat is believed to live; 10 s by default.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Where the time comes from; the machine's clocks by default.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("path", &self.path)
            .field("create", &self.create)
            .field("check", &self.check)
            .field("durability", &self.durability)
            .field("busy_timeout", &self.busy_timeout)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_files() {
        for (url, path) in [
            ("sqlite://postrider.db", "postrider.db"),
            ("sqlite:///var/lib/p.db", "/var/lib/p.db"),
            ("sqlite:p.db", "p.db"),
            ("dir/p.db", "dir/p.db"),
            ("/abs/what?.db", "/abs/what?.db"),
        ] {
            assert_eq!(SqliteOptions::from_url(url).unwrap().path, Path::new(path), "{url}");
        }
        for bad in ["", "sqlite://", "postgres://host/db", "sqlite://p.db?mode=ro"] {
            assert!(SqliteOptions::from_url(bad).is_err(), "{bad}");
        }
    }
}
