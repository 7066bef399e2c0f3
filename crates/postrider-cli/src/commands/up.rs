//! `postrider up`: the 60-second start.

use std::collections::BTreeMap;

use postrider_core::Result;
use postrider_sinks::SinkSpec;

use super::relay::{self, Plan, Route, StoreSpec};
use super::{Absent, FirstLook};
use crate::args::{SourceArg, SubscriptionArgs};
use crate::output::Output;
use crate::{signal, store_url};

/// The subscription that `up` delivers.
const SUBSCRIPTION: &str = "stdout";

/// Prints every event of the store on stdout until a signal comes.
pub(crate) async fn run(url: &str, output: &Output) -> Result<u8> {
    let store = StoreSpec::new(url, SourceArg::default())?;
    let url = store.url()?;
    let opened = store_url::open(&store, Absent::Create, FirstLook::Thorough).await?;
    let opened = BTreeMap::from([(store.clone(), opened)]);
    let route = Route {
        store,
        settings: SubscriptionArgs::default(),
        sink_name: None,
        sink: SinkSpec::stdout(),
        batch_events: None,
        latency_goal: None,
    };
    // The banner speaks of Ctrl-C, so that must work by the time it is read.
    let signalled = signal::shutdown()?;
    output.note(&banner(&url.to_string(), &url.option()));
    let done =
        relay::deliver(Plan::of(SUBSCRIPTION.to_owned(), route), None, opened, signalled, output).await?;
    output.note(&farewell(&url.option()));
    Ok(done)
}

/// What stays behind, and what it costs.
fn farewell(option: &str) -> String {
    format!(
        "The subscription `{SUBSCRIPTION}` stays, and keeps events until they are delivered to it. This ends it:\n\
         \u{20} postrider subscription delete {SUBSCRIPTION}{option}"
    )
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
    fn the_end_says_what_stays() {
        let told = farewell(" --store sqlite://x.db");
        assert!(told.ends_with("\n  postrider subscription delete stdout --store sqlite://x.db"), "{told}");
    }

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
