//! Progress of long work, on stderr if that is a terminal.

use std::fmt;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::output::Output;
use crate::text;

/// A bar that vanishes when the work is done.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// For `total` things, or for an unknown number of them.
    pub(crate) fn new(output: &Output, total: Option<u64>) -> Self {
        // The draw target hides itself when stderr is no terminal.
        let target =
            if output.is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(total, target);
        let template = match total {
            Some(_) => "{wide_bar} {human_pos} of {human_len}  {rate}  {eta} left",
            None => "{spinner} {human_pos}  {rate}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.with_key("rate", rate));
        }
        Self(bar)
    }

    /// `count` more are done.
    pub(crate) fn advance(&self, count: u64) {
        self.0.inc(count);
    }
}

/// How fast it goes, without decimals, which would tell no reader anything.
fn rate(state: &ProgressState, writer: &mut dyn fmt::Write) {
    let _ = write!(writer, "{}/s", text::count(state.per_sec() as u64));
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
