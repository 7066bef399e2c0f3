//! Which database an inbox is in, and how it is spoken to.

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "inbox-sqlite")]
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use postrider_core::inbox::{Refused, TableName};
use postrider_core::{Delivery, Error, ErrorKind, Result};
#[cfg(feature = "inbox-postgres")]
use postrider_postgres::{PostgresOptions, inbox::InboxTable as PostgresTable};
#[cfg(feature = "inbox-sqlite")]
use postrider_sqlite::inbox::InboxTable as SqliteTable;

use super::InboxOptions;

/// Where an inbox is. Shown without user and password.
#[derive(Debug)]
pub(super) enum Database {
    #[cfg(feature = "inbox-postgres")]
    Postgres(Box<PostgresOptions>),
    #[cfg(feature = "inbox-sqlite")]
    Sqlite(PathBuf),
}

/// A connection that all who send share.
#[derive(Clone)]
pub(super) enum Connection {
    #[cfg(feature = "inbox-postgres")]
    Postgres(Arc<PostgresTable>),
    #[cfg(feature = "inbox-sqlite")]
    Sqlite(Arc<Mutex<SqliteTable>>),
}

impl Database {
    /// Errors never repeat the URL, since it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self> {
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => postgres(url),
            Some("sqlite") => sqlite(url),
            _ => Err(Error::invalid(
                "sink `inbox` needs a database: write inbox:postgres://USER@HOST/DATABASE or inbox:sqlite://FILE",
            )),
        }
    }

    /// Whether a table can have this name there.
    pub(super) fn check_name(&self, name: &TableName) -> Result<()> {
        match self {
            #[cfg(feature = "inbox-postgres")]
            Self::Postgres(_) => Ok(()),
            #[cfg(feature = "inbox-sqlite")]
            Self::Sqlite(_) if name.schema().is_none() => Ok(()),
            #[cfg(feature = "inbox-sqlite")]
            Self::Sqlite(_) => Err(Error::invalid(format!(
                "SQLite has no schemas: name the table of sink `inbox` `{}`",
                name.table()
            ))),
        }
    }

    /// Connects, and makes the tables if they are not there.
    pub(super) async fn connect(&self, options: &InboxOptions) -> Result<Connection> {
        match self {
            #[cfg(feature = "inbox-postgres")]
            Self::Postgres(database) => {
                let connecting = async {
                    let mut table = PostgresTable::connect(database, &options.table).await?;
                    if !table.is_there().await? {
                        table.make().await?;
                    }
                    Ok(Connection::Postgres(Arc::new(table)))
                };
                let connected = tokio::time::timeout(options.time_limit.get(), connecting).await;
                connected.unwrap_or_else(|_| Err(late(&self.to_string(), options)))
            }
            #[cfg(feature = "inbox-sqlite")]
            Self::Sqlite(path) => {
                let (path, name, limit) = (path.clone(), options.table.clone(), options.time_limit.get());
                blocking(move || {
                    let mut table = SqliteTable::open(&path, &name, limit)?;
                    // Only if they are missing, since it waits for other writers.
                    if !SqliteTable::is_there(&path, &name)? {
                        table.make()?;
                    }
                    Ok(Connection::Sqlite(Arc::new(Mutex::new(table))))
                })
                .await
            }
        }
    }

    /// Whether the tables are there, with sentences about the database.
    pub(super) async fn look(&self, options: &InboxOptions, found: &mut Vec<String>) -> Result<bool> {
        match self {
            #[cfg(feature = "inbox-postgres")]
            Self::Postgres(database) => {
                let table = PostgresTable::connect(database, &options.table).await?;
                found.push(format!("reaches {self}"));
                table.is_there().await
            }
            #[cfg(feature = "inbox-sqlite")]
            Self::Sqlite(path) if !path.exists() => {
                check_folder(path)?;
                found.push(format!("would create the file `{}`", path.display()));
                Ok(false)
            }
            #[cfg(feature = "inbox-sqlite")]
            Self::Sqlite(path) => {
                let (path, name) = (path.clone(), options.table.clone());
                blocking(move || SqliteTable::is_there(&path, &name)).await
            }
        }
    }
}

impl Connection {
    pub(super) fn is_good(&self) -> bool {
        match self {
            #[cfg(feature = "inbox-postgres")]
            Self::Postgres(table) => !table.is_closed(),
            // Its next use finds that out; a look at it now would wait for the task that uses it.
            #[cfg(feature = "inbox-sqlite")]
            Self::Sqlite(_) => true,
        }
    }

    pub(super) async fn deliver(&self, part: &[Delivery], options: &InboxOptions) -> Result<(), Refused> {
        match self {
            #[cfg(feature = "inbox-postgres")]
            Self::Postgres(table) => {
                let delivery = table.deliver(part, options.remember);
                let delivered = tokio::time::timeout(options.time_limit.get(), delivery).await;
                let late = |_| Err(Refused::Table(late(&format!("the inbox `{}`", options.table), options)));
                delivered.unwrap_or_else(late).map(drop)
            }
            // It cannot be cancelled: it ends by itself, and the next delivery waits for it.
            #[cfg(feature = "inbox-sqlite")]
            Self::Sqlite(table) => {
                let (table, part, remember) = (Arc::clone(table), part.to_vec(), options.remember);
                let delivering = tokio::task::spawn_blocking(move || {
                    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
                    if !table.is_in_place() {
                        let gone = "the file of the inbox was moved or removed: it will be opened anew";
                        return Err(Refused::Table(Error::new(ErrorKind::Unavailable, gone)));
                    }
                    table.deliver(&part, remember).map(drop)
                });
                delivering.await.unwrap_or_else(|_| Err(Refused::Table(stopped())))
            }
        }
    }
}

#[cfg(feature = "inbox-postgres")]
fn postgres(url: &str) -> Result<Database> {
    let options = PostgresOptions::from_url(url)
        .map_err(|error| Error::invalid(format!("the `url` of sink `inbox`: {error}")))?;
    // It names the schema of a store, of which an inbox has nothing.
    if options.schema_name() != "postrider" {
        return Err(Error::invalid(
            "the schema of an inbox is part of its table's name: write table=SCHEMA.TABLE",
        ));
    }
    Ok(Database::Postgres(Box::new(options)))
}

#[cfg(feature = "inbox-postgres")]
fn late(who: &str, options: &InboxOptions) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{who} has not answered for {}", options.time_limit))
}

#[cfg(not(feature = "inbox-postgres"))]
fn postgres(_: &str) -> Result<Database> {
    Err(Error::invalid(
        "this build has no inbox on PostgreSQL: build Postrider with the feature `inbox-postgres`",
    ))
}

#[cfg(feature = "inbox-sqlite")]
fn sqlite(url: &str) -> Result<Database> {
    let options = postrider_sqlite::SqliteOptions::from_url(url)
        .map_err(|error| Error::invalid(format!("the `url` of sink `inbox`: {error}")))?;
    Ok(Database::Sqlite(options.path().to_owned()))
}

#[cfg(not(feature = "inbox-sqlite"))]
fn sqlite(_: &str) -> Result<Database> {
    Err(Error::invalid("this build has no inbox on SQLite: build Postrider with the feature `inbox-sqlite`"))
}

#[cfg(feature = "inbox-sqlite")]
fn check_folder(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        None => Ok(()),
        Some(folder) => {
            let shown = folder.display();
            let message = format!(
                "the directory `{shown}` does not exist: create it, or correct the `url` of the inbox"
            );
            Err(Error::new(ErrorKind::NotFound, message))
        }
    }
}

#[cfg(feature = "inbox-sqlite")]
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(stopped()))
}

#[cfg(feature = "inbox-sqlite")]
fn stopped() -> Error {
    Error::new(ErrorKind::Unavailable, "the work on the inbox was stopped")
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "inbox-postgres")]
            Self::Postgres(options) => options.fmt(f),
            #[cfg(feature = "inbox-sqlite")]
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}
