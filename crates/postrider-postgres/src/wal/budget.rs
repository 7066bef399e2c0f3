//! How much of its log the server may keep for a slot, and what to do about more.

use std::fmt;
use std::time::Duration;

use postrider_core::Result;
use tokio::time::Instant;
use tracing::warn;

use crate::error::Doing;
use crate::options::{OverBudget, PostgresOptions};
use crate::server::session::{Ask, Session};

const WHAT: &str = "ask how much of the log is kept for slots";
/// How often the server is asked.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A slot of this store, as the server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotUse {
    pub(crate) name: String,
    pub(crate) active: bool,
    /// As the server says: `reserved`, `extended`, `unreserved` or `lost`.
    pub(crate) status: String,
    /// Bytes of its log that the server keeps for it.
    pub(crate) kept: u64,
    /// Who keeps the server from moving on although all is confirmed: the oldest transaction.
    pub(crate) oldest_pid: Option<i32>,
}

impl fmt::Display for SlotUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, status, kept, .. } = self;
        let mb = kept / (1024 * 1024);
        write!(f, "the server keeps {mb} MiB of its log for the slot `{name}` ({status})")?;
        match (self.active, self.oldest_pid) {
            (false, _) => f.write_str(", and nobody follows it"),
            (true, Some(pid)) => write!(f, "; the oldest transaction is that of pid {pid}"),
            (true, None) => Ok(()),
        }
    }
}

/// The slots of this store.
pub(crate) async fn slots(ask: &impl Ask, schema: &str) -> Result<Vec<SlotUse>> {
    let rows = ask.ask(sql!("wal/slot_use").where_wal_is(ask.wal_place()), &[&schema], WHAT).await?;
    let read = |row: &tokio_postgres::Row| {
        Ok(SlotUse {
            name: row.try_get(0)?,
            active: row.try_get(1)?,
            status: row.try_get(2)?,
            kept: row.try_get::<_, i64>(3)?.max(0) as u64,
            oldest_pid: row.try_get(4)?,
        })
    };
    rows.iter().map(read).collect::<Result<_, tokio_postgres::Error>>().doing(WHAT)
}

/// The budget of a slot.
#[derive(Debug)]
pub(super) struct Budget {
    schema: String,
    slot: String,
    max: u64,
    pub(super) over: OverBudget,
    looked_at: Option<Instant>,
    /// What the last look found.
    found: Option<String>,
}

impl Budget {
    pub(super) fn of(options: &PostgresOptions, slot: &str) -> Self {
        let (max, over) = options.wal_budget;
        let schema = options.schema.name().to_owned();
        Self { schema, slot: slot.to_owned(), max, over, looked_at: None, found: None }
    }

    /// What to say if more is kept; asks the server now and then.
    pub(super) async fn look(&mut self, session: &Session) -> Result<Option<String>> {
        if self.looked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            self.looked_at = Some(Instant::now());
            let slots = slots(session, &self.schema).await?;
            let over = slots.into_iter().find(|slot| slot.name == self.slot && slot.kept > self.max);
            let was_over = self.found.is_some();
            self.found = over.map(|slot| format!("{slot}, more than the budget"));
            if let Some(found) = self.found.as_ref().filter(|_| !was_over) {
                warn!("{found}");
            }
        }
        Ok(self.found.clone())
    }
}
