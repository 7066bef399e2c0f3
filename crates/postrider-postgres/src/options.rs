//! Which database, and how it is used.

pub(crate) mod login_ways;
pub(crate) mod passfile;
pub(crate) mod url;

use std::fmt;
use std::time::Duration;

use postrider_core::{Error, Result};
use tokio_postgres::Config;

use crate::options::passfile::password_of;
use crate::options::url::{Parts, known};
use crate::replication::Large;
use crate::server::pooler::Pooler;
use crate::server::statement::Schema;
use crate::server::tls::Tls;

/// How a [`PostgresStore`](crate::PostgresStore) is opened.
///
/// ```
/// use std::time::Duration;
/// use postrider_postgres::PostgresOptions;
/// let options = PostgresOptions::from_url("postgres://app@localhost/shop")?.lease(Duration::from_secs(3));
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone)]
pub struct PostgresOptions {
    pub(crate) config: Config,
    pub(crate) tls: Tls,
    pub(crate) schema: Schema,
    pub(crate) migrate: bool,
    pub(crate) durability: Durability,
    pub(crate) lease: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) straggler_budget: i64,
    pub(crate) pooler: Pooler,
    pub(crate) rest_max: Duration,
    pub(crate) source: Source,
    pub(crate) wal_budget: (u64, OverBudget),
    pub(crate) large: Large,
}

/// What must be on the server's disk before an event is handed out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// The event's commit, even if its producer commits asynchronously: what was delivered cannot vanish in a
    /// crash of the server.
    #[default]
    Flush,
    /// Whatever the producers wait for. For those that all commit synchronously, or when a delivered event
    /// may vanish.
    Trust,
}

/// Where the log is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Source {
    /// In its table, by asking.
    #[default]
    Poll,
    /// In the server's write-ahead log, through a replication slot, and in the table whenever that cannot be.
    Wal,
}

/// What to do about a slot for which the server keeps more of its log than the budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum OverBudget {
    /// Tell people, and go on.
    #[default]
    Alarm,
    /// Read the table, and leave the slot to the operator of the server.
    Leave,
    /// Read the table, and drop the slot. The relay makes it again once the server can make one.
    Drop,
}

/// What to do about a server on which producers can prepare their transactions. PostgreSQL refuses to prepare one
/// that notifies, so that producers who do would fail whenever relays sleep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TwoPhase {
    /// Not to let producers wake relays there.
    #[default]
    Refuse,
    /// Nothing: those of this store never do.
    Unused,
}

impl PostgresOptions {
    /// The database that a URL names: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. The parameter
    /// `schema=NAME` chooses another schema than `postrider`.
    ///
    /// `sslmode`, `sslrootcert`, `sslcert` and `sslkey` mean what they mean to libpq, but for the default: a server on
    /// another machine has to prove that it is the one (`verify-full`), and connections within this machine are
    /// plain. `pooler` is [`Pooler`]'s: `detect`, `transaction` or `none`. All other parameters are those of the client
    /// library, such as `channel_binding=require`. User and password end at the last `@` before the first `/`.
    ///
    /// Errors never repeat the URL, since it may hold a password.
    pub fn from_url(url: &str) -> Result<Self> {
        let Ours { rest: url, schema, tls, pooler } = Ours::take(url)?;
        let config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            // Its message names the parameter that is wrong, which is one that it knows, and never a value.
            Error::invalid(format!(
                "the store's URL cannot be read ({error}): write postgres://USER@HOST/DATABASE"
            ))
        })?;
        if config.get_user().is_none() && config.get_hosts().is_empty() {
            return Err(Error::invalid("the store's URL names no host: write postgres://USER@HOST/DATABASE"));
        }
        let mut options = Self {
            config,
            tls,
            schema: Schema::new(schema.as_deref().unwrap_or("postrider"))?,
            migrate: true,
            durability: Durability::default(),
            lease: Duration::from_secs(8),
            call_timeout: Duration::from_secs(30),
            straggler_budget: 1_000_000,
            pooler,
            rest_max: Duration::from_secs(5),
            source: Source::default(),
            wal_budget: (10 * 1024 * 1024 * 1024, OverBudget::default()),
            large: Large::Whole,
        };
        options.prepare();
        Ok(options)
    }

    /// Takes the password, if the URL has none, from where libpq would: `PGPASSWORD`, or the file that
    /// `PGPASSFILE` names, or `~/.pgpass`. `postrider` does this for its store. A program should say where
    /// its passwords come from, so that [`from_url`](Self::from_url) looks nowhere else.
    #[must_use]
    pub fn libpq_password(mut self) -> Self {
        if self.config.get_password().is_none()
            && let Some(password) = password_of(&self.config)
        {
            self.config.password(password);
        }
        self
    }

    /// A peer that has vanished is noticed within half a minute, and not when the kernel gives up.
    fn prepare(&mut self) {
        let seconds = Duration::from_secs;
        self.config
            .keepalives(true)
            .keepalives_idle(seconds(10))
            .keepalives_interval(seconds(5))
            .keepalives_retries(3)
            .tcp_user_timeout(seconds(20));
        if self.config.get_connect_timeout().is_none() {
            self.config.connect_timeout(seconds(10));
        }
    }

    /// Another schema than `postrider`: several stores may share a database.
    pub fn schema(mut self, name: &str) -> Result<Self> {
        self.schema = Schema::new(name)?;
        Ok(self)
    }

    /// The schema's name.
    pub fn schema_name(&self) -> &str {
        self.schema.name()
    }

    /// Whether opening brings the schema up to date, which is the default. Otherwise it must be already.
    #[must_use]
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// What must be on disk before an event is handed out.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// How long a member that does not beat is believed to live: 8 seconds by default, at least one.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_secs(1));
        self
    }

    /// How long one call may take before its connection is given up.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Where the log is read: in its table by default.
    #[must_use]
    pub fn source(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// How many bytes of its log the server may keep for a slot of the store, and what to do about more:
    /// people are told beyond 10 GiB by default.
    #[must_use]
    pub fn wal_budget(mut self, bytes: u64, over: OverBudget) -> Self {
        self.wal_budget = (bytes, over);
        self
    }

    /// Whether the server tells of a transaction that is too large for its memory while that is open, instead
    /// of keeping it on its disk until it commits. Its events are read from the table either way.
    #[must_use]
    pub fn wal_streaming(mut self, streaming: bool) -> Self {
        self.large = if streaming { Large::Ahead } else { Large::Whole };
        self
    }

    /// Whether a pooler stands between this process and the server; found out by default.
    #[must_use]
    pub fn pooler(mut self, pooler: Pooler) -> Self {
        self.pooler = pooler;
        self
    }

    /// Among how many ids the events of a transaction that was open for long may be looked for before people
    /// are told to make an index for it: a million by default, which takes about an eighth of a second once
    /// they are in memory. The log and `postrider store check` say which index.
    #[must_use]
    pub fn straggler_budget(mut self, ids: u32) -> Self {
        self.straggler_budget = i64::from(ids);
        self
    }

    /// How long a relay that producers wake goes without a look of its own: 5 seconds by default, at least one, at
    /// most a day. This is how late an event can be whose wake was lost.
    #[must_use]
    pub fn rest_max(mut self, rest_max: Duration) -> Self {
        self.rest_max = rest_max.clamp(Duration::from_secs(1), Duration::from_secs(24 * 3600));
        self
    }
}

/// Host, port and database; never user or password.
impl fmt::Display for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use tokio_postgres::config::Host;
        f.write_str("postgres://")?;
        match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => f.write_str(host)?,
            Some(Host::Unix(path)) => write!(f, "{}", path.display())?,
            None => f.write_str("localhost")?,
        }
        if let Some(port) = self.config.get_ports().first().filter(|port| **port != 5432) {
            write!(f, ":{port}")?;
        }
        write!(f, "/{}", self.config.get_dbname().unwrap_or_default())?;
        if self.schema.name() != "postrider" {
            write!(f, "?schema={}", self.schema.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresOptions({self})")
    }
}

/// The parameters of a URL that are ours to read: the client library would refuse them.
struct Ours {
    /// The URL without them.
    rest: String,
    schema: Option<String>,
    tls: Tls,
    pooler: Pooler,
}

impl Ours {
    fn take(url: &str) -> Result<Self> {
        let Parts { base, parameters } = Parts::of(url)?;
        let mut ours = Self { rest: base, schema: None, tls: Tls::default(), pooler: Pooler::default() };
        let mut separator = '?';
        for (index, (name, written)) in parameters.iter().enumerate() {
            let value = percent_decoded(written)?;
            if name == "schema" {
                ours.schema = Some(value);
            } else if name == "pooler" {
                ours.pooler = value.parse()?;
            } else if !ours.tls.take(name, &value)? {
                known(name, index + 1)?;
                ours.rest.push(separator);
                ours.rest.extend([name.as_str(), "=", written.as_str()]);
                separator = '&';
            }
        }
        ours.tls.check()?;
        Ok(ours)
    }
}

/// `%2F` and its like are characters that a URL has another use for.
fn percent_decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut pieces = text.split('%');
    bytes.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        let code = piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let code =
            code.ok_or_else(|| Error::invalid("the store's URL has a `%` without two digits: write %25"))?;
        bytes.push(code);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid("the store's URL is not UTF-8 behind its `%` codes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_database_and_schema_and_is_shown_without_secrets() {
        let options = PostgresOptions::from_url(
            "postgres://app:secret@db.local:5433/shop?schema=mail&connect_timeout=3",
        )
        .unwrap();
        assert_eq!(options.to_string(), "postgres://db.local:5433/shop?schema=mail");
        assert!(!format!("{options:?}").contains("secret"));
        assert_eq!(options.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        let odd = PostgresOptions::from_url("postgres://app:p@secret@db.local/shop").unwrap();
        assert_eq!(odd.to_string(), "postgres://db.local/shop");
        assert_eq!(odd.config.get_password(), Some(&b"p@secret"[..]));
        let plain = PostgresOptions::from_url("postgres://localhost/shop").unwrap();
        assert_eq!(plain.to_string(), "postgres://localhost/shop");
    }

    #[test]
    fn names_of_files_may_hold_what_a_url_has_another_use_for() {
        assert_eq!(percent_decoded("%2Fetc/my%20ca%25.pem").unwrap(), "/etc/my ca%.pem");
        assert_eq!(percent_decoded("a").unwrap(), "a");
        assert!(percent_decoded("%ff").is_err());
    }

    #[test]
    fn a_bad_url_is_refused_without_repeating_it() {
        for bad in [
            "postgres://app:secret@h/db?nonsense=secret",
            "postgres://app:secret@h/db?secret",
            "postgres://app:x?secret@h/db",
            "postgres://app:x/secret@h/db",
            "postgres://",
            "postgres://h:secret/db",
            "postgres:app:secret@h",
        ] {
            let message = PostgresOptions::from_url(bad).unwrap_err().to_string();
            assert!(!message.contains("secret") && message.contains("postgres://"), "{message}");
        }
        assert!(PostgresOptions::from_url("postgres://h/db?schema=A%20B").is_err());
        for bad in ["postgres://h/db?sslrootcert=%2", "postgres://h/db?sslrootcert=%zz"] {
            let message = PostgresOptions::from_url(bad).unwrap_err().to_string();
            assert!(message.contains("write %25"), "{message}");
        }
    }
}
