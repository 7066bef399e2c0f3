//! A program of the user's own: events on its standard input, answers on its standard output.
//!
//! ```text
//!   to it    {"id":7,"dedup_id":"s-7-1800000000000000-mail","topic":"order","type":"order.created", … }
//!   from it  {"id":"s-7-1800000000000000-mail","outcome":"ack"}
//! ```
//!
//! One line is one event, see `exec/line.rs`, and each is answered by one line, in any order, with its
//! `dedup_id` as `id` and `ack`, `retry` or `dead` as `outcome`; `error` may say why. What it writes to
//! standard error goes to the log.
//!
//! *Ack.* The program has answered `ack`: what that means is its affair.
//!
//! *Order.* Events of many keys are with the program at once, of one key one at a time.
//!
//! *Life.* It is started by the first batch, without a shell. When it ends, writes what is no answer, or owes
//! an answer for longer than the time limit, it is killed and started again, after a pause that grows from
//! 100 ms to 30 s until it acks. An event may be what ends it: so after each end events are given one at a
//! time until a batch is through, and then one that ends the program again has failed on its own account. Its
//! last line on standard error is kept with that attempt.
//!
//! *What it gets.* Of the environment where to find programs, the home folder, language and time zone, and
//! what `env` says: it sees no secret of ours. It has a process group of its own, so that Ctrl-C reaches us
//! alone and it finishes what it has begun. When the sink is dropped, its input is closed and the group gets
//! SIGTERM, and SIGKILL if it still runs after five seconds.

mod child;
mod group;
mod line;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postrider_core::{Delivery, Error, Failure, Outcome, Result, Sink};
use rustix::fs::{Access, access};
use serde::Deserialize;

use self::child::Child;
use crate::batch::per_key;
use crate::batch::sizes;
use crate::options::SinkOptions;
use crate::{Secret, TimeLimit};

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Which program to run, and how.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecOptions {
    /// The program and its arguments. There is no shell; name one if you want one.
    pub command: Vec<String>,
    /// More of an environment for it, beside PATH, HOME, LANG, LC_* and TZ. A value may be a secret's place,
    /// `env:NAME` or `file:/path`.
    #[serde(default)]
    pub env: BTreeMap<String, Secret>,
    /// Events that are with the program at a time.
    #[serde(default = "concurrency")]
    pub concurrency: NonZeroUsize,
    /// How long the program may take for an event before it is killed.
    #[serde(default = "time_limit")]
    pub time_limit: TimeLimit,
}

fn concurrency() -> NonZeroUsize {
    const { NonZeroUsize::new(64).unwrap() }
}

fn time_limit() -> TimeLimit {
    TimeLimit::seconds(30)
}

impl SinkOptions for ExecOptions {
    type Sink = ExecSink;
    const SCHEMES: &'static [&'static str] = &["exec"];

    /// `exec:PROGRAM ARGUMENTS`, parted by spaces.
    fn from_text(text: &str) -> Result<Self> {
        let command: Vec<_> =
            text.strip_prefix("exec:").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        if command.is_empty() {
            return Err(Error::invalid("sink `exec` needs a program: write exec:PROGRAM"));
        }
        Ok(Self { command, env: BTreeMap::new(), concurrency: concurrency(), time_limit: time_limit() })
    }

    /// Looks for the program and starts nothing yet.
    async fn open(&self) -> Result<ExecSink> {
        let program = self.program()?;
        self.environment()?;
        let state =
            Mutex::new(State { child: None, pause: PAUSE_MIN, not_before: None, one_at_a_time: false });
        Ok(ExecSink { shared: Arc::new(Shared { options: self.clone(), program, state }) })
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(vec![format!("would start the program `{}`", self.program()?.display())])
    }
}

impl ExecOptions {
    /// What the program gets to see of ours, and what config gives it. Reads the secrets.
    fn environment(&self) -> Result<Vec<(OsString, OsString)>> {
        let is_passed_on = |name: &OsString| {
            let name = name.as_encoded_bytes();
            [&b"PATH"[..], b"HOME", b"LANG", b"TZ"].contains(&name) || name.starts_with(b"LC_")
        };
        let mut environment: Vec<_> = std::env::vars_os().filter(|(name, _)| is_passed_on(name)).collect();
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(Error::invalid(
                    "the `env` of sink `exec` has a name that no variable can have: correct it",
                ));
            }
            let value = value.read()?.expose().to_owned();
            if value.contains('\0') {
                return Err(Error::invalid(format!(
                    "the variable `{name}` in the `env` of sink `exec` has a zero byte"
                )));
            }
            environment.push((name.into(), value.into()));
        }
        Ok(environment)
    }

    /// Where the program is.
    fn program(&self) -> Result<PathBuf> {
        let Some(name) = self.command.first().filter(|name| !name.is_empty()) else {
            return Err(Error::invalid("sink `exec` needs a program: write command = [\"PROGRAM\"]"));
        };
        let is_program = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
        let found = if name.contains('/') {
            Some(PathBuf::from(name)).filter(|path| is_program(path))
        } else {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_program(path))
        };
        found.ok_or_else(|| {
            let shown = name.escape_debug();
            Error::invalid(format!(
                "the program `{shown}` of sink `exec` cannot be run: install it, or give its whole path"
            ))
        })
    }
}

impl fmt::Display for ExecOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exec:{}", self.command.join(" "))
    }
}

/// Gives deliveries to a program. Clones share one process.
#[derive(Debug, Clone)]
pub struct ExecSink {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: ExecOptions,
    program: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    child: Option<Arc<Child>>,
    /// How long the next start waits after the next end.
    pause: Duration,
    not_before: Option<Instant>,
    /// Since the last end no batch has gone through.
    one_at_a_time: bool,
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process, started if there is none, and how many events it may be given at once.
    fn child(&self) -> Result<(Arc<Child>, usize), Failure> {
        let mut state = self.state();
        if let Some(child) = &state.child {
            match child.ended() {
                None => {
                    let at_once = if state.one_at_a_time { 1 } else { self.options.concurrency.get() };
                    return Ok((Arc::clone(child), at_once));
                }
                Some(ended) => state.note_end(&ended),
            }
        }
        if let Some(left) = state.not_before.and_then(|then| then.checked_duration_since(Instant::now())) {
            return Err(Failure::unavailable(format!(
                "`{}` waits to be started again",
                self.options.command[0]
            ))
            .after(left));
        }
        // What is wrong with secrets now may be mended: they are read for each start.
        let environment = self.options.environment().map_err(|error| error.to_string());
        let child = environment.and_then(|environment| {
            let started = Child::start(&self.program, &self.options.command[1..], environment);
            started.map_err(|error| {
                format!("the program `{}` cannot be started: {error}", self.program.display())
            })
        });
        let child = child.map_err(|reason| {
            state.pause_before_next();
            Failure::unavailable(reason)
        })?;
        let child = Arc::new(child);
        state.child = Some(Arc::clone(&child));
        let at_once = if state.one_at_a_time { 1 } else { self.options.concurrency.get() };
        Ok((child, at_once))
    }

    /// What a batch says about the program's health.
    fn note(&self, outcomes: &[Outcome]) {
        let mut state = self.state();
        if outcomes.contains(&Outcome::Ack) {
            state.pause = PAUSE_MIN;
        }
        if state.child.as_ref().is_some_and(|child| child.ended().is_none())
            && !outcomes.contains(&Outcome::Untried)
        {
            state.one_at_a_time = false;
        }
    }
}

impl State {
    fn note_end(&mut self, ended: &child::Ended) {
        self.child = None;
        self.one_at_a_time |= ended.in_flight > 0;
        self.pause_before_next();
    }

    fn pause_before_next(&mut self) {
        self.not_before = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

impl Sink for ExecSink {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        if batch.is_empty() {
            return Vec::new();
        }
        let (child, at_once) = match self.shared.child() {
            Ok(found) => found,
            Err(failure) => return per_key::none_sent(&batch, failure),
        };
        let (child, limit) = (&*child, self.shared.options.time_limit);
        let outcomes = per_key::send(&batch, at_once, child.lost(), |delivery| async move {
            child.ask(delivery, limit).await.unwrap_or_else(sizes::outcome)
        });
        let outcomes = outcomes.await;
        self.shared.note(&outcomes);
        outcomes
    }

    fn keeps_order(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_cannot_be_run_is_refused_when_opened() {
        for bad in ["exec:", "exec:  ", "exec"] {
            assert!(ExecOptions::from_text(bad).is_err(), "{bad}");
        }
        for bad in ["exec:/no/such/program", "exec:no-such-program-anywhere", "exec:/etc/passwd", "exec:/tmp"]
        {
            let error = ExecOptions::from_text(bad).unwrap().open().await.unwrap_err().to_string();
            assert!(error.contains("cannot be run"), "{error}");
        }
        let options = ExecOptions::from_text("exec:sh -c  true").unwrap();
        assert_eq!((options.command.len(), options.to_string().as_str()), (3, "exec:sh -c true"));
        let found = options.check().await.unwrap();
        assert!(
            found[0].starts_with("would start the program `/") && found[0].ends_with("/sh`"),
            "{found:?}"
        );
    }
}
