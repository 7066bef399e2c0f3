//! `postrider completions SHELL`.

use clap::CommandFactory as _;
use postrider_core::Result;

use crate::args::Args;
use crate::output;

/// Prints the script.
pub(crate) fn run(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "postrider", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
