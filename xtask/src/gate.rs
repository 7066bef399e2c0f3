//! Which phases must pass, and which one failed.
//!
//! Quick phases come first, so that a slip of the pen is told in seconds and not after the tests.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, bail};

use crate::{setup, tidy};

/// The variable by which simulations learn how many seeds to try.
const SEEDS_VARIABLE: &str = "POSTRIDER_SEEDS";

/// The binary's features, with those that are not among its defaults: what only a wish turns on is built,
/// linted and tested as well. The same in every phase, so that nothing is built twice.
const FEATURES: &str = "--features=postrider-cli/kafka-tls";

/// How much is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What every change must pass.
    Test,
    /// Also what concerns readers of the documentation and users of the dependencies.
    Ci,
}

struct Phase {
    name: &'static str,
    action: Action,
}

enum Action {
    Setup,
    Tidy,
    Cargo { arguments: &'static [&'static str], variables: Vec<(&'static str, String)> },
}

/// Runs the phases in order and stops at the first that fails.
pub(crate) fn run(root: &Path, extent: Extent, seeds: Option<u32>) -> Result<()> {
    let started = Instant::now();
    let phases = phases(extent, seeds, deny_is_there());
    for (index, phase) in phases.iter().enumerate() {
        eprintln!("━━ [{}/{}] {} ({} so far)", index + 1, phases.len(), phase.name, clock(started.elapsed()));
        phase.action.run(root).with_context(|| {
            format!("phase `{}` failed after {} in all", phase.name, clock(started.elapsed()))
        })?;
    }
    let names: Vec<_> = phases.iter().map(|phase| phase.name).collect();
    eprintln!("━━ passed in {}: {}", clock(started.elapsed()), names.join(", "));
    Ok(())
}

fn phases(extent: Extent, seeds: Option<u32>, deny: bool) -> Vec<Phase> {
    let cargo = |name, arguments| Phase { name, action: Action::Cargo { arguments, variables: Vec::new() } };
    let mut phases = vec![
        Phase { name: "setup", action: Action::Setup },
        cargo("format", &["fmt", "--all", "--check"]),
        Phase { name: "tidy", action: Action::Tidy },
        cargo("build", &["build", "--workspace", FEATURES, "--all-targets"]),
        cargo("clippy", &["clippy", "--workspace", FEATURES, "--all-targets", "--", "-D", "warnings"]),
        Phase {
            name: "tests",
            action: Action::Cargo {
                // The examples in the documentation too: alone they would need other features of the
                // dependencies, which Cargo would build again (80 seconds). One run shows all failures.
                arguments: &["test", "--workspace", FEATURES, "--no-fail-fast"],
                variables: seeds.map(|seeds| (SEEDS_VARIABLE, seeds.to_string())).into_iter().collect(),
            },
        },
    ];
    if extent == Extent::Ci {
        phases.push(Phase {
            name: "documentation",
            action: Action::Cargo {
                arguments: &["doc", "--workspace", FEATURES, "--no-deps"],
                variables: vec![("RUSTDOCFLAGS", "-D warnings".to_owned())],
            },
        });
        if deny {
            phases.push(cargo("dependencies", &["deny", "check"]));
        }
    }
    phases
}

impl Action {
    fn run(&self, root: &Path) -> Result<()> {
        match self {
            Self::Setup => setup::run(root),
            Self::Tidy => tidy::run(root),
            Self::Cargo { arguments, variables } => {
                let variables = variables.iter().map(|(name, value)| (*name, value.as_str()));
                let mut command = Command::new(cargo());
                command.args(*arguments).envs(variables).current_dir(root);
                let status = command.status().context("cannot start cargo")?;
                if !status.success() {
                    bail!("`cargo {}`: {status}", arguments.join(" "));
                }
                Ok(())
            }
        }
    }
}

/// The cargo that started this program, so that every phase uses one toolchain.
pub(crate) fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn deny_is_there() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| fs::exists(folder.join("cargo-deny")).unwrap_or(false))
}

fn clock(elapsed: Duration) -> String {
    format!("{}:{:02}", elapsed.as_secs() / 60, elapsed.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(extent: Extent, deny: bool) -> Vec<&'static str> {
        phases(extent, None, deny).iter().map(|phase| phase.name).collect()
    }

    #[test]
    fn ci_is_test_and_more() {
        let test = names(Extent::Test, true);
        let ci = names(Extent::Ci, true);
        assert_eq!(ci[..test.len()], test);
        assert_eq!(ci[test.len()..], ["documentation", "dependencies"]);
        assert_eq!(names(Extent::Ci, false).last(), Some(&"documentation"));
    }

    #[test]
    fn seeds_reach_the_tests_and_only_them() {
        let given: Vec<_> = phases(Extent::Ci, Some(9), true)
            .into_iter()
            .filter_map(|phase| match phase.action {
                Action::Cargo { variables, .. } if variables.contains(&(SEEDS_VARIABLE, "9".to_owned())) => {
                    Some(phase.name)
                }
                _ => None,
            })
            .collect();
        assert_eq!(given, ["tests"]);
    }

    #[test]
    fn all_phases_that_build_do_so_with_the_same_features() {
        for phase in phases(Extent::Ci, None, false) {
            let Action::Cargo { arguments, .. } = phase.action else { continue };
            let builds = arguments[0] != "fmt";
            assert_eq!(arguments.contains(&FEATURES), builds, "{}", phase.name);
        }
    }

    #[test]
    fn elapsed_time_is_minutes_and_seconds() {
        assert_eq!(clock(Duration::from_secs(62)), "1:02");
    }
}
