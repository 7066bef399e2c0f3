//! Asking before something is lost.

use std::io::{self, BufRead, IsTerminal, Write};

use postrider_core::{Error, Result};

use crate::args::ConsentArgs;
use crate::text;

/// Returns if the user agrees to what `question` says: by `--yes`, or by an answer on the terminal.
pub(crate) fn consent(args: &ConsentArgs, question: &str) -> Result<()> {
    if args.yes {
        return Ok(());
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Error::invalid(format!(
            "{}? There is no terminal to ask on: add --yes to agree",
            text::escape(question)
        )));
    }
    let mut stderr = io::stderr().lock();
    let mut answer = String::new();
    write!(stderr, "{}? [y/N] ", text::escape(question))
        .and_then(|()| stderr.flush())
        .and_then(|()| io::stdin().lock().read_line(&mut answer))
        .map_err(|error| {
            Error::invalid("cannot ask on this terminal: add --yes to agree").with_source(error)
        })?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        Ok(())
    } else {
        Err(Error::invalid("not confirmed: nothing was changed"))
    }
}
