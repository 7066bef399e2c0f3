//! What the thread that reads owns beside its connection.

use std::collections::HashMap;

use postrider_core::subscription::SubscriptionId;
use rusqlite::Connection;

use crate::log::durability::WalFlush;
use crate::log::fetch::IdleFetch;

/// What the reading thread owns.
pub(crate) struct Reader {
    pub(crate) conn: Connection,
    pub(crate) flush: WalFlush,
    /// The last fetch of each subscription that found nothing.
    pub(crate) idle: HashMap<SubscriptionId, IdleFetch>,
}
