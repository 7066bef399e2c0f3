//! As whom servers run, and where they find what is kept for them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The cache of root: its own is in a folder that the server's user may not enter.
pub(crate) const CACHE_OF_ROOT: &str = "/var/cache/postrider";

/// Whom to become, because servers do not run as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A program as another user, if that has to be.
pub(crate) fn as_user(user: Option<User>, program: &Path) -> Command {
    let Some(User { uid, gid }) = user else { return Command::new(program) };
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}"));
    command.arg("--clear-groups").arg("--").arg(program);
    command
}

/// Where things are kept from one test run to the next.
pub(crate) fn cache() -> PathBuf {
    if is_root() {
        return CACHE_OF_ROOT.into();
    }
    let home = || PathBuf::from(env::var_os("HOME").expect("HOME is set")).join(".cache");
    env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("postrider")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn user_to_become() -> Option<User> {
    if !is_root() {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").expect("/etc/passwd can be read");
    let user = ["postgres", "nobody"].iter().find_map(|name| user_in(&passwd, name));
    Some(user.expect("servers do not run as root, and there is neither a user postgres nor nobody"))
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
