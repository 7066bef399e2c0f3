//! `postrider relay`.
//!
//! | file | question it answers |
//! |---|---|
//! | `plan` | what is it to do? |
//! | `outlook` | what would that create or change, and would it work? |
//! | `daemon` | which stores are worked on, and what happens on signals? |
//! | `crew` | who works on one store, and what does a reload change? |
//! | `delivery` | how does one route work? |
//! | `service_manager`, `pid_file`, `health_file` | how do others know about this process? |

mod crew;
mod daemon;
mod delivery;
mod health_file;
mod outlook;
mod pid_file;
mod plan;
mod service_manager;

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::Result;
use postrider_runtime::Summary;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

pub(crate) use self::crew::{Orders, Post, Word, could, run as run_crew};
pub(crate) use self::outlook::{Outlook, subscription as outlook_of};
pub(crate) use self::plan::{Ends, Plan, Route, StoreSpec};

use self::pid_file::PidFile;
use crate::config::Source;
use crate::output::{Output, Page, View};
use crate::store_url::OpenStore;
use crate::{exit, signal, text};

/// Looks whether a plan would work, and shows what it would change.
pub(crate) async fn check(plan: &Plan, output: &Output) -> Result<u8> {
    let report = outlook::look(plan).await;
    output.show(&report)?;
    Ok(report.exit_code())
}

/// Delivers until a signal comes, or until nothing is left if that was asked for. SIGHUP makes it read a plan that
/// came from a file again.
pub(crate) async fn run(plan: Plan, source: Option<Source>, output: &Output) -> Result<u8> {
    deliver(plan, source, BTreeMap::new(), signal::shutdown()?, output).await
}

/// Delivers until `signalled` resolves, from stores of which some may be open.
pub(super) async fn deliver(
    plan: Plan,
    source: Option<Source>,
    opened: BTreeMap<StoreSpec, OpenStore>,
    signalled: impl Future<Output = ()> + Send,
    output: &Output,
) -> Result<u8> {
    let _pid_file = plan.pid_file.clone().map(PidFile::write).transpose()?;
    let uses_stdout = plan.uses_stdout();
    let stop = CancellationToken::new();
    let daemon = daemon::run(plan, source, opened, stop.clone());
    let shutdown = async {
        tokio::select! {
            () = signalled => {}
            () = reader_gone(uses_stdout) => {}
        }
        stop.cancel();
        std::future::pending::<()>().await;
    };
    let summary = tokio::select! {
        summary = daemon => summary?,
        () = shutdown => unreachable!("it only says when to stop"),
    };
    let done = Done::from(summary);
    if uses_stdout {
        output.show_beside_events(&done)?;
    } else {
        output.show(&done)?;
    }
    Ok(if done.cut_off == 0 { exit::OK } else { exit::CUT_OFF })
}

/// What people see this process as: its machine and its number there.
fn member_name() -> String {
    let machine = rustix::system::uname();
    format!("{}:{}", machine.nodename().to_string_lossy(), std::process::id())
}

/// Resolves when the reader of our stdout is gone, as in `postrider up | head -1`. Events that are sent there
/// will never arrive, and a relay with nothing to send would never notice. A sink that goes elsewhere has no
/// such reader.
async fn reader_gone(uses_stdout: bool) {
    const LOOK_EVERY: Duration = Duration::from_millis(500);
    if !uses_stdout {
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
