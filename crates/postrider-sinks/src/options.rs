//! What every kind of sink says of itself before it is opened.

use std::fmt;

use postrider_core::{Result, Sink};

/// What a kind of sink needs to know, before anything is opened. Shown without secrets, as a text that can be
/// given to `--sink` wherever one can say it all.
pub trait SinkOptions: fmt::Display + Sized + Send + Sync {
    /// What is opened.
    type Sink: Sink;

    /// How texts of this kind begin: the whole text `stdout`, or what stands before the first `:`.
    const SCHEMES: &'static [&'static str];

    /// Reads the text form, scheme and all. It touches nothing, and an error repeats no password.
    fn from_text(text: &str) -> Result<Self>;

    /// Makes the sink. Secrets are read now.
    fn open(&self) -> impl Future<Output = Result<Self::Sink>> + Send;

    /// Looks whether the receiver can be reached and lets us send, and changes nothing. Gives sentences, without a full
    /// stop, of what was found and of what opening and sending would create.
    fn check(&self) -> impl Future<Output = Result<Vec<String>>> + Send;

    /// Whether a sink that was opened by these options has to be opened again to work as it would now: its secrets have
    /// changed, or it has given its receiver up. Most sinks read their secrets for each connection, and never give up.
    fn is_stale(&self, _sink: &Self::Sink) -> bool {
        false
    }
}
