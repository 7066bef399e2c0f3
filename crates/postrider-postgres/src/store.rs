//! The way in: what people do with a store, and the connection and transaction each call runs in.

use std::fmt;
use std::sync::Arc;

use postrider_core::Result;
use tokio::sync::{Mutex, Notify};

use crate::fetch::SharedTail;
use crate::holding::Holdings;
use crate::link::{Link, SharedLink};
use crate::log_rows::Appetite;
use crate::migrate;
use crate::options::PostgresOptions;
use crate::session::Role;

/// Postrider's tables in a PostgreSQL database. Cheap to clone; all clones are the same store.
///
/// It opens connections as it needs them, at most one for each of five purposes, and closes them when the last
/// clone is dropped. Producers emit through theirs.
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) id: String,
    pub(crate) options: Arc<PostgresOptions>,
    pub(crate) reader: SharedLink,
    pub(crate) writer: Link,
    pub(crate) keeper: Link,
    pub(crate) worker: Link,
    pub(crate) operator: Link,
    pub(crate) holdings: Holdings,
    /// Shared by all subscriptions of the process.
    pub(crate) tail: Mutex<SharedTail>,
    pub(crate) appetite: Appetite,
    /// Told when something was written through this store that workers of this process may want to see.
    pub(crate) wake: Notify,
}

impl PostgresStore {
    /// Connects, checks the server, and brings the schema up to date.
    pub async fn open(options: PostgresOptions) -> Result<Self> {
        let options = Arc::new(options);
        let operator = Link::new(Role::Operator, &options);
        let id = {
            let mut session = operator.session().await?;
            migrate::migrate(&mut session, &options).await?
        };
        let inner = Inner {
            id,
            reader: SharedLink::new(Role::Reader, &options),
            writer: Link::new(Role::Writer, &options),
            keeper: Link::new(Role::Keeper, &options),
            worker: Link::new(Role::Worker, &options),
            operator,
            holdings: Holdings::default(),
            tail: Mutex::default(),
            appetite: Appetite::default(),
            wake: Notify::new(),
            options,
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStore({})", self.inner.options)
    }
}
