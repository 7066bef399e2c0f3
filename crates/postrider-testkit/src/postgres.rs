//! Real PostgreSQL servers, thrown away after use.
//!
//! ```no_run
//! use postrider_testkit::postgres::{Server, Settings, Version, shared};
//!
//! // For most tests: one server for all tests of a binary, one database for each test.
//! let database = shared(Version::V15).create_database();
//! assert_eq!(database.query("select 1"), [[Some("1".to_owned())]]);
//!
//! // For tests that crash it: a server of their own.
//! let mut server = Server::start(Version::V18, Settings::honest());
//! server.kill_9();
//! server.start_again();
//! ```
//!
//! A shared server is lent out as `&Server` and whatever crashes or stops one takes `&mut self`, so that no
//! test can break the server of another. Nothing here returns an error: a test without its server fails, and
//! the panic shows the end of the server's log.
//!
//! | file | question it answers |
//! |---|---|
//! | `installation` | where are the programs, and as whom do they run? |
//! | `cluster` | where is the data, and what does it cost to get a fresh folder? |
//! | `pair` | what if a standby takes over? |
//! | `pooler` | what if a pooler is between a client and the server? |
//! | `wire` | how is a statement sent without a client library? |

mod cluster;
mod installation;
mod pair;
mod pooler;
mod settings;
mod wire;

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

pub use self::installation::Version;
pub use self::pair::Pair;
pub use self::pooler::{Pooler, PoolerSettings, Startup};
pub use self::settings::Settings;

use self::cluster::Cluster;
use self::installation::Installation;
use self::wire::Client;
use crate::throwaway::ports::{PORT_TRIES_MAX, PORTS, free_port};
use crate::throwaway::processes;
use crate::throwaway::watchdog::Watchdog;

/// Generous, because tests of many binaries may share two cores while a server recovers.
const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(20);
const POLL_EVERY: Duration = Duration::from_millis(5);
const LOG_TAIL_LINES: usize = 40;

/// Ends it as a crash does, because no test needs its data; insists after ten seconds. A killed server leaves
/// its segment of shared memory, whose id is in the seventh line of its lock file. PostgreSQL covers the window
/// between a start and the watchdog's knowing of it: it ends when it misses its lock file.
const END: &str = r#"
end() {
  if [ -n "$2" ] && kill -QUIT "$2"; then
    kill -CONT "$2"
    tries=0
    while [ "$tries" -lt 200 ] && kill -0 "$2" && ! grep -q '^State:.Z' "/proc/$2/status"; do
      tries=$((tries + 1))
      sleep 0.05
    done
    kill -KILL "$2"
  fi
  segment=$(sed -n '7s/^ *[0-9]* *\([0-9]*\).*/\1/p' "$1/data/postmaster.pid")
  [ -n "$segment" ] && ipcrm --shmem-id "$segment"
}
"#;

/// The server that all tests of this process share; started by the first that asks.
///
/// It never flushes to disk, which no test that leaves it running can notice. It ends with the process,
/// however that ends.
pub fn shared(version: Version) -> &'static Server {
    static V15: OnceLock<Server> = OnceLock::new();
    static V18: OnceLock<Server> = OnceLock::new();
    let server = match version {
        Version::V15 => &V15,
        Version::V18 => &V18,
    };
    server.get_or_init(|| Server::start(version, Settings::fast()))
}

/// A running server with a data folder of its own; both are gone when this is dropped.
#[derive(Debug)]
pub struct Server {
    installation: Installation,
    settings: Settings,
    port: u16,
    /// None while it is down.
    postmaster: Option<Child>,
    databases: AtomicU32,
    cluster: Cluster,
    watchdog: Watchdog,
}

/// An empty database that no other test uses. It lives as long as its server: dropping each would cost a flush
/// of the whole server, and the data of a failed test could not be looked at.
#[derive(Debug, Clone)]
pub struct Database {
    /// `postgres://postgres@127.0.0.1:<port>/<name>`; no password is asked for.
    pub url: String,
    /// Its name, unique within the server.
    pub name: String,
    address: SocketAddr,
}

impl Server {
    /// Makes a cluster, starts it and waits until it answers.
    pub fn start(version: Version, settings: Settings) -> Self {
        let installation = Installation::find(version);
        let cluster = Cluster::create(&installation, &settings);
        let watchdog = Watchdog::start(cluster.folder(), END);
        let mut server = Self {
            installation,
            settings,
            port: 0,
            postmaster: None,
            databases: AtomicU32::new(0),
            cluster,
            watchdog,
        };
        for _ in 0..PORT_TRIES_MAX {
            server.port = free_port();
            match server.try_start() {
                Ok(()) => return server,
                // Another process took the port between our look and the server's bind.
                Err(told) if told.contains("could not bind") => {}
                Err(told) => panic!("{told}"),
            }
        }
        panic!("no free port among {PORTS:?} after {PORT_TRIES_MAX} tries")
    }

    /// Starts a standby of this server, which is stopped for a moment to be copied: a base backup would need
    /// a program that release 18 comes without. It says `standby` to its primary; `select pg_promote()` makes
    /// it one.
    #[must_use]
    pub fn start_standby(&mut self, settings: Settings) -> Self {
        self.stop();
        let standby = Self::start(self.version(), settings.standby_of(self));
        self.start_again();
        standby
    }

    /// Which release it is.
    pub fn version(&self) -> Version {
        self.installation.version()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The URL of one of its databases; `postgres` always exists.
    pub fn url(&self, database: &str) -> String {
        url(self.address(), database)
    }

    /// The folder that holds data, log and socket.
    pub fn folder(&self) -> &Path {
        self.cluster.folder()
    }

    /// The process id of the postmaster; none while the server is down.
    pub fn pid(&self) -> Option<u32> {
        self.postmaster.as_ref().map(Child::id)
    }

    /// All that the server wrote into its log.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.cluster.log()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The end of it.
    pub fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// A fresh, empty database.
    pub fn create_database(&self) -> Database {
        // template0, because a forgotten connection to template1 would make every later test fail.
        self.copy_database("template0")
    }

    /// A fresh copy of a database that no client is connected to.
    pub fn copy_database(&self, template: &str) -> Database {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.query("postgres", &format!("create database {name} template {template}"));
        Database { url: self.url(&name), address: self.address(), name }
    }

    /// Sends statements to a database and returns the rows as text.
    pub fn query(&self, database: &str, statements: &str) -> Vec<Vec<Option<String>>> {
        query(self.address(), database, statements)
            .unwrap_or_else(|told| panic!("{told}\n{}", self.log_tail()))
    }

    /// The path of one of the release's programs. The package of release 18 has the server only: for it
    /// `psql` is that of release 15, and others such as `pg_dump`, which refuse a newer server, do not exist.
    pub fn program(&self, name: &str) -> PathBuf {
        self.installation.program(name)
    }

    /// One of the release's programs, to be run as the server's user and against this server, unless
    /// its arguments say otherwise.
    pub fn command(&self, name: &str) -> Command {
        let mut command = self.installation.command(name);
        command.current_dir(self.folder());
        let port = self.port.to_string();
        command.envs([("PGHOST", "127.0.0.1"), ("PGPORT", &port), ("PGUSER", "postgres")]);
        command.env("PGDATA", self.cluster.data());
        command
    }

    /// Ends it as an administrator in a hurry does (SIGQUIT): no clean-up, recovery at the next start.
    pub fn kill_immediate(&mut self) {
        self.end(Signal::QUIT);
    }

    /// Ends it as an administrator does (SIGINT): connections are cut, all is flushed.
    pub fn stop(&mut self) {
        self.end(Signal::INT);
    }

    /// Ends every process of it at once with SIGKILL, as the power switch does, except that what the
    /// server wrote without a flush survives in the kernel's memory.
    pub fn kill_9(&mut self) {
        // A stopped postmaster starts no process that we would miss.
        processes::signal(self.running(), Signal::STOP);
        for child in processes::children(self.running()) {
            processes::signal(child, Signal::KILL);
        }
        self.end(Signal::KILL);
    }

    /// Ends one backend with SIGKILL and returns when the postmaster, which must not be frozen, has noticed. It
    /// then ends all other backends and recovers, which [`Server::wait_until_it_answers`] waits for.
    pub fn kill_backend_9(&mut self, backend: u32) {
        let children = processes::children(self.running());
        assert!(children.contains(&backend), "{backend} is no process of this server: {children:?}");
        processes::signal(backend, Signal::KILL);
        let started = Instant::now();
        // Until then it takes connections, only to end them: an answer would not mean that it has recovered.
        while processes::is_there(backend) {
            assert!(started.elapsed() < STOP_MAX, "the postmaster does not notice that {backend} was killed");
            // tidy: sleep because processes that are not our children can only be looked at
            std::thread::sleep(POLL_EVERY);
        }
    }

    /// Stops all its processes (SIGSTOP): connections stay, the kernel takes bytes, no process answers.
    pub fn freeze(&mut self) {
        let postmaster = self.running();
        processes::signal(postmaster, Signal::STOP);
        for child in processes::children(postmaster) {
            processes::signal(child, Signal::STOP);
        }
    }

    /// Lets it go on after [`Server::freeze`].
    pub fn thaw(&mut self) {
        let postmaster = self.running();
        for child in processes::children(postmaster) {
            processes::signal(child, Signal::CONT);
        }
        processes::signal(postmaster, Signal::CONT);
    }

    /// Starts it on the same data and the same port, and waits until it answers.
    pub fn start_again(&mut self) {
        assert!(self.postmaster.is_none(), "the server is running already");
        self.try_start().unwrap_or_else(|told| panic!("{told}"));
    }

    /// Waits until it takes connections, as after a backend was killed.
    pub fn wait_until_it_answers(&mut self) {
        self.try_wait_until_it_answers().unwrap_or_else(|told| panic!("{told}"));
    }

    fn try_start(&mut self) -> Result<(), String> {
        let log = self.cluster.log();
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|error| format!("cannot open {}: {error}", log.display()))?;
        let mut command = self.installation.command("postgres");
        command.arg("-D").arg(self.cluster.data()).current_dir(self.folder());
        command.arg("-c").arg(format!("port={}", self.port));
        command.arg("-c").arg(format!("unix_socket_directories={}", self.folder().display()));
        for (name, value) in self.settings.values() {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        // No output of the test's: who reads it would wait for the server's end.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // Out of reach of the terminal's Ctrl-C, which is the test's; the watchdog ends the server then.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        self.watchdog.watch(child.id());
        self.postmaster = Some(child);
        self.try_wait_until_it_answers()
    }

    fn try_wait_until_it_answers(&mut self) -> Result<(), String> {
        let data = self.cluster.data().display().to_string();
        let started = Instant::now();
        loop {
            // Who answers on our port may be another server that was quicker to take it.
            let answer = query(self.address(), "postgres", "select current_setting('data_directory')");
            if matches!(&answer, Ok(rows) if rows[0][0].as_ref() == Some(&data)) {
                return Ok(());
            }
            let child = self.postmaster.as_mut().expect("somebody started it");
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                self.postmaster = None;
                self.watchdog.rest();
                return Err(format!("PostgreSQL ended: {status}\n{}", self.log_tail()));
            }
            if started.elapsed() > START_MAX {
                return Err(format!("no answer within {START_MAX:?}: {answer:?}\n{}", self.log_tail()));
            }
            // tidy: sleep because PostgreSQL has no other sign than its answer
            std::thread::sleep(POLL_EVERY);
        }
    }

    fn running(&self) -> u32 {
        self.pid().expect("the server is down; start it again first")
    }

    /// Signals the postmaster and waits for it and for its children, which may outlive it for a moment
    /// and would let a new start fail.
    fn end(&mut self, signal: Signal) {
        // Before the signal: orphans cannot be told from the processes of others.
        let mut pids = processes::children(self.running());
        let mut postmaster = self.postmaster.take().expect("it is running");
        pids.push(postmaster.id());
        processes::signal(postmaster.id(), signal);
        let started = Instant::now();
        while pids.iter().any(|pid| processes::is_running(*pid)) {
            if started.elapsed() > STOP_MAX {
                for pid in &pids {
                    processes::signal(*pid, Signal::KILL);
                }
                break;
            }
            // tidy: sleep because processes that are not our children can only be looked at
            std::thread::sleep(POLL_EVERY);
        }
        let _ = postmaster.wait();
        self.watchdog.rest();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(postmaster) = self.pid() {
            for pid in processes::children(postmaster).into_iter().chain([postmaster]) {
                processes::signal(pid, Signal::CONT);
            }
            self.kill_immediate();
        }
        // The watchdog removes the folder, so that there is one way and it is always tested.
        self.watchdog.finish();
    }
}

impl Database {
    /// Where its server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same database behind another address, such as a proxy's.
    #[must_use]
    pub fn through(&self, address: SocketAddr) -> Self {
        Self { url: url(address, &self.name), name: self.name.clone(), address }
    }

    /// Leaves to superusers alone the functions that managed servers may reserve, and creates a role that is
    /// no superuser and may create schemas here. Returns the URL of that role.
    pub fn managed(&self) -> String {
        let name = &self.name;
        let last_look = "pg_control_checkpoint()"; // tidy: foreign because it is PostgreSQL's function
        self.query(&format!(
            "revoke execute on function pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn(), pg_current_wal_lsn(),
                 pg_walfile_name(pg_lsn), pg_control_system(), {last_look} from public;
             create role {name}_owner login; grant create on database {name} to {name}_owner"
        ));
        self.url.replace("postgres@", &format!("{name}_owner@"))
    }

    /// Sends statements and returns the rows as text.
    pub fn query(&self, statements: &str) -> Vec<Vec<Option<String>>> {
        self.try_query(statements).unwrap_or_else(|told| panic!("{told}"))
    }

    /// As [`Database::query`], for servers that may be down and statements that may fail.
    pub fn try_query(&self, statements: &str) -> Result<Vec<Vec<Option<String>>>, String> {
        query(self.address, &self.name, statements)
    }
}

fn query(address: SocketAddr, database: &str, statements: &str) -> Result<Vec<Vec<Option<String>>>, String> {
    let told = |error: wire::Refusal| format!("`{statements}` in {database}: {error}");
    Client::connect(address, database).map_err(told)?.query(statements).map_err(told)
}

fn url(address: SocketAddr, database: &str) -> String {
    format!("postgres://postgres@{address}/{database}")
}
