//! A folder with a store in it, and the binary to work on it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_core::{Delivery, Failure, NewSubscription};
use postrider_runtime::{Relay, Worker};
use postrider_sqlite::rusqlite::Connection;
use postrider_sqlite::{SqliteOptions, SqliteStore};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Longest wait for anything; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where one test happens. The store is `p.db` in it unless a command says otherwise.
pub(crate) struct Place {
    dir: TempDir,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path("p.db")
    }

    /// The binary with arguments, not yet started.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("POSTRIDER_STORE", "sqlite://p.db")
            .env("USER", "tester")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let output = self.command(args).output().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs what must succeed and returns what it printed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.stdout
    }

    /// Runs what must succeed with `--json` and returns the document.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let args: Vec<_> = args.iter().copied().chain(["--json"]).collect();
        let stdout = self.ok(&args);
        assert_eq!(stdout.lines().count(), 1, "{args:?}: one line: {stdout}");
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{args:?}: {error}: {stdout}"))
    }

    /// Runs with text on stdin.
    pub(crate) fn piped(&self, args: &[&str], stdin: &str) -> Ran {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that refuses its input early does not read all of it.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        let output = child.wait_with_output().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).unwrap();
        name.to_owned()
    }

    /// The lines of a file sink, whole ones only: a process may have been killed while it wrote.
    pub(crate) fn delivered(&self, name: &str) -> Vec<Value> {
        let content = fs::read_to_string(self.path(name)).unwrap_or_default();
        content.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Runs a worker in this process that refuses every event for good, until nothing is left.
    pub(crate) fn refuse_everything(&self, subscription: NewSubscription) {
        self.fail_everything(subscription, Failure::permanent("refused \x1b[31mfor good"));
    }

    /// Runs a worker in this process that fails at every event, until nothing can be attempted now.
    pub(crate) fn fail_everything(&self, subscription: NewSubscription, failure: Failure) {
        let url = format!("sqlite://{}", self.database().display());
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = SqliteStore::open(SqliteOptions::from_url(&url).unwrap()).await.unwrap();
            let worker = Worker::new(subscription).each(move |_: Delivery| {
                let failure = failure.clone();
                async move { Err::<(), _>(failure) }
            });
            let relay = Relay::new(store).name("refuser").worker(worker);
            relay.run_until_idle(std::future::pending()).await.unwrap();
        });
    }

    /// Who did what, as the store's audit tells it.
    pub(crate) fn audit(&self) -> Vec<(String, String)> {
        let database = Connection::open(self.database()).unwrap();
        let mut lines = database.prepare("select actor, action from postrider_audit order by id").unwrap();
        let lines = lines.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        lines.map(Result::unwrap).collect()
    }
}

/// A command that runs until it is told to end.
pub(crate) struct Running {
    child: Child,
    /// What it has said on stderr since it is at work.
    said: Arc<Mutex<String>>,
}

impl Running {
    /// Starts a command and waits until its stderr says that it is at work.
    pub(crate) fn start(mut command: Command, at_work: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        while !told.contains(at_work) {
            let read = stderr.read_line(&mut told).unwrap();
            assert!(read > 0, "it ended before it said `{at_work}`: {told}");
        }
        // What it says from here on must not fill the pipe.
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut line = String::new();
            while stderr.read_line(&mut line).is_ok_and(|read| read > 0) {
                heard.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Self { child, said }
    }

    /// What it has said since it is at work.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until it has said this so many times.
    pub(crate) fn says(&self, words: &str, times: usize) {
        let began = Instant::now();
        while self.said().matches(words).count() < times {
            assert!(began.elapsed() < PATIENCE, "it never said `{words}`: {}", self.said());
            // tidy: sleep because a pipe has no wait with a limit
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn stdout(&mut self) -> BufReader<std::process::ChildStdout> {
        BufReader::new(self.child.stdout.take().unwrap())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            // tidy: sleep because the standard library has no wait with a limit
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a question is answered with yes.
pub(crate) fn until(what: &str, mut yes: impl FnMut() -> bool) {
    let began = Instant::now();
    while !yes() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        // tidy: sleep because another process brings the moment about, and none can wait for that
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All files of a folder with their contents: what «nothing was written» means.
pub(crate) fn snapshot(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}
