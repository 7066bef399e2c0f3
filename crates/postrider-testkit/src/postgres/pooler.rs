//! PgBouncer in front of a server, to throw away.

use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;

use rustix::process::Signal;

use super::{Database, END, POLL_EVERY, START_MAX, Server, query};
use crate::throwaway::ports::{PORT_TRIES_MAX, PORTS, free_port};
use crate::throwaway::processes;
use crate::throwaway::user::{User, as_user, user_to_become};
use crate::throwaway::watchdog::Watchdog;

/// Where Debian's package puts it.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// A running PgBouncer in transaction mode, as Debian 12 packages it. It is gone when this is dropped.
#[derive(Debug)]
pub struct Pooler {
    port: u16,
    child: Child,
    folder: PathBuf,
    watchdog: Watchdog,
}

/// How it is set up.
#[derive(Debug, Clone, Copy)]
pub struct PoolerSettings {
    /// How many sessions of the server it has to lend, for each database and user.
    pub sessions: u32,
    /// What it does with a startup packet that holds more than it knows.
    pub startup: Startup,
}

/// What a pooler does with settings in the startup packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Startup {
    /// Refuses the connection, which is the default.
    Refuses,
    /// Takes it, and drops the settings.
    Ignores,
}

impl Pooler {
    /// Puts one in front of a server and waits until it answers.
    pub fn start(server: &Server, settings: PoolerSettings) -> Self {
        assert!(Path::new(PROGRAM).is_file(), "PgBouncer is missing: run `cargo xtask setup`");
        for _ in 0..PORT_TRIES_MAX {
            match Self::try_start(server, settings) {
                Ok(pooler) => return pooler,
                // Another process took the port between our look and the pooler's bind.
                Err(told) if told.contains("Address already in use") => {}
                Err(told) => panic!("{told}"),
            }
        }
        panic!("no free port among {PORTS:?} after {PORT_TRIES_MAX} tries")
    }

    /// A database of its server, as it is reached through it.
    pub fn database(&self, direct: &Database) -> Database {
        direct.through(self.address())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    fn try_start(server: &Server, settings: PoolerSettings) -> Result<Self, String> {
        let port = free_port();
        let user = user_to_become();
        let folder = std::env::temp_dir().join(format!("postrider-pooler-{}-{port}", std::process::id()));
        let (users, log) = (folder.join("users"), folder.join("log"));
        let text = configuration(server, port, settings, &users);
        fill(&folder, &text, &users, user).map_err(|error| error.to_string())?;
        let mut watchdog = Watchdog::start(&folder, END);
        let mut command = as_user(user, Path::new(PROGRAM));
        let output = File::create(&log).map_err(|error| error.to_string())?;
        command.arg("--quiet").arg(folder.join("pgbouncer.ini")).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        // Out of reach of the terminal's Ctrl-C, which is the test's; the watchdog ends it then.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        watchdog.watch(child.id());
        let mut pooler = Self { port, child, folder, watchdog };
        pooler.wait_until_it_answers()?;
        Ok(pooler)
    }

    fn wait_until_it_answers(&mut self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let answer = query(self.address(), "postgres", "select 1");
            if answer.is_ok() {
                return Ok(());
            }
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                self.watchdog.rest();
                return Err(format!("PgBouncer ended: {status}\n{}", log()));
            }
            if started.elapsed() > START_MAX {
                return Err(format!("no answer within {START_MAX:?}: {answer:?}\n{}", log()));
            }
            // tidy: sleep because PgBouncer has no other sign than its answer
            std::thread::sleep(POLL_EVERY);
        }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        processes::signal(self.child.id(), Signal::KILL);
        let _ = self.child.wait();
        self.watchdog.rest();
        self.watchdog.finish();
    }
}

/// Sessions of databases that no test uses any more are given back soon: a server has few.
fn configuration(server: &Server, port: u16, settings: PoolerSettings, users: &Path) -> String {
    let PoolerSettings { sessions, startup } = settings;
    let mut text = format!(
        "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
         default_pool_size = {sessions}\nmax_client_conn = 1000\nserver_login_retry = 1\nserver_idle_timeout = 1\n\
         log_connections = 0\nlog_disconnections = 0\n",
        server.address().port(),
        users.display()
    );
    if startup == Startup::Ignores {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "ignore_startup_parameters = options");
    }
    text
}

/// Makes the folder with what it needs, for the user that it runs as.
fn fill(folder: &Path, configuration: &str, users: &Path, user: Option<User>) -> io::Result<()> {
    fs::create_dir(folder)?;
    let file = folder.join("pgbouncer.ini");
    fs::write(&file, configuration)?;
    fs::write(users, "\"postgres\" \"\"\n")?;
    let Some(User { uid, gid }) = user else { return Ok(()) };
    [folder, &file, users].into_iter().try_for_each(|path| chown(path, Some(uid), Some(gid)))
}
