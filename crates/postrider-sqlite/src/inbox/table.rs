//! A table into which events are delivered: what [`postrider_core::inbox`] promises, on SQLite.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postrider_core::inbox::{Refused, TableName};
use postrider_core::{Delivery, Error, ErrorKind, Key, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::error::Doing;

/// For each event of a batch so many old ids are forgotten, so that they become fewer whenever they can.
const FORGET_RATIO: usize = 2;

/// A connection to the database of an inbox.
pub struct InboxTable {
    conn: Connection,
    path: PathBuf,
    /// Which file was opened.
    file: (u64, u64),
    name: TableName,
    see: String,
    add: String,
    forget: String,
}

impl InboxTable {
    /// Opens the file, and makes it if it is absent. A call waits for other writers for up to `busy_timeout`.
    ///
    /// How others may read it meanwhile (`journal_mode`) is left as it is; a file that is made here has a
    /// write-ahead log.
    pub fn open(path: &Path, name: &TableName, busy_timeout: Duration) -> Result<Self> {
        let what = format!("open the inbox `{}`", path.display());
        if name.schema().is_some() {
            return Err(Error::invalid(format!("SQLite has no schemas: name the table `{}`", name.table())));
        }
        let is_new = !path.exists();
        // Absolute, so that SQLite never takes a name such as `file:x` for something else.
        let path = std::path::absolute(path)
            .map_err(|error| Error::invalid("the inbox's path cannot be made absolute").with_source(error))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(&path, flags).doing(&what)?;
        conn.busy_timeout(busy_timeout).doing(&what)?;
        // A commit is on disk when it returns, whatever the journal.
        conn.pragma_update(None, "synchronous", "extra").doing(&what)?;
        if is_new {
            conn.pragma_update(None, "journal_mode", "wal").doing(&what)?;
        }
        let file = metadata(&path).map(|found| (found.dev(), found.ino()))?;
        let [see, add, forget] =
            [sql!("inbox/inbox_see"), sql!("inbox/inbox_add"), sql!("inbox/inbox_forget")]
                .map(|text| fit(text, name));
        Ok(Self { conn, path, file, name: name.clone(), see, add, forget })
    }

    /// Whether both tables are in a file, which is not changed for it.
    pub fn is_there(path: &Path, name: &TableName) -> Result<bool> {
        let what = format!("look into the inbox `{}`", path.display());
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags).doing(&what)?;
        let names = (name.table(), name.seen());
        let found: i64 = conn.query_row(sql!("inbox/inbox_look"), names, |row| row.get(0)).doing(&what)?;
        Ok(found == 2)
    }

    /// Makes the tables that are not there.
    pub fn make(&mut self) -> Result<()> {
        let what = format!("make the tables of the inbox `{}`", self.name);
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate).doing(&what)?;
        for statement in
            [sql!("inbox/inbox_event_make"), sql!("inbox/inbox_seen_make"), sql!("inbox/inbox_seen_index")]
        {
            tx.execute(&fit(statement, &self.name), ()).doing(&what)?;
        }
        tx.commit().doing(&what)
    }

    /// Whether the path still names the file that was opened. One that was moved or removed would take events
    /// that no reader finds.
    pub fn is_in_place(&self) -> bool {
        metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.file)
    }

    /// Delivers a batch, and says how many of it were new. Durable on return. Some ids that were seen longer
    /// ago than `remember` are forgotten.
    pub fn deliver(&mut self, batch: &[Delivery], remember: Duration) -> Result<u64, Refused> {
        self.try_deliver(batch, remember).map_err(|error| {
            let is_content = is_content(&error);
            let told = Err::<(), _>(error).doing(&format!("deliver into the inbox `{}`", self.name));
            let error = told.err().unwrap_or_else(|| Error::new(ErrorKind::Internal, "an error stays one"));
            if is_content { Refused::Content(error) } else { Refused::Table(error) }
        })
    }

    fn try_deliver(&mut self, batch: &[Delivery], remember: Duration) -> rusqlite::Result<u64> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut count = 0;
        {
            let mut see = tx.prepare_cached(&self.see)?;
            let mut add = tx.prepare_cached(&self.add)?;
            for delivery in batch {
                let dedup_id = delivery.dedup_id();
                if see.execute([&dedup_id])? == 0 {
                    continue;
                }
                count += 1;
                add.execute((
                    dedup_id,
                    delivery.id.0,
                    delivery.topic.as_str(),
                    delivery.kind.as_str(),
                    delivery.key.as_ref().map(Key::as_str),
                    &delivery.payload[..],
                    delivery.headers.to_json().unwrap_or_else(|| "{}".to_owned()),
                    delivery.created_at.as_micros(),
                    &delivery.origin.subscription,
                ))?;
            }
            let seconds = i64::try_from(remember.as_secs()).unwrap_or(i64::MAX);
            tx.prepare_cached(&self.forget)?.execute((seconds, (batch.len() * FORGET_RATIO) as i64))?;
        }
        tx.commit()?;
        Ok(count)
    }
}

fn metadata(path: &Path) -> Result<Metadata> {
    std::fs::metadata(path).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("cannot find the inbox `{}`: {error}", path.display()))
    })
}

/// A statement for the tables of this name.
fn fit(statement: &str, name: &TableName) -> String {
    let [event, seen] = [name.table().to_owned(), name.seen()].map(|table| format!("\"{table}\""));
    let index = format!("\"{}_seen_at\"", name.table());
    // One name may hold what stands for another, so none is put in before all places are known.
    let places = statement
        .replace("inbox_seen", "\u{1}")
        .replace("inbox_index", "\u{2}")
        .replace("inbox_event", "\u{3}");
    places.replace('\u{1}', &seen).replace('\u{2}', &index).replace('\u{3}', &event)
}

/// Whether SQLite objects to a value and not to the state of things: a constraint or a trigger of the
/// receiver's, or its size.
fn is_content(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch)
    )
}
