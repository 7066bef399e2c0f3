//! How often relays have changed between a slot and the table, for people to see.

use postrider_core::{Result, Timestamp};
use tracing::debug;

use super::Reading;
use crate::error::Doing;
use crate::server::session::Ask;
use crate::server::values::At;
use crate::store::Inner;

const WHAT: &str = "count changes between slot and table";

/// What is known of the changes of a slot's readers.
pub(crate) struct Switches {
    pub(crate) slot: String,
    pub(crate) reading: String,
    pub(crate) count: u64,
    pub(crate) at: Timestamp,
}

/// Writes down that the source has changed, `unsaved` times since that was last written. Nothing depends on
/// it: what cannot be written is written with the next one.
pub(super) async fn save(store: &Inner, now: &Reading, unsaved: &mut i64) {
    let reading = match now {
        Reading::Stream { .. } => "the write-ahead log".to_owned(),
        Reading::Table => "the table".to_owned(),
        Reading::Without { why } => format!("the table: {why}"),
    };
    let saving = async {
        let mut session = store.operator.session().await?;
        session
            .change(sql!("wal/switch_put"), &[&store.options.schema.name(), &reading, &*unsaved], WHAT)
            .await
    };
    match saving.await {
        Ok(_) => *unsaved = 0,
        Err(error) => debug!(%error, "a change of the source was not written down"),
    }
}

/// All that is known.
pub(crate) async fn switches(ask: &impl Ask) -> Result<Vec<Switches>> {
    let rows = ask.ask(sql!("wal/switch_list"), &[], WHAT).await?;
    let read = |row: &tokio_postgres::Row| {
        Ok(Switches {
            slot: row.try_get(0)?,
            reading: row.try_get(1)?,
            count: row.try_get::<_, i64>(2)? as u64,
            at: row.try_get::<_, At>(3)?.0,
        })
    };
    rows.iter().map(read).collect::<Result<_, tokio_postgres::Error>>().doing(WHAT)
}
