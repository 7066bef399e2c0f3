//! What the server tells of its write-ahead log: a connection in replication mode, and the stream on it.
//!
//! The client library has no such connections, so this is a client of its own, small since it does one thing.
//! It knows nothing of subscriptions or positions: it says what was committed, in the order of commits, and
//! tells the server what may be forgotten.
//!
//! | file | question it answers |
//! |---|---|
//! | `dial`, `binding` | how is a socket made, encrypted if it has to be? |
//! | `login` | who are we, and can we prove it? |
//! | `commands` | how is the server asked for something? |
//! | `wire`, `cursor` | where does a message begin and end? |
//! | `refusal` | why does the server say no? |
//! | `stream` | what was committed, and does the server know that we live? |
//! | `pgoutput` | what do the bytes of a change mean? |

mod binding;
mod commands;
mod cursor;
mod dial;
mod login;
pub(crate) mod pgoutput;
mod refusal;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use postgres_protocol::escape::{escape_identifier, escape_literal};
use postrider_core::log::Lsn;
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::timeout;
use tokio_postgres::config::TargetSessionAttrs;

pub(crate) use pgoutput::{Cell, Column, Relation};
pub(crate) use refusal::{Refusal, refusal};
pub(crate) use stream::{Row, Said, Stream};

use crate::options::PostgresOptions;
use crate::server::tls::SslMode;
use commands::{Commands, late};
use dial::{Dialled, Place, dial, nowhere, places};
use login::Login;
use refusal::{During, nonsense, refuse};
use stream::Pace;

/// Under which people see the connection.
const NAME: &str = "postrider/wal";
/// The oldest server that Postrider runs on.
const SERVER_MIN: u32 = 140_000;
/// The oldest server that can hand slots on to a standby.
const FAILOVER_MIN: u32 = 170_000;

/// A connection in replication mode, to a primary.
pub(crate) struct Replication {
    commands: Commands,
    server: Server,
}

/// When the server tells of a transaction that is too large for its memory (`logical_decoding_work_mem`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Large {
    /// When it has committed. Until then the server keeps it on its disk.
    Whole,
    /// At once, in blocks: that it holds rows is told, and in the end whether it has committed.
    Ahead,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct System {
    pub(crate) id: String,
    pub(crate) timeline: u32,
}

/// A slot that was just made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewSlot {
    /// What commits after this comes from the slot; what committed before is seen by the snapshot.
    pub(crate) consistent: Lsn,
    /// For `set transaction snapshot` on another connection.
    pub(crate) snapshot: String,
}

/// What was found out about the server when it was connected to.
struct Server {
    /// As `server_version_num` tells it.
    version: u32,
    /// Whether `wal_level` is `logical`.
    is_logical: bool,
    /// None if it waits for ever.
    wal_sender_timeout: Option<Duration>,
    is_standby: bool,
    is_read_only: bool,
}

impl Replication {
    /// Connects as the options say: the first of their hosts that will do, encrypted and with a password as
    /// on all other connections, never through a pooler. Refuses a server that is too old, and a standby.
    pub(crate) async fn connect(options: &PostgresOptions) -> Result<Self> {
        let what = format!("connect to {options} for replication");
        let mode = options.tls.mode(&options.config);
        let tls = match mode {
            SslMode::Disable => None,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {
                Some(Arc::new(options.tls.client(mode)?))
            }
        };
        let connecting = async {
            let mut failed = nowhere(&what);
            for place in places(&options.config)? {
                match Self::connect_at(&place, options, tls.clone(), &what).await {
                    Ok(connected) => return Ok(connected),
                    Err(error) => failed = error,
                }
            }
            Err(failed)
        };
        let connected = timeout(options.call_timeout, connecting).await;
        connected.unwrap_or_else(|_| Err(late(&what, options.call_timeout)))
    }

    async fn connect_at(
        place: &Place,
        options: &PostgresOptions,
        tls: Option<Arc<rustls::ClientConfig>>,
        what: &str,
    ) -> Result<Self> {
        let config = &options.config;
        let is_plain = tls.is_none() && matches!(place, Place::Tcp { .. });
        let Dialled { mut wire, end_point } = dial(place, config, tls, what).await?;
        Login { config, name: NAME, end_point, is_plain, ways: options.tls.ways(config), what }
            .run(&mut wire)
            .await?;
        let mut commands = Commands::new(wire, options.call_timeout);
        let server = Server::look(&mut commands, what).await?;
        server.check(config.get_target_session_attrs())?;
        Ok(Self { commands, server })
    }

    /// Which server this is, and how far it has come.
    pub(crate) async fn identify(&mut self) -> Result<System> {
        let what = "ask the server who it is";
        let rows = self.commands.run("IDENTIFY_SYSTEM", what, During::Other).await?;
        let read = || {
            let row = rows.first()?;
            let id = row.first()?.clone()?;
            let timeline = row.get(1)?.as_deref()?.parse().ok()?;
            Some(System { id, timeline })
        };
        read().ok_or_else(|| nonsense(what, "no identity"))
    }

    /// Makes a slot that keeps all that commits from now on, and exports a snapshot of what committed before,
    /// which lasts until the next command on this connection. With `failover`, on servers that can, standbys
    /// take the slot over.
    ///
    /// Waits until all transactions have ended that run now, at most for as long as a call may take: then the
    /// error's kind is `Busy` or `Unavailable`, and the server removes what it has made of the slot. Nothing
    /// is removed otherwise: a caller that makes a slot and does not use it has to drop it.
    pub(crate) async fn slot_create(&mut self, slot: &str, failover: bool) -> Result<NewSlot> {
        let what = format!("create the replication slot {slot}");
        let lock_timeout = format!("set lock_timeout = {}", self.commands.max().as_millis().max(1));
        self.commands.run(&lock_timeout, &what, During::Other).await?;
        let options = if failover && self.server.version >= FAILOVER_MIN {
            "(SNAPSHOT 'export', FAILOVER true)"
        } else {
            // The only way to say it that all servers understand.
            "EXPORT_SNAPSHOT"
        };
        let slot = escape_identifier(slot);
        let command = format!("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput {options}");
        let rows = self.commands.run(&command, &what, self.server.during_slot()).await?;
        let read = || {
            let row = rows.first()?;
            Some(NewSlot { consistent: lsn_read(row.get(1)?.as_deref()?)?, snapshot: row.get(2)?.clone()? })
        };
        read().ok_or_else(|| nonsense(&what, "no slot"))
    }

    /// Reads from a slot what committed after `from`, or after what was last confirmed if that is later, of
    /// the tables of a publication.
    pub(crate) async fn start(self, slot: &str, publication: &str, from: Lsn) -> Result<Stream> {
        self.start_with(slot, publication, from, Large::Whole).await
    }

    /// The same, with a choice of how large transactions are told.
    pub(crate) async fn start_with(
        mut self,
        slot: &str,
        publication: &str,
        from: Lsn,
        large: Large,
    ) -> Result<Stream> {
        let what = format!("read from the replication slot {slot}");
        let confirmed = self.slot_check(slot, publication, &what).await?;
        let command = start_command(slot, publication, from, large);
        let wire = self.commands.copy_both(&command, &what, self.server.during_slot()).await?;
        let pace = Pace::of(self.server.wal_sender_timeout);
        Ok(Stream::new(wire, what, confirmed, pace))
    }

    /// Refuses what the server would refuse in words only, and a publication that is missing, which it does
    /// not refuse at all or too late. How far the slot was confirmed.
    async fn slot_check(&mut self, slot: &str, publication: &str, what: &str) -> Result<Lsn> {
        let question = format!(
            "select s.slot_name, s.plugin = 'pgoutput' and s.database = pg_catalog.current_database(), s.wal_status, \
             s.confirmed_flush_lsn, \
             (select p.pubname from pg_catalog.pg_publication as p where p.pubname = {publication_name}) \
             from (select 1) as one \
             left join pg_catalog.pg_replication_slots as s on s.slot_name = {slot_name}",
            publication_name = escape_literal(publication),
            slot_name = escape_literal(slot),
        );
        let rows = self.commands.run(&question, what, During::Other).await?;
        let row = rows.first().filter(|row| row.len() == 5).ok_or_else(|| nonsense(what, "no answer"))?;
        let text = |index: usize| row[index].as_deref();
        if text(0).is_none() {
            return Err(refuse(Refusal::SlotMissing, what, "it does not exist"));
        }
        if text(1) != Some("t") {
            return Err(refuse(Refusal::SlotForeign, what, "it is of another database or plugin"));
        }
        if text(2) == Some("lost") {
            return Err(refuse(Refusal::SlotLost, what, "the server has invalidated it"));
        }
        if text(4).is_none() {
            let told = format!("the publication {publication} does not exist");
            return Err(refuse(Refusal::PublicationMissing, what, &told));
        }
        Ok(text(3).and_then(lsn_read).unwrap_or_default())
    }
}

impl Server {
    /// Asks the server about itself.
    async fn look(commands: &mut Commands, what: &str) -> Result<Self> {
        let question = "select pg_catalog.current_setting('server_version_num'), \
             pg_catalog.current_setting('wal_level'), s.setting, pg_catalog.pg_is_in_recovery(), \
             pg_catalog.current_setting('transaction_read_only') \
             from pg_catalog.pg_settings as s where s.name = 'wal_sender_timeout'";
        let rows = commands.run(question, what, During::Other).await?;
        rows.first().and_then(|row| Self::read(row)).ok_or_else(|| nonsense(what, "no settings"))
    }

    fn read(row: &[Option<String>]) -> Option<Self> {
        let text = |index: usize| row.get(index)?.as_deref();
        let timeout_ms: u64 = text(2)?.parse().ok()?;
        Some(Self {
            version: text(0)?.parse().ok()?,
            is_logical: text(1)? == "logical",
            wal_sender_timeout: (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms)),
            is_standby: text(3)? == "t",
            is_read_only: text(4)? == "on",
        })
    }

    /// As for all other connections, and what the URL demands of a host among several.
    fn check(&self, wanted: TargetSessionAttrs) -> Result<()> {
        if self.version < SERVER_MIN {
            let told = format!("this server is PostgreSQL {}", self.version / 10_000);
            return Err(Error::new(ErrorKind::Incompatible, format!("{told}: Postrider needs 14 or newer")));
        }
        if self.is_standby {
            let told = format!("this server is a standby ({NAME}): connect to the primary");
            return Err(Error::new(ErrorKind::ReadOnly, told));
        }
        let is_unwanted = match wanted {
            TargetSessionAttrs::ReadWrite => self.is_read_only,
            TargetSessionAttrs::ReadOnly => !self.is_read_only,
            _ => false,
        };
        if is_unwanted {
            let told = "this server's sessions are not what target_session_attrs asks for";
            return Err(Error::new(ErrorKind::ReadOnly, told));
        }
        Ok(())
    }

    fn during_slot(&self) -> During {
        During::Slot { is_logical: self.is_logical }
    }
}

/// The plugin's options are strings, in one of which is a list of names: hence two ways of quoting, one
/// within the other.
fn start_command(slot: &str, publication: &str, from: Lsn, large: Large) -> String {
    let publications = escape_identifier(publication).replace('\'', "''");
    let version = match large {
        Large::Whole => "proto_version '1'",
        Large::Ahead => "proto_version '2', streaming 'on'",
    };
    format!(
        "START_REPLICATION SLOT {} LOGICAL {} ({version}, publication_names '{publications}', \
         binary 'true')",
        escape_identifier(slot),
        lsn_text(from)
    )
}

/// As the server writes it: the upper and the lower half in hexadecimal.
fn lsn_text(Lsn(lsn): Lsn) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff)
}

fn lsn_read(text: &str) -> Option<Lsn> {
    let (upper, lower) = text.split_once('/')?;
    let half = |text: &str| u32::from_str_radix(text, 16).ok().map(u64::from);
    Some(Lsn((half(upper)? << 32) | half(lower)?))
}
