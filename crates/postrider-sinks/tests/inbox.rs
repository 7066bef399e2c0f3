//! The sink `inbox` against real PostgreSQL and SQLite.
#![cfg(all(feature = "inbox-postgres", feature = "inbox-sqlite"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "parts/carrier.rs"]
mod carrier;
#[path = "inbox/postgres.rs"]
mod postgres;
#[path = "inbox/sqlite.rs"]
mod sqlite;

use futures_util::FutureExt;
use postrider_core::{FailureClass, Outcome, Sink};
use postrider_sinks::inbox::InboxOptions;
use postrider_sinks::{InboxSink, SinkOptions};

use carrier::Carrier;

fn options(url: &str) -> InboxOptions {
    InboxOptions::from_text(&format!("inbox:{url}")).unwrap()
}

async fn open(url: &str) -> InboxSink {
    options(url).open().await.unwrap()
}

#[track_caller]
fn unavailable(outcome: &Outcome, words: &str) {
    let Outcome::Retry(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.class(), FailureClass::Unavailable, "{failure}");
    assert!(failure.message().contains(words), "{failure}");
}

/// Gives up on every other batch as soon as it has begun, and sends it again.
async fn send_with_interruptions(sink: &InboxSink) -> Carrier {
    let mut carrier = Carrier::with_keys(5, 20);
    carrier.send(sink, 5).await;
    while !carrier.waiting.is_empty() {
        let batch: Vec<_> = carrier.waiting.iter().take(10).cloned().collect();
        let _ = sink.send(batch).now_or_never();
        carrier.send(sink, 10).await;
    }
    carrier
}

/// Two of the events can never be taken: the rest arrives, but for what their keys have behind them.
async fn check_refusals(sink: &InboxSink, held: impl Fn() -> Vec<String>) {
    let mut carrier = Carrier::new();
    for number in 0..20 {
        let payload: &[u8] = if [7, 12].contains(&number) { &[b'x'; 200] } else { b"1" };
        carrier.emit(Some(&format!("key-{}", number % 6)), payload);
    }
    let outcomes = carrier.send(sink, 20).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        match number {
            7 | 12 => assert!(
                matches!(outcome, Outcome::Dead(failure) if failure.message().contains("small")),
                "{outcome:?}"
            ),
            // Of the keys 1 and 0, behind those.
            13 | 19 | 18 => assert_eq!(*outcome, Outcome::Untried, "{number}"),
            _ => assert_eq!(*outcome, Outcome::Ack, "{number}"),
        }
    }
    carrier.send_all(sink, 20).await;
    assert_eq!(carrier.dead.len(), 2);
    assert_eq!(carrier.compare(&held()), 0);
}
