//! The sink `exec` with programs of the shell.
#![cfg(feature = "exec")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "parts/carrier.rs"]
mod carrier;

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use carrier::Carrier;
use futures_util::FutureExt;
use postrider_core::{FailureClass, Outcome, Sink};
use postrider_sinks::SinkOptions;
use postrider_sinks::exec::{ExecOptions, ExecSink};
use postrider_testkit::receiver::{Received, check_sink};

/// Writes each line to the file `ledger`, then does what is asked with `$line` and `$id`.
fn script(folder: &Path, body: &str) -> String {
    format!(
        "cd {} || exit 1\nanswer() {{ printf '{{\"id\":\"%s\",\"outcome\":\"%s\"}}\\n' \"$id\" \"$1\"; }}\n\
         while IFS= read -r line; do\nid=${{line#*\\\"dedup_id\\\":\\\"}}; id=${{id%%\\\"*}}\n\
         printf '%s\\n' \"$line\" >> ledger\n{body}\ndone\n",
        folder.display()
    )
}

fn options(folder: &Path, body: &str) -> ExecOptions {
    let mut options = ExecOptions::from_text("exec:sh").unwrap();
    options.command.extend(["-c".to_owned(), script(folder, body)]);
    options
}

async fn sink(folder: &Path, body: &str) -> ExecSink {
    options(folder, body).open().await.unwrap()
}

fn ledger(folder: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(folder.join("ledger")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn held(folder: &Path) -> Vec<String> {
    ledger(folder).iter().map(|line| line["dedup_id"].as_str().unwrap().to_owned()).collect()
}

fn received(line: &serde_json::Value, text: &str) -> Received {
    let payload = if let serde_json::Value::String(bytes) = &line["payload_base64"] {
        STANDARD.decode(bytes).unwrap()
    } else {
        // As it stands in the line, digit for digit.
        let at = text.find("\"payload\":").unwrap() + "\"payload\":".len();
        let end = text.find(",\"headers\":").unwrap();
        text.as_bytes()[at..end].to_vec()
    };
    let headers = line["headers"].as_object().unwrap().iter();
    let headers = headers.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect();
    Received { payload, headers, dedup_id: line["dedup_id"].as_str().unwrap().to_owned() }
}

/// Sends until the pause after an end is over.
async fn send_when_started_again(carrier: &mut Carrier, sink: &ExecSink) -> Vec<Outcome> {
    loop {
        let outcomes = carrier.send(sink, 100).await;
        match outcomes.first() {
            Some(Outcome::Retry(failure)) if failure.message().contains("waits to be started again") => {
                // tidy: sleep because the sink says how long its pause still is.
                tokio::time::sleep(failure.retry_after().unwrap()).await;
            }
            _ => return outcomes,
        }
    }
}

#[tokio::test]
async fn it_does_what_every_sink_does() {
    let folder = tempfile::tempdir().unwrap();
    let sink = sink(folder.path(), "answer ack").await;
    let mut read = 0;
    check_sink(&sink, 100_000, async |_| {
        let text = std::fs::read_to_string(folder.path().join("ledger")).unwrap();
        let lines: Vec<_> = text.lines().skip(read).collect();
        read += lines.len();
        lines.iter().map(|line| received(&serde_json::from_str(line).unwrap(), line)).collect()
    })
    .await;
    assert!(sink.keeps_order());
}

#[tokio::test]
async fn answers_become_outcomes_and_unknown_ones_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let body = "case $line in *poison*) answer dead;; *later*) answer retry;; \
                *) id_was=$id; id=nobody; answer ack; id=$id_was; answer ack; answer dead;; esac";
    let sink = sink(folder.path(), body).await;
    let mut carrier = Carrier::new();
    for (key, payload) in
        [("a", "\"poison\""), ("a", "1"), ("b", "\"later\""), ("b", "1"), ("c", "1"), ("c", "1")]
    {
        carrier.emit(Some(key), payload.as_bytes());
    }
    let outcomes = carrier.send(&sink, 10).await;
    let [Outcome::Dead(_), Outcome::Untried, Outcome::Retry(_), Outcome::Untried, Outcome::Ack, Outcome::Ack] =
        &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    assert_eq!(held(folder.path()).len(), 4);
}

#[tokio::test]
async fn a_program_that_dies_in_the_middle_is_started_again_and_the_event_that_kills_it_is_found() {
    let folder = tempfile::tempdir().unwrap();
    // Good until the poison, at which it dies whatever else it holds.
    let sink = sink(folder.path(), "case $line in *poison*) exit 3;; *) answer ack;; esac").await;
    let mut carrier = Carrier::with_keys(10, 1);
    carrier.emit(Some("p"), b"\"poison\"");
    carrier.emit(Some("p"), b"1");
    (0..10).for_each(|_| carrier.emit(None, b"1"));
    let outcomes = carrier.send(&sink, 100).await;
    let blamed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Retry(_))).count();
    assert!(blamed >= 1, "{outcomes:?}");
    let mut alone = None;
    while alone.is_none() {
        let outcomes = send_when_started_again(&mut carrier, &sink).await;
        alone = outcomes.into_iter().find_map(|outcome| match outcome {
            Outcome::Retry(failure) if failure.class() == FailureClass::Retryable => Some(failure),
            _ => None,
        });
    }
    let alone = alone.unwrap();
    assert!(alone.message().contains("ended (exit status: 3)"), "{alone}");
    carrier.waiting.retain(|delivery| delivery.payload != "\"poison\"");
    while !carrier.waiting.is_empty() {
        send_when_started_again(&mut carrier, &sink).await;
    }
    carrier.compare(&held(folder.path()));
}

#[tokio::test]
async fn a_program_that_chatters_or_hangs_is_killed_and_its_words_are_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let chatter = sink(folder.path(), "echo canary").await;
    let mut carrier = Carrier::with_keys(1, 2);
    let outcomes = carrier.send(&chatter, 10).await;
    let Outcome::Retry(failure) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(
        failure.message().contains("no answer, and was killed: answers go to standard output"),
        "{failure}"
    );
    assert!(!failure.message().contains("canary"));
    let mut options = options(folder.path(), "case $line in *hang*) ;; *) answer ack;; esac");
    options.time_limit = "300ms".parse().unwrap();
    let hangs = options.open().await.unwrap();
    let mut carrier = Carrier::new();
    carrier.emit(None, b"\"hang\"");
    let outcomes = carrier.send(&hangs, 10).await;
    let Outcome::Retry(failure) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(failure.message().contains("no answer within 300ms"), "{failure}");
    carrier.waiting.clear();
    carrier.emit(None, b"1");
    while !carrier.waiting.is_empty() {
        send_when_started_again(&mut carrier, &hangs).await;
    }
}

#[tokio::test]
async fn the_last_words_of_a_program_are_kept_with_the_attempt_that_ended_it() {
    let folder = tempfile::tempdir().unwrap();
    let dies = sink(folder.path(), "echo first >&2; printf \"KeyError: '\\033[31m'\\n\" >&2; exit 1").await;
    let mut carrier = Carrier::with_keys(1, 1);
    let outcomes = carrier.send(&dies, 10).await;
    let Outcome::Retry(failure) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(failure.message(), "the program `sh` ended (exit status: 1)");
    assert_eq!(failure.record(), "the program `sh` ended (exit status: 1): KeyError: '\\u{1b}[31m'");
}

#[tokio::test]
async fn a_program_sees_of_ours_only_what_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    // As a library written in C leaves them.
    let leaked = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let mut options = options(folder.path(), "env > environment; ls /proc/$$/fd > descriptors; answer ack");
    options.env = [("SHOP_TOKEN".to_owned(), "env:CARGO_PKG_NAME".parse().unwrap())].into();
    Carrier::with_keys(1, 1).send_all(&options.open().await.unwrap(), 1).await;
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let environment = read("environment");
    let names: Vec<_> = environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    assert!(environment.contains("SHOP_TOKEN=postrider-sinks") && names.contains(&"PATH"), "{environment}");
    let known = ["PATH", "HOME", "LANG", "TZ", "SHOP_TOKEN", "PWD", "OLDPWD", "SHLVL", "_"];
    assert!(names.iter().all(|name| known.contains(name) || name.starts_with("LC_")), "{names:?}");
    let descriptors = read("descriptors");
    let above = descriptors.lines().filter(|number| number.parse::<u32>().is_ok_and(|number| number > 2));
    // The shell itself may keep one for its script or its redirections.
    assert!(above.clone().all(|number| number.parse::<u32>().unwrap() >= 10), "{descriptors}");
    drop(leaked);
}

#[tokio::test]
async fn what_a_program_has_started_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("alive");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for (body, is_dropped) in [("answer ack", true), ("answer ack; exit 0", false)] {
        // The helper holds the pipe open while it lives; the shell goes on once both ends are open.
        let start = "exec 7> alive; tail -f /dev/null >&7 & exec 7>&-;";
        let sink = sink(folder.path(), &format!("{start} {body}")).await;
        let ended = {
            let fifo = fifo.clone();
            tokio::task::spawn_blocking(move || std::fs::read(fifo).unwrap())
        };
        let mut carrier = Carrier::with_keys(1, 1);
        carrier.send(&sink, 1).await;
        let sink = (!is_dropped).then_some(sink);
        assert!(ended.await.unwrap().is_empty());
        drop(sink);
    }
}

#[tokio::test]
async fn the_program_is_gone_when_the_sink_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let sink = sink(folder.path(), "echo $$ > pid; answer ack").await;
    Carrier::with_keys(1, 1).send_all(&sink, 1).await;
    let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    let process = format!("/proc/{}", pid.trim());
    assert!(Path::new(&process).exists());
    drop(sink);
    let killed = || {
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ") || status.contains("State:\tX")
    };
    for _ in 0..1000 {
        if killed() {
            return;
        }
        // tidy: sleep because the kernel does not report when it has delivered a signal.
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the program outlives its sink");
}

#[tokio::test]
async fn a_send_that_is_dropped_half_way_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sink = sink(folder.path(), "answer ack").await;
    let mut carrier = Carrier::with_keys(5, 20);
    while !carrier.waiting.is_empty() {
        let batch: Vec<_> = carrier.waiting.iter().take(10).cloned().collect();
        let _ = sink.send(batch).now_or_never();
        carrier.send(&sink, 10).await;
    }
    carrier.compare(&held(folder.path()));
}
