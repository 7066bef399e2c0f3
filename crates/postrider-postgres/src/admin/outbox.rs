//! Outbox tables of other programs: a trigger makes events of their rows, in the transactions that insert them.
//!
//! What is attached is what has the trigger. Nothing else says it, so that nothing can say otherwise.

use postrider_core::Result;

use crate::admin::audit::Entry;
use crate::error::Doing;
use crate::server::session::Tx;

const WHAT: &str = "attach an outbox table";

/// An outbox table, and which of its columns are what. They are named as Debezium's event router expects them
/// unless said otherwise.
///
/// ```
/// use postrider_postgres::Outbox;
/// let outbox = Outbox::new("public.outbox").topic_prefix("").header("tenant");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outbox {
    table: String,
    id: String,
    topic: String,
    key: String,
    kind: String,
    payload: String,
    headers: Vec<String>,
    topic_prefix: String,
    existing: bool,
}

impl Outbox {
    /// A table, by its name as SQL has it.
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            id: "id".to_owned(),
            topic: "aggregatetype".to_owned(),
            key: "aggregateid".to_owned(),
            kind: "type".to_owned(),
            payload: "payload".to_owned(),
            headers: Vec::new(),
            topic_prefix: "outbox.event.".to_owned(),
            existing: false,
        }
    }

    /// The column that becomes the header `id`.
    #[must_use]
    pub fn id(mut self, column: impl Into<String>) -> Self {
        self.id = column.into();
        self
    }

    /// The column that becomes the topic, behind the prefix.
    #[must_use]
    pub fn topic(mut self, column: impl Into<String>) -> Self {
        self.topic = column.into();
        self
    }

    /// The column that becomes the key.
    #[must_use]
    pub fn key(mut self, column: impl Into<String>) -> Self {
        self.key = column.into();
        self
    }

    /// The column that becomes the type.
    #[must_use]
    pub fn kind(mut self, column: impl Into<String>) -> Self {
        self.kind = column.into();
        self
    }

    /// The column that becomes the payload: as it is if it holds bytes, else as text.
    #[must_use]
    pub fn payload(mut self, column: impl Into<String>) -> Self {
        self.payload = column.into();
        self
    }

    /// Another column that becomes a header of its name.
    #[must_use]
    pub fn header(mut self, column: impl Into<String>) -> Self {
        self.headers.push(column.into());
        self
    }

    /// What topics begin with: `outbox.event.` by default.
    #[must_use]
    pub fn topic_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.topic_prefix = prefix.into();
        self
    }

    /// Makes events of the rows that are in the table already, too.
    #[must_use]
    pub fn existing(mut self, existing: bool) -> Self {
        self.existing = existing;
        self
    }
}

/// Makes events of a table's rows from now on; how many were made of those that were there.
pub(crate) async fn outbox_attach(tx: &Tx<'_>, outbox: &Outbox, actor: &str) -> Result<u64> {
    let Outbox { table, id, topic, key, kind, payload, headers, topic_prefix, existing } = outbox;
    // Producers queue behind a statement that waits for their table.
    tx.run("set local lock_timeout = '2s'", WHAT).await?;
    let row = tx
        .query_one(
            sql!("admin/outbox/outbox_attach"),
            &[table, id, topic, key, kind, payload, headers, topic_prefix, existing],
            WHAT,
        )
        .await?;
    let events: i64 = row.try_get(0).doing(WHAT)?;
    Entry { actor, action: "outbox attach", detail: Some(table) }.write_of_store(tx).await?;
    Ok(events as u64)
}

/// Leaves a table alone from now on; whether it was attached.
pub(crate) async fn outbox_detach(tx: &Tx<'_>, table: &str, actor: &str) -> Result<bool> {
    let what = "detach an outbox table";
    tx.run("set local lock_timeout = '2s'", what).await?;
    let detached =
        tx.query_one(sql!("admin/outbox/outbox_detach"), &[&table], what).await?.try_get(0).doing(what)?;
    if detached {
        Entry { actor, action: "outbox detach", detail: Some(table) }.write_of_store(tx).await?;
    }
    Ok(detached)
}

/// The tables that are attached.
pub(crate) async fn outbox_list(tx: &Tx<'_>) -> Result<Vec<String>> {
    let what = "list the outbox tables";
    let rows = tx.query(sql!("admin/outbox/outbox_list"), &[&tx.schema().name()], what).await?;
    rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().doing(what)
}
