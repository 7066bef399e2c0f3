//! A table of another database: each event becomes a row there, once.
//!
//! *Ack.* The row is committed and flushed, or was before: beside the events stands a table of the
//! deduplication ids that were seen, written in the same transaction, so that a repeat is left out even if a
//! receiver has long taken the row away. What the table promises is in [`postrider_core::inbox`], how it is
//! written in the store crates.
//!
//! *Order.* A batch is one transaction. Rows stand in its order, and become visible in the order of their
//! column `arrival`.
//!
//! *Refusals.* A batch in which the database refuses an event for good is cut in two until the event is
//! alone; the others arrive. Anything else makes the sink unavailable, and the next batch makes a new
//! connection, with a URL that is read again.
//!
//! | file | question it answers |
//! |---|---|
//! | this | what can be chosen, and what becomes of each event of a batch? |
//! | `database` | which database is it, and how is it spoken to? |

#[cfg(not(any(feature = "inbox-postgres", feature = "inbox-sqlite")))]
compile_error!(
    "an inbox needs a database: turn on `inbox-postgres` or `inbox-sqlite`, which turn on `inbox`"
);

mod database;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::{Refused, TableName};
use postrider_core::time::{format_duration, parse_duration};
use postrider_core::{Delivery, Error, ErrorKind, Failure, Outcome, Result, Sink};
use serde::{Deserialize, Deserializer};

use self::database::{Connection, Database};
use crate::batch::sizes;
use crate::connect::connection_slot::ConnectionSlot;
use crate::options::SinkOptions;
use crate::{FailedKeys, Secret, TimeLimit};

/// What stands before the database's own URL.
const SCHEME: &str = "inbox:";

/// Into which table of which database events are delivered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InboxOptions {
    /// The database: `postgres://USER@HOST/DATABASE`, `sqlite://FILE`, or where that is written: `env:NAME`
    /// or `file:/PATH`.
    #[serde(deserialize_with = "url_from_config")]
    pub url: Secret,
    /// The table, which is made if it is not there; `postrider_inbox_event` if left out.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub table: TableName,
    /// How long deduplication ids are remembered, such as `30d`.
    #[serde(default = "default_remember", deserialize_with = "duration_from_config")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub remember: Duration,
    /// How long to wait for a connection, and for each batch.
    #[serde(default = "default_time_limit")]
    pub time_limit: TimeLimit,
}

fn default_remember() -> Duration {
    Duration::from_secs(30 * 86_400)
}

fn default_time_limit() -> TimeLimit {
    TimeLimit::seconds(10)
}

fn url_from_config<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    let url = Secret::deserialize(deserializer)?;
    if let Some(text) = url.written_here() {
        Database::parse(text).map_err(serde::de::Error::custom)?;
    }
    Ok(url)
}

fn duration_from_config<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

impl SinkOptions for InboxOptions {
    type Sink = InboxSink;
    const SCHEMES: &'static [&'static str] = &["inbox"];

    /// `inbox:postgres://USER@HOST/DATABASE?table=NAME&remember=30d`, `inbox:sqlite://FILE`. What else stands
    /// behind the `?` is the database's.
    fn from_text(text: &str) -> Result<Self> {
        let whole = text.strip_prefix(SCHEME).unwrap_or(text);
        let (base, query) = whole.split_once('?').unwrap_or((whole, ""));
        let (mut table, mut remember) = (TableName::default(), default_remember());
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("table", name)) => table = name.parse()?,
                Some(("remember", words)) => remember = parse_duration(words)?,
                _ => rest.push(pair),
            }
        }
        let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        Database::parse(&url)?;
        Ok(Self { url: Secret::here(url), table, remember, time_limit: default_time_limit() })
    }

    /// Connects to nothing yet, so that a database that is down delays its own events alone.
    async fn open(&self) -> Result<InboxSink> {
        Database::parse(self.url.read()?.expose())?.check_name(&self.table)?;
        Ok(InboxSink {
            shared: Arc::new(Shared { options: self.clone(), connection: ConnectionSlot::default() }),
        })
    }

    async fn check(&self) -> Result<Vec<String>> {
        let database = Database::parse(self.url.read()?.expose())?;
        database.check_name(&self.table)?;
        let mut found = Vec::new();
        let is_there = database.look(self, &mut found).await?;
        found.push(match (is_there, &self.table) {
            (true, table) => format!("delivers into the table `{table}`"),
            (false, table) => format!("would create the tables `{table}` and `{}`", table.seen()),
        });
        Ok(found)
    }
}

impl fmt::Display for InboxOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = match self.url.written_here().map(Database::parse) {
            Some(Ok(database)) => database.to_string(),
            Some(Err(_)) | None => self.url.to_string(),
        };
        let table = (self.table != TableName::default()).then(|| format!("table={}", self.table));
        let remember = (self.remember != default_remember())
            .then(|| format!("remember={}", format_duration(self.remember).replace(' ', "")));
        let options: Vec<_> = table.into_iter().chain(remember).collect();
        write!(f, "{SCHEME}{shown}")?;
        if options.is_empty() { Ok(()) } else { write!(f, "?{}", options.join("&")) }
    }
}

/// Delivers into a table. Clones share one connection.
#[derive(Debug, Clone)]
pub struct InboxSink {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: InboxOptions,
    connection: ConnectionSlot<Connection>,
}

impl Shared {
    async fn connect(&self) -> Result<Connection> {
        let options = &self.options;
        // A URL that is wrong now may be mended: it is read for each connection.
        Database::parse(options.url.read()?.expose())?.connect(options).await
    }

    /// Delivers some of a batch, as a whole or not at all.
    async fn deliver(&self, part: &[Delivery]) -> Result<(), Refused> {
        let unavailable =
            |failure: Failure| Refused::Table(Error::new(ErrorKind::Unavailable, failure.message()));
        let connect = async { self.connect().await.map_err(|error| Failure::unavailable(error.to_string())) };
        let connection = self.connection.get(Connection::is_good, connect).await.map_err(unavailable)?;
        let delivered = connection.deliver(part, &self.options).await;
        if let Err(Refused::Table(_)) = delivered {
            // It may be gone, or busy with a delivery that was given up.
            self.connection.forget().await;
        }
        delivered
    }
}

/// A batch on its way.
struct Batch<'a> {
    shared: &'a Shared,
    deliveries: &'a [Delivery],
    outcomes: Vec<Outcome>,
    failed: FailedKeys,
}

impl Batch<'_> {
    /// From front to back, so that what an event's key has before it is settled first.
    async fn run(&mut self) {
        let whole = 0..self.deliveries.len();
        let mut parts = vec![whole];
        while let Some(range) = parts.pop() {
            let places: Vec<usize> =
                range.clone().filter(|place| !self.failed.blocks(&self.deliveries[*place])).collect();
            let part: Vec<Delivery> = places.iter().map(|place| self.deliveries[*place].clone()).collect();
            let Some(first) = places.first() else { continue };
            match self.shared.deliver(&part).await {
                Ok(()) => places.iter().for_each(|place| self.outcomes[*place] = Outcome::Ack),
                Err(Refused::Content(error)) if places.len() == 1 => {
                    self.fail(*first, Failure::permanent(error.to_string()));
                }
                Err(Refused::Content(_)) => parts.extend(halves(range)),
                Err(Refused::Table(error)) => {
                    // What was not tried stays so.
                    return self.fail(*first, Failure::unavailable(error.to_string()));
                }
            }
        }
    }

    fn fail(&mut self, place: usize, failure: Failure) {
        self.failed.note(&self.deliveries[place]);
        self.outcomes[place] = sizes::outcome(failure);
    }
}

/// The second first: the last one is taken next.
fn halves(range: Range<usize>) -> [Range<usize>; 2] {
    let middle = range.start.midpoint(range.end);
    [middle..range.end, range.start..middle]
}

impl Sink for InboxSink {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        let outcomes = vec![Outcome::Untried; batch.len()];
        let mut batch =
            Batch { shared: &self.shared, deliveries: &batch, outcomes, failed: FailedKeys::default() };
        batch.run().await;
        batch.outcomes
    }

    fn keeps_order(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "inbox-postgres")]
    #[test]
    fn texts_become_options_and_show_no_password() {
        let text = "inbox:postgres://me:canary@h:7/shop?sslmode=disable&table=billing.inbox&remember=7d";
        let options = InboxOptions::from_text(text).unwrap();
        assert_eq!(options.table.to_string(), "billing.inbox");
        assert_eq!(options.remember, Duration::from_secs(7 * 86_400));
        assert_eq!(options.url.written_here(), Some("postgres://me:canary@h:7/shop?sslmode=disable"));
        assert_eq!(options.to_string(), "inbox:postgres://h:7/shop?table=billing.inbox&remember=168h");
        assert!(!format!("{options} {options:?}").contains("canary"));
        let elsewhere: InboxOptions = serde_json::from_str(r#"{"url": "env:INBOX_URL"}"#).unwrap();
        assert_eq!(elsewhere.to_string(), "inbox:env:INBOX_URL");
    }

    #[cfg(all(feature = "inbox-postgres", feature = "inbox-sqlite"))]
    #[tokio::test]
    async fn mistakes_are_refused_before_anything_is_connected() {
        for (bad, reason) in [
            ("inbox:", "needs a database"),
            ("inbox:mysql://u:canary@h/db", "needs a database"),
            ("inbox:postgres://u:canary@h/db?table=A", "cannot name the table"),
            ("inbox:postgres://u:canary@h/db?schema=shop", "table=SCHEMA.TABLE"),
            ("inbox:postgres://u:canary@h/db?remember=canary", "is not a duration"),
            ("inbox:sqlite://", "names no file"),
            ("inbox:sqlite://a.db?mode=ro", "takes no options"),
        ] {
            let error = InboxOptions::from_text(bad).unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
        let schema = InboxOptions::from_text("inbox:sqlite://a.db?table=a.b").unwrap();
        assert!(schema.open().await.unwrap_err().to_string().contains("has no schemas"));
        let table =
            serde_json::from_str::<InboxOptions>(r#"{"url": "sqlite://a.db", "table": "inbox"}"#).unwrap();
        assert_eq!(table, InboxOptions::from_text("inbox:sqlite://a.db?table=inbox").unwrap());
        assert_eq!(InboxOptions::from_text(&table.to_string()).unwrap(), table);
    }

    #[test]
    fn a_range_is_halved_until_one_is_left_and_the_first_is_next() {
        assert_eq!(halves(0..5), [2..5, 0..2]);
        assert_eq!(halves(3..5), [4..5, 3..4]);
    }
}
