//! Whether this server does things in the order that the protocol rests on.
//!
//! None of it is written in PostgreSQL's manual: it is how it has always been. So every process that wants to read the
//! log tries it first, in a transaction that is rolled back, and refuses to work where it is not so.

use postrider_core::{Error, ErrorKind, Result};
use tracing::warn;

use crate::error::Doing;
use crate::server::session::Session;

const WHAT: &str = "test in which order the server works";

/// Makes a table like the log, whose first column notes what the sequence stood at when the row's xid would have been
/// fetched.
const SCRIPT: &str = include_str!("../../sql/scripts/self_test.sql");

/// Tries it.
pub(crate) async fn run(session: &mut Session) -> Result<()> {
    let tx = session.begin().await?;
    if let Err(error) = tx.run(SCRIPT, WHAT).await {
        if error.kind() == ErrorKind::ReadOnly {
            warn!(%error, "this role may not make temporary tables: the order of the server's work is not tested");
            return tx.rollback(WHAT).await;
        }
        return Err(error);
    }
    let row = tx.query_one(sql!("server/self_test"), &[], WHAT).await?;
    let (wrong, first, second): (i64, i64, i64) =
        (row.try_get(0).doing(WHAT)?, row.try_get(1).doing(WHAT)?, row.try_get(2).doing(WHAT)?);
    tx.rollback(WHAT).await?;
    if wrong == 0 && first < second {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Incompatible,
        "this server draws an event's id before it fetches its transaction's number, or reads a sequence after it has \
         called functions: reading the log would lose events. Use a released PostgreSQL from 14 to 18, and report this",
    ))
}
