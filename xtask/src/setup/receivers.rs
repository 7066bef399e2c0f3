//! The libraries by which receivers read what we send, which tests run: `tests/receivers`.
//!
//! Fetched by lists that name their contents: for Python with hashes into a folder of its own, for Node by a
//! lock file, for Java as Maven artifacts into the cache.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cache::{Kept, succeed};

/// A copy of the list by which something was installed.
const INSTALLED_BY: &str = ".installed-by";
/// Debian's, which has what makes such folders; another one that comes first on the path need not.
const PYTHON: &str = "/usr/bin/python3";

const POM: &str = include_str!("../../../tests/receivers/java/pom.xml");
/// Of the lines that `sha256sum` prints about the artifacts, in the order of their names.
const DIGEST: &str = "58231cb9b2e23b3330d92c44a08aed16b817e7c19048dfb9038ac604a3e18b46";
/// The release of the plugin that copies the artifacts; Maven would take the newest.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";
/// The tests of the sinks look there.
const KEPT: Kept = Kept { folder: "receivers", is_current, fill };

/// Fetches them unless those that the lists name are there.
pub(super) fn run(root: &Path) -> Result<()> {
    let receivers = root.join("tests/receivers");
    unless_installed(
        &receivers.join("python"),
        "requirements.txt",
        ".venv",
        "Python packages",
        install_python,
    )?;
    unless_installed(
        &receivers.join("node"),
        "package-lock.json",
        "node_modules",
        "npm packages",
        install_node,
    )?;
    if !KEPT.is_there()? {
        eprintln!(
            "missing: libraries of receivers in Java (tests read with them); installing Maven artifacts"
        );
        KEPT.install()?;
    }
    Ok(())
}

fn unless_installed(
    folder: &Path,
    list: &str,
    place: &str,
    what: &str,
    install: fn(&Path) -> Result<()>,
) -> Result<()> {
    let (list, noted) = (folder.join(list), folder.join(place).join(INSTALLED_BY));
    if is_same(&list, &noted) {
        return Ok(());
    }
    eprintln!("missing: libraries of receivers (tests read with them); installing {what}");
    install(folder)?;
    fs::copy(&list, &noted).context("cannot note what was installed")?;
    Ok(())
}

fn is_same(list: &Path, noted: &Path) -> bool {
    matches!((fs::read(list), fs::read(noted)), (Ok(wanted), Ok(installed)) if wanted == installed)
}

fn install_python(folder: &Path) -> Result<()> {
    succeed(Command::new(PYTHON).args(["-m", "venv", "--clear", ".venv"]).current_dir(folder))?;
    let arguments =
        ["install", "--quiet", "--require-hashes", "--only-binary", ":all:", "-r", "requirements.txt"];
    succeed(Command::new(folder.join(".venv/bin/pip")).args(arguments).current_dir(folder))?;
    Ok(())
}

fn install_node(folder: &Path) -> Result<()> {
    let quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    succeed(Command::new("npm").arg("ci").args(quiet).current_dir(folder))?;
    Ok(())
}

fn fill(new: &Path) -> Result<()> {
    fs::write(new.join("pom.xml"), POM)?;
    let arguments = ["--batch-mode", "--quiet", COPY, "-DoutputDirectory=lib", "-DincludeScope=runtime"];
    succeed(Command::new("mvn").args(arguments).current_dir(new))?;
    let digest = "LC_ALL=C; export LC_ALL; sha256sum *.jar | sha256sum";
    let told = succeed(Command::new("sh").args(["-ec", digest]).current_dir(new.join("lib")))?;
    let found = String::from_utf8_lossy(&told);
    let found = found.split_whitespace().next().unwrap_or_default();
    ensure!(found == DIGEST, "these are not the artifacts for receivers in Java that are meant: {found}");
    Ok(())
}

fn is_current(folder: &Path) -> bool {
    fs::read_to_string(folder.join("pom.xml")).is_ok_and(|there| there == POM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_contents() {
        let lock = include_str!("../../../tests/receivers/node/package-lock.json");
        assert!(lock.contains("sha512-") && !lock.contains("\"resolved\""));
        let python = include_str!("../../../tests/receivers/python/requirements.txt");
        assert_eq!(
            python.matches("==").count(),
            python.lines().filter(|line| line.contains("== ") || line.contains("==")).count()
        );
        assert!(python.contains("--hash=sha256:"));
        assert_eq!(DIGEST.len(), 64);
    }
}
