//! A folder with the data, the log and the socket of one server.
//!
//! `initdb` takes a second or two. It runs once a machine and release; clusters are copies of its result,
//! which take a tenth of that. A copy is a thousand small files: on a busy disk it and each new database take
//! up to eight times as long as in memory.

use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

use super::installation::Installation;
use super::settings::{Identity, Place, Settings};
use crate::throwaway::user::cache;

/// Raised when `initdb` is called in another way, so that older results are not used.
const TEMPLATE_FORMAT: u32 = 1;
const MEMORY: &str = "/dev/shm";
/// Enough for two servers with a hundred databases each. Containers often have 64 MiB there.
const MEMORY_BYTES_MIN: u64 = 3 << 30;

#[derive(Debug)]
pub(super) struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    pub(super) fn create(installation: &Installation, settings: &Settings) -> Self {
        let parent = match settings.place {
            Place::Memory if memory_is_roomy() => MEMORY.into(),
            Place::Memory | Place::Disk => env::temp_dir(),
        };
        let folder = create_folder(&parent, installation, "cluster");
        // The server tells its folder as the kernel does, without symbolic links.
        let folder = folder.canonicalize().expect("the folder was just made");
        let cluster = Self { folder };
        match &settings.identity {
            Identity::Of(data) => copy(data, &cluster.data()),
            Identity::Own => initdb(installation, &cluster.data()),
            Identity::Copied => copy(&template(installation), &cluster.data()),
        }
        for (name, text) in settings.files() {
            write(installation, &cluster.data().join(name), text);
        }
        cluster
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}

fn memory_is_roomy() -> bool {
    let room = rustix::fs::statvfs(MEMORY).map(|room| room.f_bavail.saturating_mul(room.f_frsize));
    room.is_ok_and(|bytes| bytes >= MEMORY_BYTES_MIN)
}

/// A folder that did not exist before, for the server's user alone.
fn create_folder(parent: &Path, installation: &Installation, purpose: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let major = installation.version().major();
        let folder = parent.join(format!("postrider-{purpose}-{major}-{}-{number}", process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => {
                let mode = fs::Permissions::from_mode(0o700);
                fs::set_permissions(&folder, mode).expect("the folder is ours");
                if let Some(user) = installation.user() {
                    chown(&folder, Some(user.uid), Some(user.gid)).expect("root gives folders away");
                }
                return folder;
            }
            // Left by a process that had our number before us and whose watchdog was killed too.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => panic!("cannot make {}: {error}", folder.display()),
        }
    }
}

/// The cluster that others are copied from; made by the first who asks on this machine.
fn template(installation: &Installation) -> PathBuf {
    let cache = cache();
    if !cache.exists() {
        let made = fs::create_dir_all(&cache)
            // Whatever the umask is, the server's user must get through.
            .and_then(|()| fs::set_permissions(&cache, fs::Permissions::from_mode(0o755)));
        made.unwrap_or_else(|error| panic!("cannot make {}: {error}", cache.display()));
    }
    let major = installation.version().major();
    let owner = installation.user().map_or_else(String::new, |user| format!("-{}", user.uid));
    let template = cache.join(format!("initdb-{major}-{TEMPLATE_FORMAT}{owner}"));
    if !template.exists() {
        let folder = create_folder(&cache, installation, "initdb");
        let data = folder.join("data");
        initdb(installation, &data);
        // Several processes may do this at once. One rename wins and all results are equally good.
        if let Err(error) = fs::rename(&data, &template) {
            assert!(template.exists(), "cannot make {}: {error}", template.display());
        }
        let _ = fs::remove_dir_all(&folder);
    }
    template
}

fn initdb(installation: &Installation, data: &Path) {
    let mut command = installation.command("initdb");
    command.current_dir(data.parent().expect("data is in a folder"));
    command.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
    run(command.arg("--pgdata").arg(data));
}

/// The server refuses a key that others could read.
fn write(installation: &Installation, path: &Path, text: &str) {
    let written = fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o600)))
        .and_then(|()| match installation.user() {
            Some(user) => chown(path, Some(user.uid), Some(user.gid)),
            None => Ok(()),
        });
    written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").args(["--archive", "--reflink=auto"]).arg(from).arg(to));
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{told}", output.status);
}
