//! Cleans up after a server, even when the test process is killed with -9.
//!
//! A shell that waits for the end of its input, which the kernel brings about when the process that
//! holds the other end is gone, however it went. `setpriv --pdeathsig` was the alternative: its signal
//! comes when the *thread* that started the server ends, which in a test binary is the first test.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Each line is the process to watch, or empty. After the last one `end` is called with it.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
pid=
while read -r line; do pid=$line; done
end "$1" "$pid"
tries=0
until rm -rf "$1" || [ "$tries" -ge 100 ]; do
  tries=$((tries + 1))
  sleep 0.05
done
"#;

#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
}

impl Watchdog {
    /// Removes `folder` when this process is gone, or [`Watchdog::finish`] is called.
    /// `end` is a function of the shell that ends the server: its arguments are the folder and the process, or
    /// nothing if none is running.
    pub(crate) fn start(folder: &Path, end: &str) -> Self {
        let mut command = Command::new("sh");
        command.arg("-c").arg([end, SCRIPT].concat()).arg("watchdog").arg(folder).current_dir("/");
        // A group of its own, because Ctrl-C in a terminal and `timeout` end whole groups.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Self { shell: command.spawn().expect("there is a shell") }
    }

    /// From now on this process is ended too.
    pub(crate) fn watch(&mut self, pid: u32) {
        self.tell(&pid.to_string()).expect("the watchdog lives as long as its input");
    }

    /// The process is gone; its number may soon be another's.
    pub(crate) fn rest(&mut self) {
        // An error means that the watchdog was killed: its work is done, except for the folder.
        let _ = self.tell("");
    }

    /// Cleans up now; returns when all is gone.
    pub(crate) fn finish(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }

    fn tell(&mut self, line: &str) -> io::Result<()> {
        let input = self.shell.stdin.as_mut().expect("open until the end");
        writeln!(input, "{line}")
    }
}
