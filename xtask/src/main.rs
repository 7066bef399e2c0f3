//! The repository's own commands, so that a check runs the same at home and in CI.
//!
//! | file | question it answers |
//! |---|---|
//! | `setup` | what must a machine have before anything builds? |
//! | `gate` | which phases must pass, and which one failed? |
//! | `tidy` | does the repository keep its own rules? |

mod gate;
mod setup;
mod tidy;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::gate::Extent;

const USAGE: &str = "\
usage: cargo xtask <command>

  setup             install what the build and the tests need (Debian, as root or with sudo)
  test [--seeds N]  setup, then every check that a change must pass; N seeds per simulation
  ci [--seeds N]    test, then the documentation and, if cargo-deny is there, the dependencies
  tidy              only the rules that the repository keeps about itself
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["setup"] => setup::run(&root()?),
        ["test", options @ ..] => gate::run(&root()?, Extent::Test, seeds(options)?),
        ["ci", options @ ..] => gate::run(&root()?, Extent::Ci, seeds(options)?),
        ["tidy"] => tidy::run(&root()?),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        [] => bail!("no command given\n\n{USAGE}"),
        [command, ..] => bail!("`{command}` is no command, or has arguments it does not take\n\n{USAGE}"),
    }
}

/// The number of seeds, if one was given.
fn seeds(options: &[&str]) -> Result<Option<u32>> {
    let text = match options {
        [] => return Ok(None),
        ["--seeds", text] => text,
        [option] if option.starts_with("--seeds=") => &option["--seeds=".len()..],
        _ => bail!("`{}` is no option\n\n{USAGE}", options.join(" ")),
    };
    match text.parse() {
        Ok(seeds) if seeds > 0 => Ok(Some(seeds)),
        _ => bail!("--seeds {text}: use a number from 1 on"),
    }
}

/// The workspace that this program was started from by cargo.
fn root() -> Result<PathBuf> {
    let own =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    own.parent().map(Path::to_path_buf).context("xtask lies in the root of its workspace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_positive_number() {
        assert_eq!(seeds(&[]).unwrap(), None);
        assert_eq!(seeds(&["--seeds", "7"]).unwrap(), Some(7));
        assert_eq!(seeds(&["--seeds=7"]).unwrap(), Some(7));
        for bad in [&["--seeds"][..], &["--seeds", "0"], &["--seeds", "x"], &["--seed", "1"]] {
            assert!(seeds(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_unknown_command_is_refused_with_those_that_exist() {
        let error = run(&["tset".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("tset") && error.contains("usage:"), "{error}");
    }
}
