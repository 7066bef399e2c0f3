//! One life of the program.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::{Delivery, Failure, Outcome};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::group::Group;
use super::line::{self, Answer};
use crate::TimeLimit;
use crate::batch::said::{self, SAID_BYTES_MAX};
use crate::envelope::Ids;

/// Bytes of a line that the program writes. A longer answer is none; of a longer line for the log the rest is left out.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// Lines that wait to be written to the program.
const LINES_WAITING_MAX: usize = 16;

/// How long its last words are waited for, which something that outlives it may hold back.
const LAST_WORDS_MAX: Duration = Duration::from_millis(200);

/// A running program, or one that has ended. Ended when dropped, with all that it has started.
#[derive(Debug)]
pub(super) struct Child {
    lines: mpsc::Sender<Vec<u8>>,
    waiting: Arc<Waiting>,
    ended: watch::Sender<Option<Ended>>,
    last_line: Arc<LastLine>,
    /// They own the process and its pipes; dropping them closes its input.
    _tasks: JoinSet<()>,
    group: Arc<Group>,
}

/// The last line that it wrote to its standard error.
#[derive(Debug, Default)]
struct LastLine(Mutex<Vec<u8>>);

impl LastLine {
    fn note(&self, line: &[u8]) {
        if !line.trim_ascii().is_empty() {
            line.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn shown(&self) -> String {
        said::beginning(&self.0.lock().unwrap_or_else(PoisonError::into_inner), SAID_BYTES_MAX)
    }
}

/// Why and how it ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    reason: String,
    /// The last line of its standard error.
    said: String,
    /// Events that it had not answered.
    pub(super) in_flight: usize,
}

/// Who waits for which answer.
#[derive(Debug, Default)]
struct Waiting(Mutex<HashMap<String, oneshot::Sender<Outcome>>>);

impl Waiting {
    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<Outcome>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a question back when its sender no longer waits for the answer.
struct Question<'a> {
    waiting: &'a Waiting,
    id: &'a str,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.waiting.map().remove(self.id);
    }
}

impl Child {
    /// Starts it in a group of its own, with this environment and no other, and with no descriptor but its three pipes.
    pub(super) fn start(
        program: &Path,
        arguments: &[String],
        environment: Vec<(OsString, OsString)>,
    ) -> io::Result<Self> {
        // The standard library's own are so already; those of client libraries written in C need not be. One
        // that such a library opens in this very moment can still slip through.
        close_fds::set_fds_cloexec_threadsafe(3, &[]);
        let mut process = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(environment)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (Some(stdin), Some(stdout), Some(stderr), Some(group)) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take(), Group::of(process.id()))
        else {
            return Err(io::Error::other("it has no pipes"));
        };
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (waiting, last_line) = (Arc::new(Waiting::default()), Arc::new(LastLine::default()));
        let (ended, _) = watch::channel(None);
        let (lines, to_write) = mpsc::channel(LINES_WAITING_MAX);
        let (said_all, has_said_all) = oneshot::channel::<()>();
        let group = Arc::new(group);
        let mut tasks = JoinSet::new();
        tasks.spawn(write_lines(stdin, to_write));
        tasks.spawn(log_lines(stderr, name.clone(), Arc::clone(&last_line), said_all));
        tasks.spawn({
            let (waiting, ended) = (Arc::clone(&waiting), ended.clone());
            let (last_line, group) = (Arc::clone(&last_line), Arc::clone(&group));
            async move {
                let reason = read_answers(BufReader::new(stdout), &waiting).await;
                // A program that closes its standard output answers no more: it ends with it, and so does
                // what it has started. Before it is waited for, since after that its number may belong to
                // others.
                group.kill();
                let status =
                    process.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
                group.note_over();
                let _ = timeout(LAST_WORDS_MAX, has_said_all).await;
                let reason = format!("the program `{name}` {reason} ({status})");
                end(&ended, &waiting, reason, last_line.shown());
            }
        });
        Ok(Self { lines, waiting, ended, last_line, _tasks: tasks, group })
    }

    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended.borrow().clone()
    }

    /// Waits for the end. An event that was alone with the program is blamed for it. Of several events none
    /// is blamed, because it is unknown which one ended the program.
    pub(super) async fn lost(&self) -> Failure {
        let mut ended = self.ended.subscribe();
        let ended = ended.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
        match ended {
            Some(Ended { reason, said, in_flight: 1 }) => Failure::retry(reason).with_detail(said),
            Some(Ended { reason, said, .. }) => Failure::unavailable(reason).with_detail(said),
            None => Failure::unavailable("the program is gone"),
        }
    }

    /// Gives it one event and waits for its answer. Cancel safe: a line is written whole or not at all, and an answer
    /// without a waiting task is dropped.
    pub(super) async fn ask(&self, delivery: &Delivery, limit: TimeLimit) -> Result<Outcome, Failure> {
        let ids = Ids::of(delivery);
        let id = ids.dedup_id();
        let (answer, answered) = oneshot::channel();
        self.waiting.map().insert(id.to_owned(), answer);
        let _question = Question { waiting: &self.waiting, id };
        let exchange = async {
            // An error means that it has ended, or reads no more: `lost` tells how, or the time limit ends the wait.
            if self.lines.send(line::write(delivery, &ids)).await.is_err() {
                return Err(self.lost().await);
            }
            match answered.await {
                Ok(outcome) => Ok(outcome),
                Err(_) => Err(self.lost().await),
            }
        };
        timeout(limit.get(), exchange).await.unwrap_or_else(|_| {
            let reason = format!("the program gave no answer within {limit} and is killed");
            let said = self.last_line.shown();
            end(&self.ended, &self.waiting, reason.clone(), said.clone());
            self.group.kill();
            Err(Failure::retry(reason).with_detail(said))
        })
    }
}

/// The first end counts.
fn end(ended: &watch::Sender<Option<Ended>>, waiting: &Waiting, reason: String, said: String) {
    ended.send_if_modified(|state| {
        let first = state.is_none();
        state.get_or_insert_with(|| Ended { reason, said, in_flight: waiting.map().len() });
        first
    });
}

/// Writes whole lines until the program reads no more, or all senders of lines are gone.
async fn write_lines(mut stdin: ChildStdin, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        // It reads no more: its end will be told by its standard output, or by the time limit.
        if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

/// Hands out answers until there are no more, and says why.
async fn read_answers(mut stdout: impl AsyncBufRead + Unpin, waiting: &Waiting) -> String {
    loop {
        let line = match next_line(&mut stdout).await {
            Ok(Some(line)) => line,
            Ok(None) => return "ended".to_owned(),
            Err(error) => return format!("cannot be read from: {error}"),
        };
        // Not repeated: it may hold a payload.
        let Some(answer) = Answer::read(&line) else {
            let bytes = line.len();
            return format!(
                "wrote a line of {bytes} bytes that is no answer, and was killed: answers go to standard output, all else to \
                 standard error"
            );
        };
        let asked = waiting.map().remove(&answer.id);
        // An answer to nothing, or a second one, changes nothing.
        if let Some(asked) = asked {
            let _ = asked.send(answer.outcome());
        }
    }
}

/// Logs what it writes to standard error, and remembers the last line; `_said_all` is dropped with the last of it.
async fn log_lines(
    stderr: impl AsyncRead + Unpin,
    name: String,
    last_line: Arc<LastLine>,
    _said_all: oneshot::Sender<()>,
) {
    let mut stderr = BufReader::new(stderr);
    while let Ok(Some(line)) = next_line(&mut stderr).await {
        last_line.note(&line);
        tracing::info!(program = name, "{}", String::from_utf8_lossy(&line));
    }
}

/// The next line without its end, cut at the bound; nothing at the end of the stream.
async fn next_line(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let buffer = reader.fill_buf().await?;
        if buffer.is_empty() {
            // What has no end was cut off with the program.
            return Ok(None);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = end.map_or(buffer.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}
