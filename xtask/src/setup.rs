//! What a machine must have before anything builds.
//!
//! Quick and silent about what is there; what is missing is installed with its reason. Nothing here is
//! optional: a test that cannot run for want of a tool would otherwise pass without having tested.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

struct Tool {
    program: &'static str,
    package: &'static str,
    reason: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool { program: "cc", package: "build-essential", reason: "SQLite is compiled from C" },
    Tool { program: "git", package: "git", reason: "commits and releases" },
    Tool { program: "strace", package: "strace", reason: "tests inject disk faults into system calls" },
];

struct Component {
    subcommand: &'static str,
    name: &'static str,
    reason: &'static str,
}

const COMPONENTS: &[Component] = &[
    Component { subcommand: "fmt", name: "rustfmt", reason: "the format is checked" },
    Component { subcommand: "clippy", name: "clippy", reason: "lints are checked" },
];

/// Installs what is missing.
pub(crate) fn run() -> Result<()> {
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
    eprintln!("this machine is ready: {}", present());
    Ok(())
}

fn present() -> String {
    let tools = TOOLS.iter().map(|tool| tool.program);
    tools.chain(COMPONENTS.iter().map(|part| part.name)).collect::<Vec<_>>().join(", ")
}

fn on_path(program: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

fn install(missing: &[&Tool]) -> Result<()> {
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    if !on_path("apt-get") {
        bail!("this machine has no apt-get: install {} by its own means", packages.join(" "));
    }
    apt_get(&["update", "--quiet"])?;
    let mut arguments = vec!["install", "--quiet", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    apt_get(&arguments)?;
    match missing.iter().find(|tool| !on_path(tool.program)) {
        Some(tool) => bail!("package {} was installed, but {} is not on PATH", tool.package, tool.program),
        None => Ok(()),
    }
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut words = vec!["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];
    words.extend(arguments);
    if !is_root()? {
        if !on_path("sudo") {
            bail!("installing needs root: run `apt-get {}` as root", arguments.join(" "));
        }
        words.insert(0, "sudo");
    }
    let status = Command::new(words[0]).args(&words[1..]).status().context("cannot start apt-get")?;
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
