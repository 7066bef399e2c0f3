//! The log on stderr.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use postrider_core::Timestamp;
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::{GlobalArgs, LogFormatArg};
use crate::text;

/// Whether the log is JSON. Then all that this process says on stderr is.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Whether the log is JSON, as far as is known yet.
pub(crate) fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Says in which form the log is, before it is started: what goes wrong until then is told in it.
pub(crate) fn set_format(format: LogFormatArg) {
    IS_JSON.store(format == LogFormatArg::Json, Ordering::Relaxed);
}

/// An error as a line of a JSON log.
pub(crate) fn json_line(message: &str, fields: &[(&str, serde_json::Value)]) -> String {
    let mut line = serde_json::Map::new();
    line.insert("timestamp".to_owned(), Timestamp::from(SystemTime::now()).to_string().into());
    line.insert("level".to_owned(), "ERROR".into());
    line.insert("message".to_owned(), message.into());
    line.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    text::escape_json(&serde_json::Value::Object(line).to_string()) + "\n"
}

/// Starts logging. What runs for long tells what it does; a single command speaks up only when
/// something is odd.
pub(crate) fn init(args: &GlobalArgs, format: LogFormatArg, runs_long: bool, color: bool) {
    set_format(format);
    let filter = Targets::new()
        .with_target("postrider", level(args, runs_long))
        // It writes messages that come back into its log whole, payload and all. What matters of it the sink tells.
        .with_target("lapin", LevelFilter::OFF)
        .with_default(level(args, false).min(LevelFilter::WARN));
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let layer = match format {
        LogFormatArg::Json => {
            layer.json().flatten_event(true).with_writer(|| HarmlessJson(io::stderr())).boxed()
        }
        LogFormatArg::Human => {
            let short_time: fn(&mut Writer<'_>) -> fmt::Result = short_time;
            let fields = debug_fn(harmless_field).delimited(" ");
            layer.with_ansi(color).with_target(false).with_timer(short_time).fmt_fields(fields).boxed()
        }
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
}

/// Takes whole lines of JSON, and writes nothing of them that a terminal obeys.
struct HarmlessJson<W>(W);

impl<W: io::Write> io::Write for HarmlessJson<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let lines = String::from_utf8_lossy(bytes);
        for line in lines.lines() {
            self.0.write_all((text::escape_json(line) + "\n").as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn level(args: &GlobalArgs, runs_long: bool) -> LevelFilter {
    const LEVELS: [LevelFilter; 6] = [
        LevelFilter::OFF,
        LevelFilter::ERROR,
        LevelFilter::WARN,
        LevelFilter::INFO,
        LevelFilter::DEBUG,
        LevelFilter::TRACE,
    ];
    let base = if runs_long { 3 } else { 2 };
    let index = (base + usize::from(args.verbose)).saturating_sub(usize::from(args.quiet));
    LEVELS[index.min(LEVELS.len() - 1)]
}

fn short_time(writer: &mut Writer<'_>) -> fmt::Result {
    writer.write_str(&text::moment(Timestamp::from(SystemTime::now())))
}

/// Keys and errors end up in fields, and they may hold any text that a producer emitted.
fn harmless_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = format!("{value:?}");
    match field.name() {
        "message" => write!(writer, "{}", text::escape(&value)),
        name => write!(writer, "{name}={}", text::escape(&value)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Args;

    #[test]
    fn a_line_of_json_holds_nothing_that_a_terminal_obeys() {
        use io::Write as _;
        let mut written = Vec::new();
        let line = "{\"key\":\"\u{9b}31m\u{202e}\u{7f}\"}\n";
        HarmlessJson(&mut written).write_all(line.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "{\"key\":\"\\u009b31m\\u202e\\u007f\"}\n");
    }

    #[test]
    fn the_level_follows_the_options() {
        let level_of =
            |line: &str, runs_long| level(&Args::try_parse_from(line.split(' ')).unwrap().global, runs_long);
        assert_eq!(level_of("postrider stats", false), LevelFilter::WARN);
        assert_eq!(level_of("postrider up", true), LevelFilter::INFO);
        assert_eq!(level_of("postrider stats -vv", false), LevelFilter::DEBUG);
        assert_eq!(level_of("postrider up -qqqqqq", true), LevelFilter::OFF);
        assert_eq!(level_of("postrider up -vvvvvv", true), LevelFilter::TRACE);
    }
}
