//! One node, which is broker and controller.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::wire::{self, Metadata};
use super::{Credentials, Settings, Tls};
use crate::brokers::program::Program;
use crate::throwaway::user::{CACHE_OF_ROOT, cache};

const JAVA: &str = "/usr/bin/java";
/// Within a cache folder; `cargo xtask setup` puts it there.
const ARTIFACTS: &str = "kafka/lib";
/// Quick to start rather than quick: no optimising compiler, no thread that collects garbage, little memory.
const MACHINE: [&str; 5] = [
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];
/// All clusters have this name; it is sixteen bytes in base 64.
const CLUSTER: &str = "cG9zdHJpZGVyLXRlc3Rrag";

/// A key with its certificate, and whom to trust.
const KEYSTORE: &str = "keystore.pem";
const TRUSTSTORE: &str = "truststore.pem";
const SCRAM: [&str; 2] = ["SCRAM-SHA-256", "SCRAM-SHA-512"];

/// Where a node listens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    clients: u16,
    /// For other brokers, and for our own questions, which have no credentials.
    brokers: u16,
    controllers: u16,
}

impl Ports {
    /// Of exactly three numbers.
    pub(super) fn of(numbers: &[u16]) -> Self {
        Self { clients: numbers[0], brokers: numbers[1], controllers: numbers[2] }
    }
}

#[derive(Debug)]
pub(super) struct Node {
    program: Program,
    ports: Ports,
    artifacts: PathBuf,
}

impl Node {
    /// Formats its folder.
    pub(super) fn new(index: usize, all: &[Ports], settings: &Settings) -> Self {
        let candidates = [cache().join(ARTIFACTS), Path::new(CACHE_OF_ROOT).join(ARTIFACTS)];
        let artifacts = candidates.iter().find(|folder| folder.is_dir());
        let artifacts =
            artifacts.unwrap_or_else(|| panic!("Kafka is missing: run `cargo xtask setup`: {candidates:?}"));
        let program = Program::new("kafka");
        program.write("server.properties", &properties(&program, index, all, settings));
        if let Some(tls) = &settings.tls {
            program.write(KEYSTORE, &format!("{}{}", tls.key, tls.certificate));
            program.write(TRUSTSTORE, tls.clients.as_deref().unwrap_or_default());
        }
        let node = Self { program, ports: all[index], artifacts: artifacts.clone() };
        let mut command = node.java("kafka.tools.StorageTool");
        command.args(["format", "--cluster-id", CLUSTER, "--config", "server.properties"]);
        if let (Some(_), Some(Credentials { user, password })) = (&settings.tls, &settings.credentials) {
            for mechanism in SCRAM {
                command.arg("--add-scram").arg(format!("{mechanism}=[name={user},password={password}]"));
            }
        }
        let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let told = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
        assert!(output.status.success(), "{command:?}: {}\n{told}", output.status);
        node
    }

    pub(super) fn port(&self) -> u16 {
        self.ports.clients
    }

    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    pub(super) fn program_mut(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Does not wait: nodes need each other to become ready.
    pub(super) fn launch(&mut self) {
        let mut command = self.java("kafka.Kafka");
        command.arg("server.properties");
        self.program.launch(command);
    }

    pub(super) fn wait_until(&mut self, condition: impl Fn(&Metadata) -> bool) -> Result<(), String> {
        let port = self.ports.brokers;
        self.program.wait_until(|| match wire::metadata(port, None, false)? {
            told if condition(&told) => Ok(()),
            told => Err(format!("{told:?}")),
        })
    }

    pub(super) fn metadata(&self, topic: &str, create: bool) -> Result<Metadata, String> {
        wire::metadata(self.ports.brokers, Some(topic), create)
    }

    fn java(&self, class: &str) -> Command {
        let mut command = self.program.command(Path::new(JAVA));
        command.args(MACHINE).arg("-cp").arg(self.artifacts.join("*")).arg(class);
        command
    }
}

fn properties(program: &Program, index: usize, all: &[Ports], settings: &Settings) -> String {
    let Ports { clients, brokers, controllers } = all[index];
    let count = all.len();
    let voters: Vec<String> =
        (1..).zip(all).map(|(id, ports)| format!("{id}@127.0.0.1:{}", ports.controllers)).collect();
    let protocol = match (&settings.tls, &settings.credentials) {
        (None, None) => "PLAINTEXT",
        (None, Some(_)) => "SASL_PLAINTEXT",
        (Some(_), None) => "SSL",
        (Some(_), Some(_)) => "SASL_SSL",
    };
    let listeners = format!("CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{brokers}");
    let found_at =
        settings.advertised.map_or_else(|| format!("127.0.0.1:{clients}"), |proxy| proxy.to_string());
    let advertised = format!("CLIENTS://{found_at},BROKERS://127.0.0.1:{brokers}");
    let mut text = format!(
        "process.roles=broker,controller\nnode.id={}\ncontroller.quorum.voters={}\n\
         listeners={listeners},CONTROLLERS://127.0.0.1:{controllers}\nadvertised.listeners={advertised}\n\
         listener.security.protocol.map=CLIENTS:{protocol},BROKERS:PLAINTEXT,CONTROLLERS:PLAINTEXT\n\
         controller.listener.names=CONTROLLERS\ninter.broker.listener.name=BROKERS\nlog.dirs={}\n\
         num.partitions=3\ndefault.replication.factor={count}\nmin.insync.replicas={insync}\n\
         offsets.topic.num.partitions=1\noffsets.topic.replication.factor={count}\n\
         transaction.state.log.num.partitions=1\ntransaction.state.log.replication.factor={count}\n\
         transaction.state.log.min.isr={insync}\ngroup.initial.rebalance.delay.ms=0\n\
         num.network.threads=2\nnum.io.threads=2\nlog.cleaner.dedupe.buffer.size=2097152\n",
        index + 1,
        voters.join(","),
        program.folder().join("data").display(),
        insync = count.min(2),
    );
    write_security(&mut text, settings);
    for line in &settings.lines {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Writing to a string cannot fail.
fn write_security(text: &mut String, settings: &Settings) {
    const LISTENER: &str = "listener.name.clients";
    const MODULES: &str = "org.apache.kafka.common.security";
    match (&settings.credentials, &settings.tls) {
        (None, _) => {}
        (Some(Credentials { user, password }), None) => {
            let _ = writeln!(
                text,
                "sasl.enabled.mechanisms=PLAIN\n{LISTENER}.plain.sasl.jaas.config=\
                 {MODULES}.plain.PlainLoginModule required user_{user}=\"{password}\";"
            );
        }
        // Who may log in was told when the folder was formatted.
        (Some(_), Some(_)) => {
            let _ = writeln!(text, "sasl.enabled.mechanisms={}", SCRAM.join(","));
            for mechanism in SCRAM.map(str::to_lowercase) {
                let module = format!("{MODULES}.scram.ScramLoginModule required;");
                let _ = writeln!(text, "{LISTENER}.{mechanism}.sasl.jaas.config={module}");
            }
        }
    }
    if let Some(Tls { clients, .. }) = &settings.tls {
        let _ =
            writeln!(text, "{LISTENER}.ssl.keystore.type=PEM\n{LISTENER}.ssl.keystore.location={KEYSTORE}");
        if clients.is_some() {
            let _ = writeln!(
                text,
                "{LISTENER}.ssl.truststore.type=PEM\n{LISTENER}.ssl.truststore.location={TRUSTSTORE}\n\
                 {LISTENER}.ssl.client.auth=required"
            );
        }
    }
}
