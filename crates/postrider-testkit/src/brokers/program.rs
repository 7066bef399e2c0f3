//! One program that runs in a folder of its own: started, killed, frozen, and gone when it is dropped.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, process};

use rustix::process::Signal;

use crate::throwaway::processes;
use crate::throwaway::user::{as_user, user_to_become};
use crate::throwaway::watchdog::Watchdog;

/// Generous, because tests of many binaries may share two cores while a virtual machine starts.
const START_MAX: Duration = Duration::from_secs(120);
const STOP_MAX: Duration = Duration::from_secs(20);
const POLL_EVERY: Duration = Duration::from_millis(10);
const LOG_TAIL_LINES: usize = 40;
/// Kills the whole group at once, because no test needs its data.
const END: &str = r#"
end() {
  [ -n "$2" ] && kill -s KILL -- "-$2"
}
"#;

#[derive(Debug)]
pub(super) struct Program {
    folder: PathBuf,
    /// None while it is down. It leads a group of processes, which is all of the program.
    leader: Option<Child>,
    watchdog: Watchdog,
}

impl Program {
    /// Makes its folder.
    pub(super) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("postrider-{name}-{}-{number}", process::id()));
        // Left by a process that had our number before us and whose watchdog was killed too.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("the folder is ours");
        let program = Self { watchdog: Watchdog::start(&folder, END), folder, leader: None };
        Self::give_away(&program.folder);
        program
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.leader.as_ref().map(Child::id)
    }

    /// A file in its folder, which only its user reads.
    pub(super) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        let written = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        Self::give_away(&path);
        path
    }

    /// A command as its user and in its folder, without the caller's environment, which is no part of a test.
    pub(super) fn command(&self, path: &Path) -> Command {
        assert!(path.is_file(), "{} is missing: run `cargo xtask setup`", path.display());
        let mut command = as_user(user_to_become(), path);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin").env("LC_ALL", "C.UTF-8");
        command.env("HOME", &self.folder).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// Starts it; its output goes to its log.
    pub(super) fn launch(&mut self, mut command: Command) {
        assert!(self.leader.is_none(), "it is running already");
        let log = self.folder.join("log");
        let log = File::options().create(true).append(true).open(log).expect("the folder is ours");
        command.stdout(log.try_clone().expect("files are few")).stderr(log);
        // Out of reach of the terminal's Ctrl-C, which is the test's; the watchdog ends it then.
        command.process_group(0);
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        self.watchdog.watch(child.id());
        self.leader = Some(child);
    }

    /// Until `answers` says yes; what it says otherwise is told if that takes too long or the program has ended.
    pub(super) fn wait_until(&mut self, answers: impl Fn() -> Result<(), String>) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let answer = answers();
            let child = self.leader.as_mut().expect("somebody started it");
            // First of all: who answers may be another, who was quicker to take the port.
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                let told = format!("it ended: {status}\n{}", self.log_tail());
                self.kill();
                return Err(told);
            }
            let Err(told) = answer else { return Ok(()) };
            if started.elapsed() > START_MAX {
                return Err(format!("no answer within {START_MAX:?}: {told}\n{}", self.log_tail()));
            }
            // tidy: sleep because a server has no other sign than its answer
            std::thread::sleep(POLL_EVERY);
        }
    }

    pub(super) fn kill(&mut self) {
        let mut child = self.leader.take().expect("it is down; start it again first");
        processes::signal_group(child.id(), Signal::KILL);
        let _ = child.wait();
        let started = Instant::now();
        while processes::group_is_running(child.id()) {
            assert!(started.elapsed() < STOP_MAX, "processes of group {} do not end", child.id());
            // tidy: sleep because processes that are not our children can only be looked at
            std::thread::sleep(POLL_EVERY);
        }
        self.watchdog.rest();
    }

    /// On return none of its threads runs: a signal takes effect when each of them has noticed.
    pub(super) fn freeze(&mut self) {
        let leader = self.running();
        processes::signal_group(leader, Signal::STOP);
        let began = Instant::now();
        while !processes::is_stopped(leader) {
            assert!(began.elapsed() < STOP_MAX, "it does not stop");
            // tidy: sleep because processes that are not our children can only be looked at
            std::thread::sleep(POLL_EVERY);
        }
    }

    pub(super) fn thaw(&mut self) {
        processes::signal_group(self.running(), Signal::CONT);
    }

    pub(super) fn log_tail(&self) -> String {
        let bytes = fs::read(self.folder.join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    fn running(&self) -> u32 {
        self.pid().expect("it is down; start it again first")
    }

    fn give_away(path: &Path) {
        if let Some(user) = user_to_become() {
            chown(path, Some(user.uid), Some(user.gid)).expect("root gives files away");
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.leader.is_some() {
            self.kill();
        }
        // The watchdog removes the folder, so that there is one way and it is always tested.
        self.watchdog.finish();
    }
}
