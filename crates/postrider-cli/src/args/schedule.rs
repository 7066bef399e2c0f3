//! `postrider schedule`, as typed.

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use postrider_core::Missed;

use super::{ConsentArgs, PayloadArgs, header};

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Create a schedule or replace the one of this name; the store is created if it is absent
    Put(SchedulePutArgs),
    /// List all schedules
    List,
    /// Show one schedule: settings, what it emits, its next ticks
    Show {
        /// Its name
        name: String,
    },
    /// Keep it from emitting until it is resumed
    Pause {
        /// Its name
        name: String,
    },
    /// End a pause; what was missed meanwhile follows --missed
    Resume {
        /// Its name
        name: String,
    },
    /// Delete it; its events stay
    Delete {
        /// Its name
        name: String,
        #[command(flatten)]
        consent: ConsentArgs,
    },
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Relays that run fire the schedules of their store, each tick once. Where the hours are named (0 9 * * *), a time that a
clock change skips comes at the change, and one that comes twice is used the first time; with * or */2 for the hour a
schedule goes by what the clock shows. A schedule that is replaced keeps what it has missed, unless its expression or
its zone changes.

Examples:
  postrider schedule put daily-report --cron '0 9 * * mon-fri' --zone Europe/Berlin --topic report
  postrider schedule put heartbeat --cron '*/10 * * * * *' --topic ping --missed skip
  postrider schedule put billing --cron @monthly --topic invoice --type invoice.run --payload '{\"dry\": false}'")]
pub(crate) struct SchedulePutArgs {
    /// Its name, unique in the store
    pub(crate) name: String,
    /// Minute, hour, day, month and weekday, with seconds in front if wanted; or @hourly, @daily, @weekly,
    /// @monthly, @yearly
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) cron: String,
    /// Time zone in which the expression is read
    #[arg(long, value_name = "NAME", default_value = "UTC")]
    pub(crate) zone: String,
    /// Topic to emit on
    #[arg(long)]
    pub(crate) topic: String,
    /// What happened; the topic when left out
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Ordering key
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) payload: PayloadArgs,
    /// Header that travels with each event; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// What happens to ticks that no relay was there for: none, one event for all, or one for each of the last 1,000
    #[arg(long, value_enum, default_value_t)]
    pub(crate) missed: MissedArg,
}

/// What happens to ticks that no relay was there for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum MissedArg {
    Skip,
    #[default]
    Once,
    All,
}

impl From<MissedArg> for Missed {
    fn from(missed: MissedArg) -> Self {
        match missed {
            MissedArg::Skip => Self::Skip,
            MissedArg::Once => Self::Once,
            MissedArg::All => Self::All,
        }
    }
}
