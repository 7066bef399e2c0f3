//! Redis, as Debian 12 packages it (7.0).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::OnceLock;

use super::program::Program;
use super::{exchange, on_free_ports};

/// Where Debian's package puts it.
const PROGRAM: &str = "/usr/bin/redis-server";

/// How it is set up.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// What clients must know; nothing if there is none.
    pub password: Option<String>,
    /// When commands reach the disk.
    pub append_only: AppendOnly,
    /// More words of its command line, such as `--maxmemory 2mb`.
    pub arguments: Vec<String>,
}

/// When commands reach the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AppendOnly {
    /// Before they are answered.
    #[default]
    Always,
    /// Every second. A killed process loses nothing that it has answered, a machine without power does.
    EverySecond,
    /// Never: a killed server forgets all.
    Off,
}

/// A running Redis server; it and its data are gone when this is dropped.
#[derive(Debug)]
pub struct Redis {
    program: Program,
    port: u16,
    settings: Settings,
}

/// The server that all tests of this process share, without a password; started by the first that asks.
pub fn shared() -> &'static Redis {
    static SHARED: OnceLock<Redis> = OnceLock::new();
    SHARED.get_or_init(Redis::start)
}

impl Redis {
    /// Everybody may connect; what is answered is on disk.
    pub fn start() -> Self {
        Self::start_with(&Settings::default())
    }

    /// Starts it and waits until it answers.
    pub fn start_with(settings: &Settings) -> Self {
        on_free_ports(|[port]| {
            let mut redis = Self { program: Program::new("redis"), port, settings: settings.clone() };
            redis.try_start()?;
            Ok(redis)
        })
    }

    /// With the password that it was started with: `redis://:password@127.0.0.1:port/`.
    pub fn url(&self) -> String {
        match &self.settings.password {
            Some(password) => format!("redis://:{password}@{}/", self.address()),
            None => format!("redis://{}/", self.address()),
        }
    }

    /// Where it listens, also after it was started again.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Likewise.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The process; none while it is down.
    pub fn pid(&self) -> Option<u32> {
        self.program.pid()
    }

    /// The folder that holds data and log.
    pub fn folder(&self) -> &Path {
        self.program.folder()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        self.program.log_tail()
    }

    /// Ends it with SIGKILL.
    pub fn kill(&mut self) {
        self.program.kill();
    }

    /// Starts it on the same port and the same data, and waits until it has loaded them.
    pub fn start_again(&mut self) {
        self.try_start().unwrap_or_else(|told| panic!("{told}"));
    }

    /// Stops it (SIGSTOP): connections stay, the kernel takes bytes, the server does not answer.
    pub fn freeze(&mut self) {
        self.program.freeze();
    }

    /// Lets it go on after [`Redis::freeze`].
    pub fn thaw(&mut self) {
        self.program.thaw();
    }

    fn try_start(&mut self) -> Result<(), String> {
        let port = self.port;
        let (append, flush) = match self.settings.append_only {
            AppendOnly::Always => ("yes", "always"),
            AppendOnly::EverySecond => ("yes", "everysec"),
            AppendOnly::Off => ("no", "no"),
        };
        let mut command = self.program.command(Path::new(PROGRAM));
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no"]);
        command.args(["--save", "", "--appendonly", append, "--appendfsync", flush, "--dir"]);
        command.arg(self.program.folder());
        if let Some(password) = &self.settings.password {
            command.args(["--requirepass", password]);
        }
        command.args(&self.settings.arguments);
        self.program.launch(command);
        self.program.wait_until(|| match exchange::ask(port, b"PING\r\n")? {
            told if told.starts_with("+PONG") || told.starts_with("-NOAUTH") => Ok(()),
            told => Err(told),
        })
    }
}
