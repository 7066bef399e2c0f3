//! RabbitMQ, as Debian 12 packages it (3.10), without plugins.
//!
//! Each server has a port mapper (`epmd`) of its own on loopback, so that any number run at once and nothing is
//! shared. It takes seconds to start: use [`shared`] wherever nothing is killed.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::program::Program;
use super::{Credentials, exchange, on_free_ports};

/// Where Debian's package puts its programs. Those on PATH insist on a user of their own.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";
/// The port mapper is the server's child and of its group, and so ends with it.
const SCRIPT: &str = r#"epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 & exec "$1""#;
/// The beginning of every connection, as the client sends it.
const GREETING: &[u8] = b"AMQP\0\0\x09\x01";

/// A user beside `guest`, with its permissions in the virtual host `/`: regular expressions over the names of
/// exchanges and queues, and `^$` for nothing.
#[derive(Debug, Clone)]
pub struct User {
    /// Who.
    pub credentials: Credentials,
    /// What they may declare and delete.
    pub configure: String,
    /// Where they may publish to.
    pub write: String,
    /// What they may read.
    pub read: String,
}

/// How it is set up. The user `guest` with password `guest` may do everything.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Others.
    pub users: Vec<User>,
    /// More lines of `rabbitmq.conf`, such as `disk_free_limit.absolute = 1GB`.
    pub lines: Vec<String>,
}

/// A running RabbitMQ server; it and its data are gone when this is dropped.
#[derive(Debug)]
pub struct RabbitMq {
    program: Program,
    port: u16,
    mapper: u16,
    distribution: u16,
}

/// The server that all tests of this process share; started by the first that asks.
pub fn shared() -> &'static RabbitMq {
    static SHARED: OnceLock<RabbitMq> = OnceLock::new();
    SHARED.get_or_init(RabbitMq::start)
}

impl RabbitMq {
    /// With `guest` alone.
    pub fn start() -> Self {
        Self::start_with(&Settings::default())
    }

    /// Starts it and waits until it answers.
    pub fn start_with(settings: &Settings) -> Self {
        on_free_ports(|[port, mapper, distribution]| {
            let program = Program::new("rabbitmq");
            program.write("rabbitmq.conf", &configuration(&program, port, settings));
            program.write("definitions.json", &definitions(settings));
            program.write("enabled_plugins", "[].\n");
            let mut server = Self { program, port, mapper, distribution };
            server.try_start()?;
            Ok(server)
        })
    }

    /// As `guest`: `amqp://guest:guest@127.0.0.1:port/%2f`.
    pub fn url(&self) -> String {
        self.url_of(&Credentials::new("guest", "guest"))
    }

    /// As another user, known to the server or not.
    pub fn url_of(&self, credentials: &Credentials) -> String {
        format!("amqp://{}:{}@{}/%2f", credentials.user, credentials.password, self.address())
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

    /// What `rabbitmqctl` says, which takes a second or two. `set_vm_memory_high_watermark 0.00001` blocks
    /// publishers, `close_all_connections reason` cuts them off.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let mut command = self.command("rabbitmqctl");
        let output = command.arg("--quiet").args(arguments).output().expect("rabbitmqctl can be started");
        let told = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy);
        assert!(output.status.success(), "rabbitmqctl {arguments:?}: {told:?}\n{}", self.log_tail());
        told[0].clone().into_owned()
    }

    /// Ends it and its port mapper with SIGKILL.
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

    /// Lets it go on after [`RabbitMq::freeze`].
    pub fn thaw(&mut self) {
        self.program.thaw();
    }

    fn try_start(&mut self) -> Result<(), String> {
        let server = Path::new(PROGRAMS).join("rabbitmq-server");
        let mut command = self.in_environment(self.program.command(Path::new("/bin/sh")));
        command.args(["-c", SCRIPT, "sh"]).arg(server);
        self.program.launch(command);
        let port = self.port;
        // A frame of a method on channel 0, by which the server introduces itself.
        self.program.wait_until(|| match exchange::ask(port, GREETING)? {
            told if told.starts_with("\x01\0\0") => Ok(()),
            told => Err(format!("{told:?}")),
        })
    }

    fn command(&self, name: &str) -> Command {
        self.in_environment(self.program.command(&Path::new(PROGRAMS).join(name)))
    }

    fn in_environment(&self, mut command: Command) -> Command {
        let folder = self.program.folder();
        command.env("ERL_EPMD_PORT", self.mapper.to_string()).env("ERL_EPMD_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_DIST_PORT", self.distribution.to_string());
        command.env("RABBITMQ_NODENAME", "rabbit@localhost");
        command.env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"));
        command.env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("enabled_plugins"));
        command
            .env("RABBITMQ_MNESIA_BASE", folder.join("data"))
            .env("RABBITMQ_LOG_BASE", folder.join("logs"));
        command.env("RABBITMQ_PID_FILE", folder.join("pid")).env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
        // Its script then becomes the server instead of waiting for it.
        command.env("RUNNING_UNDER_SYSTEMD", "true");
        // Idle schedulers sleep: the machine has others to serve.
        let arguments =
            "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none";
        command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", arguments);
        command
    }
}

fn configuration(program: &Program, port: u16, settings: &Settings) -> String {
    let definitions = program.folder().join("definitions.json");
    let mut text = format!(
        "listeners.tcp.1 = 127.0.0.1:{port}\nload_definitions = {}\nlog.console = true\n\
         log.console.level = warning\nlog.file = false\n",
        definitions.display()
    );
    for line in &settings.lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    text
}

/// The server reads them at every start; users that exist already stay.
fn definitions(settings: &Settings) -> String {
    let guest = User {
        credentials: Credentials::new("guest", "guest"),
        configure: ".*".to_owned(),
        write: ".*".to_owned(),
        read: ".*".to_owned(),
    };
    let all = || [&guest].into_iter().chain(&settings.users);
    let users = all().map(|User { credentials: Credentials { user, password }, .. }| {
        format!(r#"{{"name":{user:?},"password":{password:?},"tags":""}}"#)
    });
    let permissions = all().map(|User { credentials, configure, write, read }| {
        format!(
            r#"{{"user":{:?},"vhost":"/","configure":{configure:?},"write":{write:?},"read":{read:?}}}"#,
            credentials.user
        )
    });
    format!(
        r#"{{"vhosts":[{{"name":"/"}}],"users":[{}],"permissions":[{}]}}"#,
        users.collect::<Vec<_>>().join(","),
        permissions.collect::<Vec<_>>().join(",")
    )
}
