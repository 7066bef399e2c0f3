//! What a machine must have before anything builds.
//!
//! Quick and silent about what is there; what is missing is installed with its reason. Nothing here is
//! optional: a test that cannot run for want of a tool would otherwise pass without having tested.

mod cache;
mod drivers;
mod kafka;
mod postgresql_18;
mod receivers;
mod services;

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

struct Tool {
    /// A name to look for on PATH, or the absolute path of a file.
    program: &'static str,
    package: &'static str,
    reason: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool { program: "cc", package: "build-essential", reason: "SQLite is compiled from C" },
    Tool { program: "make", package: "build-essential", reason: "librdkafka is compiled from C" },
    Tool {
        program: "/usr/include/openssl/ssl.h",
        package: "libssl-dev",
        reason: "librdkafka speaks TLS through OpenSSL, with the feature kafka-tls",
    },
    Tool { program: "pkg-config", package: "pkg-config", reason: "OpenSSL is found by it" },
    Tool { program: "git", package: "git", reason: "commits and releases" },
    Tool { program: "strace", package: "strace", reason: "tests inject disk faults into system calls" },
    Tool {
        program: "/usr/lib/postgresql/15/bin/postgres",
        package: "postgresql-15",
        reason: "tests run against the oldest supported release",
    },
    Tool {
        program: "/usr/include/postgresql/libpq-fe.h",
        package: "libpq-dev",
        reason: "diesel connects through libpq, and tests emit through diesel",
    },
    Tool {
        program: "/usr/sbin/pgbouncer",
        package: "pgbouncer",
        reason: "tests reach PostgreSQL through a pooler",
    },
    Tool { program: "setpriv", package: "util-linux", reason: "PostgreSQL refuses to run as root" },
    Tool { program: "ipcrm", package: "util-linux", reason: "a killed PostgreSQL leaves shared memory" },
    Tool { program: "node", package: "nodejs", reason: "npm runs on it" },
    Tool { program: "npm", package: "npm", reason: "PostgreSQL 18 comes as an npm package" },
    Tool {
        program: "/usr/sbin/nats-server",
        package: "nats-server",
        reason: "tests publish to NATS JetStream",
    },
    Tool {
        program: "/usr/bin/redis-server",
        package: "redis-server",
        reason: "tests publish to Redis Streams",
    },
    Tool {
        program: "/usr/lib/rabbitmq/bin/rabbitmq-server",
        package: "rabbitmq-server",
        reason: "tests publish to RabbitMQ",
    },
    Tool { program: "java", package: "openjdk-17-jre-headless", reason: "Kafka runs on it" },
    Tool {
        program: "javac",
        package: "openjdk-17-jdk-headless",
        reason: "a producer and a receiver in Java are compiled with it",
    },
    Tool { program: "mvn", package: "maven", reason: "Kafka comes as Maven artifacts" },
    Tool {
        program: "/usr/lib/python3/dist-packages/psycopg/__init__.py",
        package: "python3-psycopg",
        reason: "the example in Python emits through it",
    },
    Tool {
        program: "/usr/lib/python3.11/ensurepip/__init__.py",
        package: "python3-venv",
        reason: "libraries of receivers in Python have a folder of their own",
    },
    Tool {
        program: "/usr/bin/pip3",
        package: "python3-pip",
        reason: "libraries for the producers in Python come by it",
    },
    Tool { program: "go", package: "golang-go", reason: "the example in Go is built with it" },
];

/// Debian's package of PostgreSQL makes a cluster and starts it, on the port that everybody tries first, unless a
/// file here says otherwise. Tests start servers of their own, and nothing else is to run.
const NO_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/postrider.conf";

/// While this file says no, installing a package starts nothing.
const POLICY: &str = "/usr/sbin/policy-rc.d";

struct Component {
    subcommand: &'static str,
    name: &'static str,
    reason: &'static str,
}

const COMPONENTS: &[Component] = &[
    Component { subcommand: "fmt", name: "rustfmt", reason: "the format is checked" },
    Component { subcommand: "clippy", name: "clippy", reason: "lints are checked" },
];

/// Installs what is missing for the workspace in `root`.
pub(crate) fn run(root: &Path) -> Result<()> {
    let missing: Vec<&Tool> = TOOLS.iter().filter(|tool| !on_path(tool.program)).collect();
    for tool in &missing {
        eprintln!("missing: {} ({}); installing package {}", tool.program, tool.reason, tool.package);
    }
    if !missing.is_empty() {
        install(&missing)?;
    }
    for component in COMPONENTS {
        if !answers(component.subcommand) {
            eprintln!("missing: cargo {} ({})", component.subcommand, component.reason);
            add_component(component)?;
        }
    }
    postgresql_18::run()?;
    kafka::run()?;
    drivers::run(root)?;
    receivers::run(root)?;
    eprintln!("this machine is ready: {}", present());
    Ok(())
}

fn present() -> String {
    let tools = packages(&TOOLS.iter().collect::<Vec<_>>());
    let others = COMPONENTS.iter().map(|part| part.name).chain(["postgresql-18", "kafka"]);
    tools.into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

/// An absolute path stays what it is when it is joined to a folder of PATH.
fn on_path(program: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// Each once, though several programs may come from it.
fn packages(tools: &[&Tool]) -> Vec<&'static str> {
    let packages: BTreeSet<_> = tools.iter().map(|tool| tool.package).collect();
    packages.into_iter().collect()
}

fn install(missing: &[&Tool]) -> Result<()> {
    let packages = packages(missing);
    if !on_path("apt-get") {
        bail!("this machine has no apt-get: install {} by its own means", packages.join(" "));
    }
    apt_get(&["update", "--quiet"])?;
    let mut arguments = vec!["install", "--quiet", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    let absent = services::absent();
    without_services(|| without_cluster(|| apt_get(&arguments)))?;
    services::disable(&absent)?;
    match missing.iter().find(|tool| !on_path(tool.program)) {
        Some(tool) => bail!("package {} was installed, but there is no {}", tool.package, tool.program),
        None => Ok(()),
    }
}

/// Only for this one installation: what others install later is not our affair.
fn without_cluster(install: impl FnOnce() -> Result<()>) -> Result<()> {
    let write = r#"mkdir -p "${1%/*}" && echo 'create_main_cluster = false' > "$1""#;
    as_root(&["sh", "-c", write, "sh", NO_CLUSTER])?;
    let installed = install();
    as_root(&["rm", "-f", NO_CLUSTER])?;
    installed
}

/// Likewise: a policy that is there stays.
fn without_services(install: impl FnOnce() -> Result<()>) -> Result<()> {
    if Path::new(POLICY).exists() {
        return install();
    }
    let write = r#"printf '#!/bin/sh\nexit 101\n' > "$1" && chmod 755 "$1""#;
    as_root(&["sh", "-c", write, "sh", POLICY])?;
    let installed = install();
    as_root(&["rm", "-f", POLICY])?;
    installed
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut words = vec!["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];
    words.extend(arguments);
    as_root(&words)
}

fn as_root(words: &[&str]) -> Result<()> {
    let mut words = words.to_vec();
    if !is_root()? {
        if !on_path("sudo") {
            bail!("installing needs root: run `{}` as root", words.join(" "));
        }
        words.insert(0, "sudo");
    }
    let status = Command::new(words[0]).args(&words[1..]).status();
    let status = status.with_context(|| format!("cannot start {}", words[0]))?;
    if !status.success() {
        bail!("`{}` failed: {status}", words.join(" "));
    }
    Ok(())
}

fn is_root() -> Result<bool> {
    let output = Command::new("id").arg("-u").output().context("cannot ask `id` who this user is")?;
    Ok(output.stdout.trim_ascii() == b"0")
}

/// A subcommand may be on PATH as rustup's stand-in without its component being there, so it is asked.
fn answers(subcommand: &str) -> bool {
    let mut command = Command::new(crate::gate::cargo());
    command.args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn add_component(component: &Component) -> Result<()> {
    if !on_path("rustup") {
        bail!(
            "`cargo {}` is missing and there is no rustup: add the component {} to this toolchain",
            component.subcommand,
            component.name
        );
    }
    let status = Command::new("rustup").args(["component", "add", component.name]).status()?;
    if !status.success() {
        bail!("`rustup component add {}` failed: {status}", component.name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name_or_by_path() {
        assert!(on_path("sh") && on_path("/bin/sh"));
        assert!(!on_path("no-such-program") && !on_path("/bin/no-such-program"));
    }

    #[test]
    fn a_package_is_installed_once() {
        let tool = |program| Tool { program, package: "util-linux", reason: "" };
        assert_eq!(packages(&[&tool("setpriv"), &tool("ipcrm")]), ["util-linux"]);
    }
}
