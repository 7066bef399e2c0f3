//! Cleans up after a server, even when the test process is killed with -9.
//!
//! A shell that waits for the end of its input, which the kernel brings about when the process that
//! holds the other end is gone, however it went. `setpriv --pdeathsig` was the alternative: its signal
//! comes when the *thread* that started the server ends, which in a test binary is the first test.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Each line is the process to watch, or empty. After the last one: end it as a crash does, for nobody
/// wants its data, and insist after ten seconds. A killed server leaves its segment of shared memory, whose
/// id is in the seventh line of its lock file. The window between a start and its line is
/// covered by PostgreSQL, which ends when it misses its lock file.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ] && kill -QUIT "$pid"; then
  kill -CONT "$pid"
  tries=0
  while [ "$tries" -lt 200 ] && kill -0 "$pid" && ! grep -q '^State:.Z' "/proc/$pid/status"; do
    tries=$((tries + 1))
    sleep 0.05
  done
  kill -KILL "$pid"
fi
segment=$(sed -n '7s/^ *[0-9]* *\([0-9]*\).*/\1/p' "$1/data/postmaster.pid")
[ -n "$segment" ] && ipcrm --shmem-id "$segment"
rm -rf "$1"
"#;

#[derive(Debug)]
pub(super) struct Watchdog {
    shell: Child,
}

impl Watchdog {
    /// Removes `folder` when this process is gone, or [`Watchdog::finish`] is called.
    pub(super) fn start(folder: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "watchdog"]).arg(folder).current_dir("/");
        // A group of its own, because Ctrl-C in a terminal and `timeout` end whole groups.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Self { shell: command.spawn().expect("there is a shell") }
    }

    /// From now on this process is ended too.
    pub(super) fn watch(&mut self, pid: u32) {
        self.tell(&pid.to_string()).expect("the watchdog lives as long as its input");
    }

    /// The process is gone; its number may soon be another's.
    pub(super) fn rest(&mut self) {
        // Somebody killed the watchdog: what it was for is done, except for the folder.
        let _ = self.tell("");
    }

    /// Cleans up now; returns when all is gone.
    pub(super) fn finish(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }

    fn tell(&mut self, line: &str) -> io::Result<()> {
        let input = self.shell.stdin.as_mut().expect("open until the end");
        writeln!(input, "{line}")
    }
}
