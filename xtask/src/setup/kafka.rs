//! Kafka, which tests publish to.
//!
//! Debian has no package of it, so its programs come as Maven artifacts. They are run, so they are pinned by
//! their content, all of them together.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::cache::{Kept, succeed};

const VERSION: &str = "4.3.1";
/// Of the lines that `sha256sum` prints about the artifacts, in the order of their names.
const DIGEST: &str = "9b241538730d32e890117f2362eee3ff6ed60f753d73e6a46652b547a64df32f";
/// The release of the plugin that copies the artifacts; Maven would take the newest.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";
const POM: &str = include_str!("kafka/pom.xml");
/// The testkit's `kafka/installation.rs` looks there.
const KEPT: Kept = Kept { folder: "kafka", is_current, fill };

/// Installs it into a cache folder unless this version is there.
pub(super) fn run() -> Result<()> {
    if KEPT.is_there()? {
        return Ok(());
    }
    eprintln!("missing: Kafka {VERSION} (tests publish to it); installing Maven artifacts");
    KEPT.install()
}

fn fill(new: &Path) -> Result<()> {
    fs::write(new.join("pom.xml"), pom())?;
    let arguments = ["--batch-mode", "--quiet", COPY, "-DoutputDirectory=lib", "-DincludeScope=runtime"];
    succeed(Command::new("mvn").args(arguments).current_dir(new))?;
    let digest = "LC_ALL=C; export LC_ALL; sha256sum *.jar | sha256sum";
    let told = succeed(Command::new("sh").args(["-ec", digest]).current_dir(new.join("lib")))?;
    let found = String::from_utf8_lossy(&told);
    let found = found.split_whitespace().next().unwrap_or_default();
    ensure!(found == DIGEST, "these are not the artifacts of Kafka {VERSION} that are meant: {found}");
    Ok(())
}

fn is_current(folder: &Path) -> bool {
    fs::read_to_string(folder.join("pom.xml")).is_ok_and(|there| there == pom())
}

fn pom() -> String {
    POM.replace("VERSION", VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pom_names_one_version_and_no_place() {
        assert_eq!(pom().matches(VERSION).count(), 1);
        // Its only address is the name of its format.
        assert_eq!(pom().matches("://").count(), 1);
        assert!(!pom().contains("VERSION"));
    }
}
