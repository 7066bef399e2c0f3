//! Who the store is, and whether it is at home on this server.
//!
//! | what happened | home | what follows |
//! |---|---|---|
//! | a crash, a restart | the same | nothing |
//! | failover, restore to a point in time | another timeline | a new identity and a line in the audit; the log goes on |
//! | a copy of the database on the same server | another database | the same |
//! | dump and restore, `pg_upgrade`, logical replication | another server | refused until adopted, see `adopt.rs` |

use std::sync::{PoisonError, RwLock};

use postrider_core::{Error, ErrorKind, Result};
use tracing::warn;

use crate::error::Doing;
use crate::options::PostgresOptions;
use crate::server::session::Tx;

const WHAT: &str = "find out who this store is";

/// The identity as it was last seen. It is part of every deduplication id.
pub(crate) struct Identity(RwLock<String>);

impl Identity {
    pub(crate) fn new(id: String) -> Self {
        Self(RwLock::new(id))
    }

    pub(crate) fn get(&self) -> String {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes note of who the store is now.
    pub(crate) fn set(&self, id: String, options: &PostgresOptions) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if *known != id {
            warn!(store = %options, was = %known, is = %id, "a failover or restore has made this another store; going on");
            *known = id;
        }
    }
}

/// The store's identity here; a new one after a failover. Refused on a server that has nothing to do with the
/// store's xids.
pub(crate) async fn identify(tx: &Tx<'_>, options: &PostgresOptions) -> Result<String> {
    let (id, is_home) = look(tx).await?;
    if is_home {
        return Ok(id);
    }
    Err(Error::new(
        ErrorKind::Moved,
        format!(
            "{options} was restored from a dump, upgraded or replicated from another server: its transaction numbers \
             mean nothing here, so that events could be lost. Stop the producers, run `postrider store adopt` once, and \
             go on"
        ),
    ))
}

/// The store's identity, and whether this server is its home.
pub(crate) async fn look(tx: &Tx<'_>) -> Result<(String, bool)> {
    let row = tx.query_one(sql!("server/identify"), &[], WHAT).await?;
    Ok((row.try_get(0).doing(WHAT)?, row.try_get(1).doing(WHAT)?))
}
