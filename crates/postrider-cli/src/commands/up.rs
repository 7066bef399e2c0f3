//! `postrider up`: the 60-second start.

use postrider_core::{QueueStore, Result};

use super::{Context, relay};
use crate::signal;

/// The subscription that `up` delivers.
const SUBSCRIPTION: &str = "stdout";

/// Prints every event of the store on stdout until a signal comes.
pub(crate) async fn run<S: QueueStore>(store: &S, context: &Context<'_>) -> Result<u8> {
    // The banner speaks of Ctrl-C, so that must work by the time it is read.
    let signalled = signal::shutdown()?;
    context.output.note(&banner(&context.store_url.to_string(), &context.store_url.option()));
    relay::deliver(store, relay::Plan::to_stdout(SUBSCRIPTION), signalled, context).await
}

fn banner(store: &str, option: &str) -> String {
    format!(
        "Postrider is up.\n\
         \n\
         \u{20} store         {store}\n\
         \u{20} subscription  {SUBSCRIPTION}: every event, from the oldest on\n\
         \u{20} sink          stdout: one JSON object a line\n\
         \n\
         Try in another terminal:\n\
         \u{20} postrider emit order --key 42 --payload '{{\"a\":1}}'{option}\n\
         \u{20} postrider subscription list{option}\n\
         \n\
         Ctrl-C drains and ends it.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_banner_says_where_what_and_what_next() {
        let expected = "\
Postrider is up.

  store         sqlite://postrider.db
  subscription  stdout: every event, from the oldest on
  sink          stdout: one JSON object a line

Try in another terminal:
  postrider emit order --key 42 --payload '{\"a\":1}' --store sqlite://x.db
  postrider subscription list --store sqlite://x.db

Ctrl-C drains and ends it.
";
        assert_eq!(banner("sqlite://postrider.db", " --store sqlite://x.db"), expected);
    }
}
