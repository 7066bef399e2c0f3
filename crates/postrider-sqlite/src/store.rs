//! The way in: which call runs on which thread, and in which transaction?

mod admin;
mod log;
mod queue;
mod schedule;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use postrider_core::{Result, Timestamp};
use rusqlite::Transaction;
use tokio::sync::Notify;

use crate::audit::Auditor;
use crate::file::connection::{Commit, ConnectionThread, Writer, read};
use crate::file::{migrate, open};
use crate::log::durability::WalFlush;
use crate::log::reader::Reader;
use crate::options::SqliteOptions;
use crate::ownership::liveness::{Observer, Process};

/// Postrider's tables in an SQLite file. Cheap to clone; all clones are the same store.
///
/// It has two connections of its own, which close when the last clone is dropped. Producers emit through
/// theirs.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

struct Inner {
    id: String,
    options: SqliteOptions,
    process: Process,
    wal: PathBuf,
    writer: ConnectionThread<Writer>,
    reader: ConnectionThread<Reader>,
    wake: Notify,
    /// Where the next bite of retention begins.
    prune_from: AtomicI64,
}

impl SqliteStore {
    /// Opens the file, checks it, and brings its schema up to date.
    ///
    /// Whatever makes the file unfit is found before anything is written: the error says what it is and
    /// what to do.
    pub async fn open(options: SqliteOptions) -> Result<Self> {
        let for_writer = options.clone();
        let (writer, (id, wal)) = ConnectionThread::start("writer", move || {
            let conn = open::open_writer(&for_writer)?;
            let found = (migrate::store_id(&conn)?, open::wal_path(&for_writer)?);
            Ok((Writer::new(conn), found))
        })
        .await?;
        let for_reader = options.clone();
        let flush = WalFlush::new(wal.clone());
        let (reader, ()) = ConnectionThread::start("reader", move || {
            let conn = open::open_reader(&for_reader)?;
            Ok((Reader { conn, flush, idle: HashMap::new() }, ()))
        })
        .await?;
        let inner = Inner {
            id,
            options,
            process: Process::current(),
            wal,
            writer,
            reader,
            wake: Notify::new(),
            prune_from: AtomicI64::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Closes the store and waits until that is done, if this is its last clone. The last connection that
    /// closes moves the WAL into the file, so that the file alone is complete. Without this call the
    /// connections close on their own threads, which the end of the process may forestall.
    pub async fn close(self) {
        if let Some(inner) = Arc::into_inner(self.inner) {
            inner.reader.close().await;
            inner.writer.close().await;
        }
    }

    fn now(&self) -> Timestamp {
        self.inner.options.clock.now()
    }

    fn observer(&self) -> Observer {
        Observer {
            process: self.inner.process.clone(),
            uptime: self.inner.options.clock.uptime(),
            lease: self.inner.options.lease,
        }
    }

    fn uptime_us(&self) -> i64 {
        self.inner.options.clock.uptime().as_micros() as i64
    }

    fn auditor(&self, actor: &str) -> Auditor {
        Auditor { actor: actor.to_owned(), now: self.now() }
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.inner.reader.run(|reader| read(&reader.conn, work)).await
    }

    async fn write<T: Send + 'static>(
        &self,
        commit: Commit,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.inner.writer.run(move |writer| writer.transaction(commit, work)).await
    }

    /// What people change: flushed, and worth a look for all workers of this process.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let value = self.write(Commit::Flushed, work).await?;
        self.give_wake();
        Ok(value)
    }

    /// Lets all workers of this process look.
    fn give_wake(&self) {
        self.inner.wake.notify_waiters();
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("options", &self.inner.options).finish_non_exhaustive()
    }
}
