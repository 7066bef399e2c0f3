//! The database drivers of the programs in other languages that tests run: the examples, and the producers in
//! `tests/producers`.
//!
//! Fetched as anybody who tries them does it, by the lock files beside them, so that tests need no network.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cache::succeed;

/// Libraries that are installed beside the program that needs them.
struct Drivers {
    /// Where the program is.
    folder: &'static str,
    /// The file that names them and their content.
    lock: &'static str,
    /// What they are installed into.
    into: &'static str,
    install: fn(&Path) -> Result<()>,
}

const DRIVERS: &[Drivers] = &[
    Drivers { folder: "examples/node", lock: "package-lock.json", into: "node_modules", install: npm },
    Drivers { folder: "tests/producers/node", lock: "package-lock.json", into: "node_modules", install: npm },
    Drivers { folder: "tests/producers/python", lock: "requirements.txt", into: "packages", install: pip },
    Drivers { folder: "tests/producers/java", lock: "pom.xml", into: "lib", install: maven },
];

/// A copy of the lock file by which they were installed, among them.
const INSTALLED_BY: &str = ".installed-by";
/// The release of the plugin that copies the artifacts; Maven would take the newest.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";
/// Of the driver that `pom.xml` names.
const JDBC_DIGEST: &str = "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7";

/// Fetches them unless those that the lock files name are there.
pub(super) fn run(root: &Path) -> Result<()> {
    for drivers in DRIVERS {
        let folder = root.join(drivers.folder);
        if !drivers.is_current(&folder) {
            eprintln!("missing: the drivers of {} (tests run it); installing them", drivers.folder);
            (drivers.install)(&folder)?;
            let copied = fs::copy(folder.join(drivers.lock), folder.join(drivers.into).join(INSTALLED_BY));
            copied.context("cannot note which drivers were installed")?;
        }
    }
    // Asks no server if the modules are there.
    for folder in ["examples/go", "tests/producers/go"] {
        succeed(Command::new("go").args(["mod", "download"]).current_dir(root.join(folder)))?;
    }
    // Go compiles libraries once, which takes longer than the test that needs them.
    let build = ["build", "-o", "/dev/null", "."];
    succeed(
        Command::new("go").args(build).env("CGO_ENABLED", "0").current_dir(root.join("tests/producers/go")),
    )?;
    Ok(())
}

impl Drivers {
    fn is_current(&self, folder: &Path) -> bool {
        let wanted = fs::read(folder.join(self.lock));
        let installed = fs::read(folder.join(self.into).join(INSTALLED_BY));
        matches!((wanted, installed), (Ok(wanted), Ok(installed)) if wanted == installed)
    }
}

fn npm(folder: &Path) -> Result<()> {
    let quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    succeed(Command::new("npm").arg("ci").args(quiet).current_dir(folder)).map(drop)
}

/// By Debian's Python, which runs them too.
fn pip(folder: &Path) -> Result<()> {
    let packages = folder.join("packages");
    if packages.exists() {
        fs::remove_dir_all(&packages)?;
    }
    let exact = ["--no-deps", "--require-hashes", "--only-binary", ":all:"];
    let mut install = Command::new("/usr/bin/python3");
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--root-user-action=ignore",
    ]);
    install.args(exact).args(["--target", "packages", "--requirement", "requirements.txt"]);
    succeed(install.current_dir(folder)).map(drop)
}

fn maven(folder: &Path) -> Result<()> {
    let arguments = ["--batch-mode", "--quiet", COPY, "-DoutputDirectory=lib", "-DexcludeTransitive=true"];
    succeed(Command::new("mvn").args(arguments).current_dir(folder))?;
    let told = succeed(Command::new("sh").args(["-ec", "sha256sum *.jar"]).current_dir(folder.join("lib")))?;
    let found = String::from_utf8_lossy(&told);
    let found: Vec<&str> = found.lines().filter_map(|line| line.split_whitespace().next()).collect();
    ensure!(found == [JDBC_DIGEST], "this is not the driver that is meant: {found:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_files_name_contents_and_no_place() {
        for lock in [
            include_str!("../../../examples/node/package-lock.json"),
            include_str!("../../../tests/producers/node/package-lock.json"),
        ] {
            assert!(lock.contains("sha512-") && !lock.contains("://"));
        }
        for sums in
            [include_str!("../../../examples/go/go.sum"), include_str!("../../../tests/producers/go/go.sum")]
        {
            assert!(sums.contains(" h1:"));
        }
        let pip = include_str!("../../../tests/producers/python/requirements.txt");
        assert!(pip.contains("--hash=sha256:") && !pip.contains("://"));
        // Its only address is the name of its format.
        assert_eq!(include_str!("../../../tests/producers/java/pom.xml").matches("://").count(), 1);
    }

    #[test]
    fn another_lock_file_is_not_current() {
        let folder = std::env::temp_dir().join(format!("postrider-drivers-{}", std::process::id()));
        let drivers = &DRIVERS[0];
        fs::create_dir_all(folder.join("node_modules")).unwrap();
        assert!(!drivers.is_current(&folder));
        fs::write(folder.join("package-lock.json"), "new").unwrap();
        fs::write(folder.join("node_modules").join(INSTALLED_BY), "old").unwrap();
        assert!(!drivers.is_current(&folder));
        fs::write(folder.join("node_modules").join(INSTALLED_BY), "new").unwrap();
        assert!(drivers.is_current(&folder));
        fs::remove_dir_all(&folder).unwrap();
    }
}
