//! NATS with JetStream, as Debian 12 packages it (2.9).

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::OnceLock;

use super::program::Program;
use super::{Credentials, exchange, on_free_ports};

/// Where Debian's package puts it.
const PROGRAM: &str = "/usr/sbin/nats-server";

/// How it is set up.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Who may connect; everybody if there is none.
    pub credentials: Option<Credentials>,
    /// How much JetStream may store; without a bound if there is none.
    pub store_bytes_max: Option<u64>,
}

/// A running NATS server; it and its data are gone when this is dropped.
#[derive(Debug)]
pub struct Nats {
    program: Program,
    port: u16,
    credentials: Option<Credentials>,
}

/// The server that all tests of this process share, without credentials; started by the first that asks.
pub fn shared() -> &'static Nats {
    static SHARED: OnceLock<Nats> = OnceLock::new();
    SHARED.get_or_init(Nats::start)
}

impl Nats {
    /// Everybody may connect.
    pub fn start() -> Self {
        Self::start_with(&Settings::default())
    }

    /// Starts it and waits until it answers.
    pub fn start_with(settings: &Settings) -> Self {
        on_free_ports(|[port]| {
            let program = Program::new("nats");
            program.write("nats.conf", &configuration(&program, port, settings));
            let mut nats = Self { program, port, credentials: settings.credentials.clone() };
            nats.try_start()?;
            Ok(nats)
        })
    }

    /// With the credentials that it was started with: `nats://user:password@127.0.0.1:port`.
    pub fn url(&self) -> String {
        match &self.credentials {
            Some(Credentials { user, password }) => format!("nats://{user}:{password}@{}", self.address()),
            None => format!("nats://{}", self.address()),
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

    /// The folder that holds data, configuration and log.
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

    /// Starts it on the same port and the same data, and waits until it answers.
    pub fn start_again(&mut self) {
        self.try_start().unwrap_or_else(|told| panic!("{told}"));
    }

    /// Stops it (SIGSTOP): connections stay, the kernel takes bytes, the server does not answer.
    pub fn freeze(&mut self) {
        self.program.freeze();
    }

    /// Lets it go on after [`Nats::freeze`].
    pub fn thaw(&mut self) {
        self.program.thaw();
    }

    fn try_start(&mut self) -> Result<(), String> {
        let mut command = self.program.command(Path::new(PROGRAM));
        command.args(["--config", "nats.conf"]);
        self.program.launch(command);
        let port = self.port;
        // It says who it is before anything is asked.
        self.program.wait_until(|| match exchange::ask(port, b"")? {
            told if told.starts_with("INFO ") && told.contains("\"jetstream\":true") => Ok(()),
            told => Err(told),
        })
    }
}

fn configuration(program: &Program, port: u16, settings: &Settings) -> String {
    let store = program.folder().join("data");
    let mut text = format!("listen: \"127.0.0.1:{port}\"\nserver_name: postrider_{port}\n");
    // Writing to a string cannot fail.
    let _ = write!(text, "jetstream {{ store_dir: \"{}\"", store.display());
    if let Some(bytes) = settings.store_bytes_max {
        let _ = write!(text, ", max_file_store: {bytes}");
    }
    text.push_str(" }\n");
    if let Some(Credentials { user, password }) = &settings.credentials {
        let _ = writeln!(text, "authorization {{ user: \"{user}\", password: \"{password}\" }}");
    }
    text
}
