//! The log on stderr.

use std::fmt;
use std::io;
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

/// Starts logging. What runs for long tells what it does; a single command speaks up only when
/// something is odd.
pub(crate) fn init(args: &GlobalArgs, format: LogFormatArg, runs_long: bool, color: bool) {
    let filter = Targets::new()
        .with_target("postrider", level(args, runs_long))
        // It writes messages that come back into its log whole, payload and all. What matters of it the sink tells.
        .with_target("lapin", LevelFilter::OFF)
        .with_default(level(args, false).min(LevelFilter::WARN));
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let layer = match format {
        LogFormatArg::Json => layer.json().flatten_event(true).boxed(),
        LogFormatArg::Human => {
            let short_time: fn(&mut Writer<'_>) -> fmt::Result = short_time;
            let fields = debug_fn(harmless_field).delimited(" ");
            layer.with_ansi(color).with_target(false).with_timer(short_time).fmt_fields(fields).boxed()
        }
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
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

/// Keys and errors end up in fields, and they are whatever somebody emitted.
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
