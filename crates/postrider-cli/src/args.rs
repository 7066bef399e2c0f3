//! The command line, as typed.
//!
//! What the words mean is decided by the commands; here they only get their shapes. Help, usage errors
//! and completions all come from these types.

mod schedule;
mod source;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args as ClapArgs, Parser, Subcommand, ValueEnum};
use postrider_core::time::parse_duration;
use postrider_core::unique::Scope;
use postrider_core::{
    Error, EventId, Fair, LeaseBy, Members, Mode, OnDead, Order, Pattern, Rate, Result, RetryPolicy, Start,
    Timestamp, limits,
};
use postrider_sinks::SinkSpec;
use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use schedule::{ScheduleCommand, SchedulePutArgs};
pub(crate) use source::{
    OutboxArgs, OutboxCommand, OverBudgetArg, SourceArg, SourceArgs, SourceCommand, size as wal_budget,
};

use crate::exit;

/// The store that is used when none is named.
pub(crate) const STORE_DEFAULT: &str = "sqlite://postrider.db";
/// How long a drain may take unless said otherwise; `30s` on the command line.
pub(crate) const DRAIN_WITHIN_DEFAULT: Duration = Duration::from_secs(30);
/// How long delivered events are kept unless said otherwise; `7d` on the command line.
pub(crate) const RETENTION_DEFAULT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Carries events out of your database: in order per key, at least once, with retries and dead letters.
#[derive(Debug, Parser)]
#[command(
    name = "postrider",
    version,
    arg_required_else_help = true,
    after_help = exit::HELP,
    max_term_width = 110
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(Debug, ClapArgs)]
pub(crate) struct GlobalArgs {
    /// Store to work on: sqlite://PATH or postgres://...[?pooler=detect|transaction|none], or env:NAME or
    /// file:PATH where that is written, so that no password is typed [default: sqlite://postrider.db]
    // Its value may hold a password, so neither the help nor a usage error may repeat it.
    #[arg(
        long,
        value_name = "URL",
        env = "POSTRIDER_STORE",
        hide_env_values = true,
        global = true,
        help_heading = "Global options"
    )]
    pub(crate) store: Option<String>,
    /// Print results as JSON, one document, with absolute times; errors are JSON too, on stderr
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// When to use colours; auto means on a terminal and unless NO_COLOR is set
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = false,
        global = true,
        help_heading = "Global options"
    )]
    pub(crate) color: ColorArg,
    /// Log more; may be repeated
    #[arg(short, long, action = ArgAction::Count, global = true, help_heading = "Global options")]
    pub(crate) verbose: u8,
    /// Log less and leave out remarks; may be repeated
    #[arg(short, long, action = ArgAction::Count, global = true, help_heading = "Global options")]
    pub(crate) quiet: u8,
    /// Form of the log on stderr [default: human]
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        env = "POSTRIDER_LOG_FORMAT",
        global = true,
        help_heading = "Global options"
    )]
    pub(crate) log_format: Option<LogFormatArg>,
}

impl GlobalArgs {
    /// The store's URL, as typed or by default.
    pub(crate) fn store_url(&self) -> &str {
        self.store.as_deref().unwrap_or(STORE_DEFAULT)
    }
}

/// When to use colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    #[default]
    Auto,
    Always,
    Never,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormatArg {
    #[default]
    Human,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create the store if needed and print every event that is emitted: the 60-second start
    Up,
    /// Emit events; the store is created if it is absent
    Emit(EmitArgs),
    /// Deliver a subscription's events to a sink until a signal comes; both are created if absent
    Relay(RelayArgs),
    /// Create, inspect and control subscriptions
    #[command(subcommand)]
    Subscription(SubscriptionCommand),
    /// Emit events at set times: put, inspect and control cron schedules
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Look at events and why they are where they are
    #[command(subcommand)]
    Event(EventCommand),
    /// Look at, repair, replay or give up deliveries that failed for good
    #[command(subcommand)]
    DeadLetter(DeadLetterCommand),
    /// Show the store as a whole
    Stats,
    /// Migrate, check and prune the store
    #[command(subcommand)]
    Store(StoreCommand),
    /// Measure Postrider beside bare loops, in a folder that is removed afterwards
    Bench(BenchArgs),
    /// Print a completion script for a shell
    Completions {
        /// Shell to complete in
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchArgs {
    /// Events of the large backlog
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(20_000..=50_000_000))]
    pub(crate) events: u32,
    /// Seconds for which a producer's latency is measured, with and without a relay each
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Seconds for which a relay rests before an event wakes it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) rest: u64,
    /// Folder to work in, on the disk that is to be measured; the system's temporary one if not given
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<std::path::PathBuf>,
    /// The server once more, as a pooler shows it: drains through it are measured beside direct ones
    #[arg(long, value_name = "URL")]
    pub(crate) through: Option<String>,
    /// SQL of PGMQ, to be installed in the benchmark's database and measured beside a queue
    #[arg(long, value_name = "FILE")]
    pub(crate) pgmq: Option<std::path::PathBuf>,
    /// A sink to measure beside its client library alone, as after `relay --sink` or as the JSON of its
    /// table; may be repeated
    #[arg(long = "sink", value_name = "SINK")]
    pub(crate) sinks: Vec<String>,
    /// Events that such a sink gets at once, at the most; the runtime's choice if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=limits::BATCH_EVENTS_MAX as i64))]
    pub(crate) batch_events: Option<u32>,
    /// Bytes of the payload of each event that such a sink gets
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) payload_bytes: u32,
    /// Be one of the processes whose work is measured
    #[arg(long, hide = true)]
    pub(crate) member: bool,
    /// Measure only these, separated by commas
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub(crate) only: Vec<BenchPart>,
}

impl BenchArgs {
    /// Whether a part was asked for.
    pub(crate) fn wants(&self, part: BenchPart) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// A part of the benchmark. SQLite has `emit`, `drain`, `latency` and `failing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchPart {
    /// Emit, one by one and in bulk
    Emit,
    /// From COMMIT to the handler; on SQLite what a relay costs a producer
    Latency,
    /// Healthy keys beside a thousand that fail: from COMMIT to the handler
    Failing,
    /// What a relay costs that has nothing to do
    Idle,
    /// Relays that producers wake: the first event after a rest, and what the trigger costs producers
    Wake,
    /// Source wal beside a bare reader of a slot; the server needs wal_level = logical
    Wal,
    /// A server that does not tell how far its log has come, as Aurora, beside one that does; needs a superuser
    Managed,
    /// Several processes that share the work, and a crash of one
    Group,
    /// Delivery beside a snapshot that somebody holds
    Snapshot,
    /// Mode queue: leases by block and by event
    Queue,
    /// Mode queue: delivery beside a snapshot that somebody holds
    QueueSnapshot,
    /// Mode queue: from COMMIT to the handler
    QueueLatency,
    /// Draining a backlog
    Drain,
    /// Relaying a backlog to each --sink
    Sink,
    /// From COMMIT to the ack of a --sink for Kafka, producers at full speed
    SinkLatency,
}

#[derive(Debug, ClapArgs)]
#[command(
    override_usage = "postrider emit <TOPIC> [OPTIONS]\n       postrider emit --jsonl <FILE|->",
    after_help = "\
Examples:
  postrider emit order --type order.created --key 42 --payload '{\"total\": 99}'
  postrider emit order --key 42 --payload @order.json --header trace=abc --due 10m
  postrider emit reminder --key 42 --idempotency-key reminder-42 --unique-for 1h
  postrider emit reindex --key 7 --idempotency-key reindex-7 --replace --due 5s
  generate-events | postrider emit --jsonl -"
)]
pub(crate) struct EmitArgs {
    /// Topic to emit on, usually the kind of aggregate: order
    #[arg(required_unless_present = "jsonl")]
    pub(crate) topic: Option<String>,
    /// What happened: order.created; the topic when left out
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Ordering key, usually the aggregate's id
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) payload: PayloadArgs,
    /// Header that travels with the event; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Deliver it later: after a duration such as 10m, or at a time such as 2026-11-15T08:30:00Z
    #[arg(long, value_name = "DURATION|TIME", value_parser = due, allow_hyphen_values = true)]
    pub(crate) due: Option<DueArg>,
    /// Make a repeat harmless: an event with this key is written once, and its id is returned again
    #[arg(long, value_name = "TEXT")]
    pub(crate) idempotency_key: Option<String>,
    /// Let the idempotency key count in the whole store, or among the events of this topic or type only
    #[arg(long, default_value = "store", requires = "idempotency_key")]
    pub(crate) scope: ScopeArg,
    /// Take the idempotency key for so long only, such as 10m; without it, for as long as the event is kept
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = unique_for,
        allow_hyphen_values = true,
        requires = "idempotency_key"
    )]
    pub(crate) unique_for: Option<Duration>,
    /// Emit although the idempotency key is taken: this event takes the place of the one that has it, if that
    /// waits in a queue and was emitted with --replace too
    #[arg(long, requires = "idempotency_key")]
    pub(crate) replace: bool,
    /// Emit this many equal events, in transactions of at most 1,000
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..),
        allow_negative_numbers = true,
        conflicts_with = "idempotency_key"
    )]
    pub(crate) count: Option<u64>,
    /// Emit one event per line of a file (- for stdin): JSON objects with topic, type, key, payload,
    /// headers, due_at, idempotency_key, scope, unique_for and replace, in transactions of at most 1,000 lines
    #[arg(
        long,
        value_name = "FILE|-",
        conflicts_with_all = [
            "topic", "kind", "key", "payload", "raw", "headers", "due", "idempotency_key", "scope", "unique_for",
            "replace", "count"
        ]
    )]
    pub(crate) jsonl: Option<PathBuf>,
}

/// Where an idempotency key counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ScopeArg {
    #[default]
    Store,
    Topic,
    Type,
}

impl From<ScopeArg> for Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Store => Self::Store,
            ScopeArg::Topic => Self::Topic,
            ScopeArg::Type => Self::Kind,
        }
    }
}

/// Where a payload comes from.
#[derive(Debug, ClapArgs)]
pub(crate) struct PayloadArgs {
    /// Payload: JSON itself, @FILE, or - for stdin; stored byte for byte
    #[arg(long, value_name = "JSON|@FILE|-", allow_negative_numbers = true)]
    pub(crate) payload: Option<String>,
    /// Take the payload as it is, JSON or not
    #[arg(long, requires = "payload")]
    pub(crate) raw: bool,
}

/// When a delayed event is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DueArg {
    After(Duration),
    At(Timestamp),
}

#[derive(Debug, ClapArgs)]
#[command(
    override_usage = "postrider relay --config <FILE> [--check|--once]\n       postrider relay --subscription <NAME> --sink <SINK> [OPTIONS]",
    after_help = "\
SIGINT or SIGTERM drains: what runs is finished, then the relay ends. A second signal ends it at once (exit 9).
SIGHUP reads the config file anew and applies what has changed; a bad file is told and the old config stays in force.

Examples:
  postrider relay --config postrider.toml --check
  postrider relay --config postrider.toml
  postrider relay --subscription audit --topic 'order.*' --sink file:audit.jsonl
  postrider relay --subscription audit --sink null --once"
)]
pub(crate) struct RelayArgs {
    /// File with stores, subscriptions and sinks: all of them run in this process
    #[arg(
        short,
        long,
        value_name = "FILE",
        conflicts_with_all = ["subscription", "sink", "source", "wal_budget", "over_budget", "wal_streaming", "SubscriptionArgs"]
    )]
    pub(crate) config: Option<PathBuf>,
    /// Look whether everything would work, stores and sinks included, and print what would be created or changed (exit
    /// 10 if something would not work); nothing is changed
    #[arg(long, conflicts_with = "once")]
    pub(crate) check: bool,
    /// Print the JSON schema of config files
    #[arg(long, conflicts_with_all = ["config", "check", "once", "subscription", "sink"])]
    pub(crate) schema: bool,
    /// Subscription to deliver; created by the options below if it is absent
    #[arg(long, value_name = "NAME", required_unless_present_any = ["config", "schema"])]
    pub(crate) subscription: Option<String>,
    // The help names the sinks that this build has.
    #[arg(
        long,
        value_name = "SINK",
        help = format!(
            "Where to deliver to: {}; or where that is written, since every process can see an argument: env:NAME or @FILE",
            SinkSpec::forms()
        ),
        required_unless_present_any = ["config", "schema"]
    )]
    pub(crate) sink: Option<String>,
    /// End as soon as nothing is left that can be delivered now
    #[arg(long)]
    pub(crate) once: bool,
    /// Longest time that a drain may take [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = drain_within, allow_hyphen_values = true)]
    pub(crate) drain_within: Option<Duration>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// How long delivered events are kept [default: 7d]
    #[arg(long, value_name = "DURATION", value_parser = retention, allow_hyphen_values = true)]
    pub(crate) retention: Option<Duration>,
    /// File that holds this process's number while it runs; another process whose number it holds is a
    /// conflict (exit 4)
    #[arg(long, value_name = "FILE")]
    pub(crate) pid: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SubscriptionArgs,
}

/// What a subscription is to be like. For one that exists, what is left out stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, ClapArgs)]
#[command(next_help_heading = "Subscription options")]
pub(crate) struct SubscriptionArgs {
    /// Only events of topics like this, with * for any text; may be repeated
    #[arg(long = "topic", value_name = "PATTERN")]
    pub(crate) topics: Vec<Pattern>,
    /// Only events of types like this, with * for any text; may be repeated
    #[arg(long = "type", value_name = "PATTERN")]
    pub(crate) types: Vec<Pattern>,
    /// Where it begins, used when it is created only [default: start]
    #[arg(long, value_name = "start|now|TIME|ID", allow_hyphen_values = true)]
    pub(crate) from: Option<Start>,
    /// How progress is kept: a position in the log, or leased deliveries for jobs that take long, with priorities
    /// [default: log]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeArg>,
    /// Whether events of one key wait for each other [default: key]
    #[arg(long, value_enum)]
    pub(crate) order: Option<OrderArg>,
    /// What later events of a key do when one becomes a dead letter: go on without it, or wait for it [default: skip]
    #[arg(long, value_enum)]
    pub(crate) on_dead: Option<OnDeadArg>,
    /// When a failed event is attempted again: fixed:5s, exponential:1s..10m or schedule:1s,10s,1m
    /// [default: exponential:500ms..10m]
    #[arg(long, value_name = "POLICY")]
    pub(crate) retry: Option<RetryPolicy>,
    /// How many attempts an event gets, the first included [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::ATTEMPTS_MAX)))]
    pub(crate) attempts: Option<u32>,
    /// Whether all relays of this subscription share its work, or one does all and the others stand by [default: many]
    #[arg(long, value_enum)]
    pub(crate) members: Option<MembersArg>,
    /// How many attempts run at a time in each member [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::CONCURRENCY_MAX)))]
    pub(crate) concurrency: Option<u32>,
    /// How long one attempt may take [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,
    /// In mode queue, how long a worker that says nothing is believed to work [default: 8s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) lease: Option<Duration>,
    /// In mode queue, what one lease is for: up to a hundred events without order, or one, for jobs that take long
    /// [default: block]
    #[arg(long, value_enum)]
    pub(crate) lease_by: Option<LeaseByArg>,
    /// In mode queue, who shares evenly, so that one who brings much does not keep the rest waiting [default: nobody]
    #[arg(long, value_name = "nobody|key|topic|header:NAME")]
    pub(crate) fair: Option<Fair>,
    /// In mode queue, how many events all members together may have in their hands
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) total: Option<u32>,
    /// In mode queue with order none, how many events of one key all members together may have in their hands
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::PER_KEY_MAX)))]
    pub(crate) per_key: Option<u32>,
    /// In mode queue, how many events all members together may begin in a second: 100/s or 100/s,burst=20
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
}

/// How progress is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ModeArg {
    Log,
    Queue,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Log => Self::Log,
            ModeArg::Queue => Self::Queue,
        }
    }
}

/// What one lease is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LeaseByArg {
    Block,
    Event,
}

impl From<LeaseByArg> for LeaseBy {
    fn from(by: LeaseByArg) -> Self {
        match by {
            LeaseByArg::Block => Self::Block,
            LeaseByArg::Event => Self::Event,
        }
    }
}

/// Whether events of one key wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OrderArg {
    Key,
    None,
}

impl From<OrderArg> for Order {
    fn from(order: OrderArg) -> Self {
        match order {
            OrderArg::Key => Self::Key,
            OrderArg::None => Self::None,
        }
    }
}

/// How many members share the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MembersArg {
    Many,
    One,
}

impl From<MembersArg> for Members {
    fn from(members: MembersArg) -> Self {
        match members {
            MembersArg::Many => Self::Many,
            MembersArg::One => Self::One,
        }
    }
}

/// What happens to a key when its event dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnDeadArg {
    Skip,
    Hold,
}

impl From<OnDeadArg> for OnDead {
    fn from(on_dead: OnDeadArg) -> Self {
        match on_dead {
            OnDeadArg::Skip => Self::Skip,
            OnDeadArg::Hold => Self::Hold,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum SubscriptionCommand {
    /// Create a subscription; the store is created if it is absent
    Create {
        /// Its name, unique in the store
        name: String,
        #[command(flatten)]
        settings: SubscriptionArgs,
    },
    /// List all subscriptions with their progress
    List,
    /// Show one subscription: settings, lag, shards, parked keys
    Show {
        /// Its name
        name: String,
    },
    /// Stop handing out its events until it is resumed
    Pause {
        /// Its name
        name: String,
    },
    /// End a pause
    Resume {
        /// Its name
        name: String,
    },
    /// Move it to another place in the log, to deliver events again or to skip them
    Seek {
        /// Its name
        name: String,
        /// Place in the log at which it goes on
        #[arg(long, value_name = "start|now|TIME|ID", allow_hyphen_values = true)]
        to: Start,
        #[command(flatten)]
        consent: ConsentArgs,
    },
    /// Delete it with all its state: progress, retries and dead letters
    Delete {
        /// Its name
        name: String,
        #[command(flatten)]
        consent: ConsentArgs,
    },
}

/// Consent to what cannot be undone.
#[derive(Debug, ClapArgs)]
pub(crate) struct ConsentArgs {
    /// Do it without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EventCommand {
    /// List events, newest first
    List(EventListArgs),
    /// Show one event and where it stands for each subscription
    Show {
        /// Its id
        #[arg(value_parser = event_id, allow_hyphen_values = true)]
        id: EventId,
    },
    /// Explain in sentences what became of an event, or what it waits for
    Why {
        /// Its id
        #[arg(value_parser = event_id, allow_hyphen_values = true)]
        id: EventId,
    },
    /// End a delivery of mode queue that nobody wants any more; a worker that has it is told
    Cancel {
        /// Its id
        #[arg(value_parser = event_id, allow_hyphen_values = true)]
        id: EventId,
        /// The subscription that is not to get it
        #[arg(long, value_name = "NAME")]
        subscription: String,
        #[command(flatten)]
        consent: ConsentArgs,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct EventListArgs {
    /// Only of topics like this, with * for any text; may be repeated
    #[arg(long = "topic", value_name = "PATTERN")]
    pub(crate) topics: Vec<Pattern>,
    /// Only of types like this, with * for any text; may be repeated
    #[arg(long = "type", value_name = "PATTERN")]
    pub(crate) types: Vec<Pattern>,
    /// Only of this key
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) key: Option<String>,
    /// Only with a smaller id: the next page
    #[arg(long, value_name = "ID", value_parser = event_id, allow_hyphen_values = true)]
    pub(crate) before: Option<EventId>,
    /// How many at the most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=limits::PAGE_ROWS_MAX as u64))]
    pub(crate) limit: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// List dead letters, oldest event first
    List(DeadLetterListArgs),
    /// Show one dead letter with its attempts
    Show(LetterArgs),
    /// Replace the payload that a replay will deliver; the event itself stays as it was emitted
    Edit {
        #[command(flatten)]
        letter: LetterArgs,
        /// Payload: JSON itself, @FILE, or - for stdin
        #[arg(long, value_name = "JSON|@FILE|-", allow_negative_numbers = true)]
        payload: String,
        /// Take the payload as it is, JSON or not
        #[arg(long)]
        raw: bool,
    },
    /// Deliver dead letters again, with their attempts counted anew
    Replay(WhichArgs),
    /// Give dead letters up for good
    Discard {
        #[command(flatten)]
        which: WhichArgs,
        #[command(flatten)]
        consent: ConsentArgs,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DeadLetterListArgs {
    /// Only of this subscription
    #[arg(long, value_name = "NAME")]
    pub(crate) subscription: Option<String>,
    /// Only of events with a larger id: the next page
    #[arg(long, value_name = "ID", value_parser = event_id, allow_hyphen_values = true)]
    pub(crate) after: Option<EventId>,
    /// How many at the most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=limits::PAGE_ROWS_MAX as u64))]
    pub(crate) limit: u64,
}

/// One dead letter.
#[derive(Debug, ClapArgs)]
pub(crate) struct LetterArgs {
    /// Subscription in which the event died
    #[arg(value_name = "SUBSCRIPTION")]
    pub(crate) subscription: String,
    /// The event's id
    #[arg(value_name = "ID", value_parser = event_id, allow_hyphen_values = true)]
    pub(crate) id: EventId,
}

/// One dead letter or all of a subscription.
#[derive(Debug, ClapArgs)]
pub(crate) struct WhichArgs {
    /// Subscription in which events died
    #[arg(value_name = "SUBSCRIPTION")]
    pub(crate) subscription: String,
    /// The event's id; or give --all
    #[arg(
        value_name = "ID",
        value_parser = event_id,
        allow_hyphen_values = true,
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub(crate) id: Option<EventId>,
    /// All dead letters of the subscription
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Bring the store to this version's schema; it is created if it is absent
    Migrate {
        /// Print the SQL instead of running it: for a tool that runs it in a transaction of its own
        #[arg(long)]
        sql: bool,
        /// Put a transaction around the SQL, for use without such a tool
        #[arg(long, requires = "sql")]
        transaction: bool,
    },
    /// Create four roles in PostgreSQL (producer, relay, operator, reader) and grant each what it needs
    Roles {
        /// What their names begin with: PREFIX_producer and so on; the schema's name if not given
        #[arg(long, value_name = "PREFIX")]
        prefix: Option<String>,
        /// Print the SQL instead of running it
        #[arg(long)]
        sql: bool,
    },
    /// Go on with a PostgreSQL store that was restored from a dump, upgraded by pg_upgrade or replicated from another
    /// server. Restores to a point in time and failovers need nothing
    Adopt,
    /// Choose how relays at rest learn of new events in PostgreSQL
    Wake {
        /// By looking ten times a second, or from the first producer that commits
        wake: WakeArg,
        /// Although the server allows it, no producer of this store uses PREPARE TRANSACTION: it would fail for those
        /// that wake a relay
        #[arg(long)]
        no_two_phase: bool,
    },
    /// Replication slots of a PostgreSQL store
    #[command(subcommand)]
    Source(SourceCommand),
    /// Outbox tables of other programs, whose rows become events of a PostgreSQL store
    #[command(subcommand)]
    Outbox(OutboxCommand),
    /// Look for damage (exit 10 if there is any)
    Check,
    /// Remove events that are older than the retention and that every subscription is past
    Prune {
        /// How long delivered events are kept
        #[arg(long, value_name = "DURATION", value_parser = retention, default_value = "7d", allow_hyphen_values = true)]
        retention: Duration,
    },
}

/// How relays at rest learn of new events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WakeArg {
    /// They look, ten times a second
    Poll,
    /// A trigger on the log's table: producers wake relays that sleep
    Notify,
}

fn event_id(text: &str) -> Result<EventId> {
    match text.parse::<i64>() {
        Ok(id) if id > 0 => Ok(EventId(id)),
        _ => Err(Error::invalid("an event id is a whole number from 1 on")),
    }
}

fn header(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Error::invalid("write a header as NAME=VALUE")),
    }
}

fn due(text: &str) -> Result<DueArg> {
    if let Ok(at) = text.parse() {
        return Ok(DueArg::At(at));
    }
    let after = parse_duration(text)
        .map_err(|error| Error::invalid(format!("{error}; or give a time such as 2026-11-15T08:30:00Z")))?;
    bounded(after, limits::DUE_AFTER_MAX, "ten years").map(DueArg::After)
}

fn unique_for(text: &str) -> Result<Duration> {
    let period = bounded(parse_duration(text)?, limits::UNIQUE_FOR_MAX, "ten years")?;
    if period.is_zero() {
        return Err(Error::invalid(
            "a key that is taken for no time keeps nobody out: leave it out or give a length",
        ));
    }
    Ok(period)
}

pub(crate) fn retention(text: &str) -> Result<Duration> {
    const RETENTION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    bounded(parse_duration(text)?, RETENTION_MAX, "a hundred years")
}

pub(crate) fn drain_within(text: &str) -> Result<Duration> {
    bounded(parse_duration(text)?, limits::ATTEMPT_TIMEOUT_MAX, "24 hours")
}

fn bounded(duration: Duration, max: Duration, max_text: &str) -> Result<Duration> {
    if duration > max {
        return Err(Error::invalid(format!("it is more than {max_text}: check its unit")));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("postrider").chain(line.split_whitespace()))
    }

    #[test]
    fn the_definitions_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_option_and_command_has_a_help_sentence() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for arg in
                command.get_arguments().filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()))
            {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Args::command());
    }

    #[test]
    fn defaults_are_what_the_help_says() {
        assert_eq!(drain_within("30s").unwrap(), DRAIN_WITHIN_DEFAULT);
        assert_eq!(retention("7d").unwrap(), RETENTION_DEFAULT);
        let help = Args::command().find_subcommand_mut("relay").unwrap().render_long_help().to_string();
        assert!(help.contains("[default: 30s]") && help.contains("[default: 7d]"), "{help}");
    }

    #[test]
    fn good_lines_are_accepted() {
        for line in [
            "up",
            "emit order",
            "emit order --key -1 --payload -5 --due 10m --header a=b=c --idempotency-key x",
            "emit order --idempotency-key x --scope type --unique-for 10m --replace",
            "emit order --payload - --raw --count 3 --due 2026-11-15T08:30:00Z",
            "emit --jsonl -",
            "relay --subscription a --sink stdout --from 17 --order none --on-dead hold --retry fixed:5s",
            "relay --subscription a --sink null --mode queue --lease 1m --lease-by event --fair header:tenant --total 9",
            "subscription create a --mode queue --rate 100/s,burst=20",
            "subscription create a --mode queue --order none --per-key 3",
            "relay --config p.toml --once --retention 3d --drain-within 5s --pid p.pid",
            "relay --config p.toml --check --store sqlite://x.db",
            "relay --schema",
            "relay --subscription a --sink null --check",
            "relay --subscription a --sink null --once --attempts 3 --concurrency 4 --timeout 5s --topic a --topic b.*",
            "subscription create a --type *.created --from now",
            "subscription seek a --to start --yes",
            "event list --before 7 --limit 1000",
            "dead-letter replay a 7",
            "dead-letter discard a --all --yes",
            "store prune --retention 0s",
            "--json stats --color never -vv",
            "completions zsh",
        ] {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn bad_lines_get_a_sentence_with_a_remedy() {
        for (line, remedy) in [
            ("emit", "--jsonl <FILE|->"),
            ("emit order --jsonl -", "cannot be used with"),
            ("emit order --raw", "--payload"),
            ("emit order --count 0", "not in 1.."),
            ("emit order --count 2 --idempotency-key x", "cannot be used with"),
            ("emit order --replace", "--idempotency-key <TEXT>"),
            ("emit order --unique-for 10m", "--idempotency-key <TEXT>"),
            ("emit order --scope topic", "--idempotency-key <TEXT>"),
            ("emit order --idempotency-key x --scope here", "[possible values: store, topic, type]"),
            ("emit --jsonl - --scope topic", "cannot be used with"),
            ("emit order --idempotency-key x --unique-for 0s", "keeps nobody out"),
            ("emit order --idempotency-key x --unique-for -1s", "negative"),
            ("emit order --idempotency-key x --unique-for 4000d", "check its unit"),
            ("emit --jsonl - --replace", "cannot be used with"),
            ("emit order --due -5m", "negative"),
            ("emit order --due soon", "write it as 500ms"),
            ("emit order --due 4000d", "check its unit"),
            ("emit order --header a", "NAME=VALUE"),
            ("subscription create a --mode queue --rate fast", "100/s"),
            ("subscription create a --mode queue --fair everybody", "header:NAME"),
            ("subscription create a --mode queue --order none --per-key 0", "1..=1000"),
            ("emit order --colour", "--color"),
            ("relay --subscription a", "--sink"),
            ("relay", "--subscription"),
            ("relay --config p.toml --subscription a", "cannot be used with"),
            ("relay --config p.toml --concurrency 4", "cannot be used with"),
            ("relay --config p.toml --check --once", "cannot be used with"),
            ("relay --subscription a --sink null --from yesterday", "use start, now"),
            ("relay --subscription a --sink null --retry often", "fixed:5s"),
            ("relay --subscription a --sink null --concurrency 0", "1..=10000"),
            ("relay --subscription a --sink null --timeout -1s", "negative"),
            ("relay --subscription a --sink null --drain-within 3d", "check its unit"),
            ("subscription create a --topic a?", "use letters, digits"),
            ("event show 0", "from 1 on"),
            ("event show -3", "from 1 on"),
            ("event list --limit 0", "1..=1000"),
            ("dead-letter replay a", "<ID>"),
            ("dead-letter replay a 7 --all", "cannot be used with"),
            ("store prune --retention 99999999d", "check its unit"),
            ("stat", "stats"),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), i32::from(exit::USAGE), "{line}");
            assert!(error.to_string().contains(remedy), "{line}: {error}");
        }
    }
}
