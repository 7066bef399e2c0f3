//! `postrider relay`.

use std::time::Duration;

use postrider_core::{QueueStore, Result};
use postrider_runtime::{Relay, Summary, Worker};
use postrider_sinks::SinkSpec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::{Context, subscription};
use crate::args::{DRAIN_WITHIN_DEFAULT, RETENTION_DEFAULT, RelayArgs, SourceArgs, SubscriptionArgs};
use crate::output::{Page, View};
use crate::{exit, signal, text};

/// What a relay is to do, read and checked.
pub(crate) struct Plan {
    subscription: String,
    settings: SubscriptionArgs,
    sink: SinkSpec,
    ends: Ends,
    drain_within: Duration,
    retention: Duration,
    source: SourceArgs,
}

/// When a relay ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Never,
    WhenIdle,
}

impl Plan {
    /// Reads and checks what was typed.
    pub(crate) fn new(args: RelayArgs) -> Result<Self> {
        subscription::new_subscription(&args.subscription, &args.settings).check()?;
        Ok(Self {
            sink: args.sink.parse()?,
            subscription: args.subscription,
            settings: args.settings,
            ends: if args.once { Ends::WhenIdle } else { Ends::Never },
            drain_within: args.drain_within,
            retention: args.retention,
            source: args.source,
        })
    }

    /// Where events are read.
    pub(crate) fn source(&self) -> SourceArgs {
        self.source
    }

    /// Everything that is emitted, on stdout.
    pub(crate) fn to_stdout(subscription: &str) -> Self {
        Self {
            subscription: subscription.to_owned(),
            settings: SubscriptionArgs::default(),
            sink: SinkSpec::Stdout,
            ends: Ends::Never,
            drain_within: DRAIN_WITHIN_DEFAULT,
            retention: RETENTION_DEFAULT,
            source: SourceArgs::default(),
        }
    }
}

/// Delivers until a signal comes, or until nothing is left if that was asked for.
pub(crate) async fn run<S: QueueStore>(store: &S, plan: Plan, context: &Context<'_>) -> Result<u8> {
    deliver(store, plan, signal::shutdown()?, context).await
}

/// Delivers until `signalled` resolves.
pub(super) async fn deliver<S: QueueStore>(
    store: &S,
    plan: Plan,
    signalled: impl Future<Output = ()> + Send,
    context: &Context<'_>,
) -> Result<u8> {
    let sink = plan.sink.open()?;
    let subscription = subscription::ensure(store, &plan.subscription, &plan.settings).await?;
    let relay = Relay::new(store.clone())
        .name(member_name())
        .retention(Some(plan.retention))
        .drain_within(plan.drain_within)
        .worker(Worker::new(subscription).sink(sink));
    let reader_gone = reader_gone(plan.sink.clone());
    let shutdown = async {
        tokio::select! {
            () = signalled => {}
            () = reader_gone => {}
        }
    };
    let summary = match plan.ends {
        Ends::Never => relay.run(shutdown).await?,
        Ends::WhenIdle => relay.run_until_idle(shutdown).await?,
    };
    let done = Done::from(summary);
    if plan.sink == SinkSpec::Stdout {
        context.output.show_beside_events(&done)?;
    } else {
        context.output.show(&done)?;
    }
    Ok(if done.cut_off == 0 { exit::OK } else { exit::CUT_OFF })
}

/// What people see this process as: its machine and its number there.
fn member_name() -> String {
    let machine = rustix::system::uname();
    format!("{}:{}", machine.nodename().to_string_lossy(), std::process::id())
}

/// Resolves when the reader of our stdout is gone, as in `postrider up | head -1`: what is sent there will
/// never arrive, and with nothing to send nobody would ever notice. A sink that goes elsewhere has no such
/// reader.
async fn reader_gone(sink: SinkSpec) {
    const LOOK_EVERY: Duration = Duration::from_millis(500);
    if sink != SinkSpec::Stdout {
        std::future::pending::<()>().await;
    }
    while !is_reader_gone() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_reader_gone() -> bool {
    let stdout = std::io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    poll(&mut watched, Some(&at_once)).is_ok() && watched[0].revents().intersects(gone)
}

/// What a relay has done.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Done {
    delivered: u64,
    failed: u64,
    dead: u64,
    cut_off: u64,
}

impl From<Summary> for Done {
    fn from(summary: Summary) -> Self {
        let Summary { delivered, failed, dead, cut_off, .. } = summary;
        Self { delivered, failed, dead, cut_off }
    }
}

impl View for Done {
    fn human(&self, _page: &Page) -> String {
        let mut line = format!("delivered {}", text::counted(self.delivered, "event"));
        for (number, noun) in [(self.failed, "failed attempt"), (self.dead, "dead letter")] {
            if number > 0 {
                line = format!("{line}, {}", text::counted(number, noun));
            }
        }
        if self.cut_off > 0 {
            line = format!(
                "{line}; the drain was cut off with {} under way, which will be delivered again",
                text::counted(self.cut_off, "hand-out")
            );
        }
        line + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_told_in_one_line() {
        let page = Page::plain("2026-11-15T08:30:00Z".parse().unwrap());
        let done = |delivered, failed, dead, cut_off| Done { delivered, failed, dead, cut_off }.human(&page);
        assert_eq!(done(1, 0, 0, 0), "delivered 1 event\n");
        assert_eq!(done(1_200, 2, 1, 0), "delivered 1,200 events, 2 failed attempts, 1 dead letter\n");
        assert_eq!(
            done(0, 0, 0, 1),
            "delivered 0 events; the drain was cut off with 1 hand-out under way, which will be delivered again\n"
        );
    }

    #[test]
    fn a_member_is_named_by_its_machine_and_process() {
        assert!(member_name().ends_with(&format!(":{}", std::process::id())));
    }
}
