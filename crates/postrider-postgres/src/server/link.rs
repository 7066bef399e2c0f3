//! A place for one connection: made when it is first needed, and again after it was lost.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use postrider_core::Result;
use tokio::sync::{Mutex, MutexGuard};
use tracing::info;

use crate::options::PostgresOptions;
use crate::server::pooler::Way;
use crate::server::session::{Role, Session};

/// For transactions: one caller at a time.
pub(crate) struct Link {
    role: Role,
    options: Arc<PostgresOptions>,
    way: Arc<Way>,
    session: Mutex<Option<Session>>,
}

impl Link {
    pub(crate) fn new(role: Role, options: &Arc<PostgresOptions>, way: &Arc<Way>) -> Self {
        Self { role, options: Arc::clone(options), way: Arc::clone(way), session: Mutex::new(None) }
    }

    /// The session, connected.
    pub(crate) async fn session(&self) -> Result<Linked<'_>> {
        let mut session = self.session.lock().await;
        if !session.as_ref().is_some_and(Session::is_usable) {
            let again = session.take().is_some();
            *session = Some(Box::pin(Session::connect(&self.options, &self.way, self.role)).await?);
            if again {
                info!(role = ?self.role, "connected again");
            }
        }
        Ok(Linked { session })
    }
}

/// A session that is ours until it is dropped.
pub(crate) struct Linked<'a> {
    session: MutexGuard<'a, Option<Session>>,
}

impl Deref for Linked<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("a link is handed out connected")
    }
}

impl DerefMut for Linked<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("a link is handed out connected")
    }
}

/// For single statements: any number of callers at a time, whose statements are sent back to back.
pub(crate) struct SharedLink {
    role: Role,
    options: Arc<PostgresOptions>,
    way: Arc<Way>,
    session: Mutex<Option<Arc<Session>>>,
}

impl SharedLink {
    pub(crate) fn new(role: Role, options: &Arc<PostgresOptions>, way: &Arc<Way>) -> Self {
        Self { role, options: Arc::clone(options), way: Arc::clone(way), session: Mutex::new(None) }
    }

    /// The session, connected.
    pub(crate) async fn session(&self) -> Result<Arc<Session>> {
        let mut held = self.session.lock().await;
        if let Some(session) = held.as_ref().filter(|session| session.is_usable()) {
            return Ok(Arc::clone(session));
        }
        let again = held.take().is_some();
        let session = Arc::new(Box::pin(Session::connect(&self.options, &self.way, self.role)).await?);
        if again {
            info!(role = ?self.role, "connected again");
        }
        *held = Some(Arc::clone(&session));
        Ok(session)
    }
}
