//! The database drivers of the examples in other languages, which tests run.
//!
//! Fetched as anybody who tries the examples does it, by the lock files beside them, so that tests need no network.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::cache::succeed;

/// A copy of the lock file by which the modules were installed; npm's own record of them has another form.
const INSTALLED_BY: &str = "node_modules/.installed-by";

/// Fetches them unless those that the lock files name are there.
pub(super) fn run(root: &Path) -> Result<()> {
    let node = root.join("examples/node");
    if !is_current(&node) {
        eprintln!("missing: the driver of the example for Node (tests run it); installing npm packages");
        install(&node)?;
    }
    // Asks nobody if it is there.
    succeed(Command::new("go").args(["mod", "download"]).current_dir(root.join("examples/go")))?;
    Ok(())
}

fn install(folder: &Path) -> Result<()> {
    let quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    succeed(Command::new("npm").arg("ci").args(quiet).current_dir(folder))?;
    let copied = fs::copy(folder.join("package-lock.json"), folder.join(INSTALLED_BY));
    copied.context("cannot note which modules were installed")?;
    Ok(())
}

fn is_current(folder: &Path) -> bool {
    let wanted = fs::read(folder.join("package-lock.json"));
    let installed = fs::read(folder.join(INSTALLED_BY));
    matches!((wanted, installed), (Ok(wanted), Ok(installed)) if wanted == installed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_files_name_contents_and_no_place() {
        let lock = include_str!("../../../examples/node/package-lock.json");
        assert!(lock.contains("sha512-") && !lock.contains("://"));
        assert!(include_str!("../../../examples/go/go.sum").contains(" h1:"));
    }

    #[test]
    fn another_lock_file_is_not_current() {
        let folder = std::env::temp_dir().join(format!("postrider-drivers-{}", std::process::id()));
        fs::create_dir_all(folder.join("node_modules")).unwrap();
        assert!(!is_current(&folder));
        fs::write(folder.join("package-lock.json"), "new").unwrap();
        fs::write(folder.join(INSTALLED_BY), "old").unwrap();
        assert!(!is_current(&folder));
        fs::write(folder.join(INSTALLED_BY), "new").unwrap();
        assert!(is_current(&folder));
        fs::remove_dir_all(&folder).unwrap();
    }
}
