//! What is stored of the messages, and storing more.

use postrider_core::log::Lsn;
use postrider_core::{Error, ErrorKind, Result, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::PgLsn;

use crate::error::Doing;
use crate::replication::MessageEvent;
use crate::session::Session;
use crate::values::{At, For};

const WHAT: &str = "store messages";
/// Events that waited and are moved at once.
const MOVED_MAX: i32 = 2_000;

/// How far messages are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// All of the transactions that committed below this; none if nothing is known.
    pub(super) lsn: Option<Lsn>,
    /// And so many messages of the one that committed here.
    pub(super) part: Option<(Lsn, u64)>,
}

impl Place {
    /// Whether the `n`th message, counted from 1, of the transaction that committed at `commit` is stored.
    pub(super) fn covers(&self, commit: Lsn, n: u64) -> bool {
        self.lsn.is_some_and(|lsn| commit < lsn)
            || self.part.is_some_and(|(part, count)| commit == part && n <= count)
    }

    /// The place when all was told up to `complete`, and so many messages of the transaction `telling`. It never goes back, although
    /// what is stored already is told again.
    pub(super) fn after(&self, complete: Lsn, telling: Option<(Lsn, u64)>) -> Self {
        let lsn = self.lsn.map_or(complete, |lsn| lsn.max(complete));
        let part = self.part.max(telling).filter(|(commit, _)| *commit >= lsn);
        Self { lsn: Some(lsn), part }
    }

    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let lsn = |index| Ok(row.try_get::<_, Option<PgLsn>>(index)?.map(|lsn| Lsn(lsn.into())));
        let count = row.try_get::<_, i64>(3)? as u64;
        Ok(Self { lsn: lsn(1)?, part: lsn(2)?.map(|part| (part, count)) })
    }

    fn columns(&self) -> (Option<PgLsn>, Option<PgLsn>, i64) {
        let (part, count) = self.part.unzip();
        (self.lsn.map(pg), part.map(pg), count.unwrap_or_default() as i64)
    }
}

/// How things stand with messages.
pub(super) struct Look {
    pub(super) prefix: String,
    pub(super) place: Place,
    /// Whether messages could ever be written since the source was last ended.
    pub(super) used: bool,
}

pub(super) async fn look(session: &Session) -> Result<Look> {
    let rows = session.query(sql!("message_look"), &[], WHAT).await?;
    let Some(row) = rows.first() else {
        let message =
            "the table message_source has lost its only row: restore it, with a prefix nobody knows";
        return Err(Error::new(ErrorKind::Corrupt, message));
    };
    let read = || {
        Ok(Look { prefix: row.try_get(0)?, place: Place::read(row)?, used: row.try_get::<_, i64>(4)? > 1 })
    };
    read().doing(WHAT)
}

/// Writes messages into the log, and the place with them.
pub(super) async fn store(
    session: &mut Session,
    known: Place,
    new: Place,
    events: &[&MessageEvent],
) -> Result<()> {
    let (lsn, part, count) = known.columns();
    let (new_lsn, new_part, new_count) = new.columns();
    let created_ats: Vec<At> =
        events.iter().map(|event| At(Timestamp::from_micros(event.created_at))).collect();
    let topics: Vec<&str> = events.iter().map(|event| event.topic.as_str()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    let keys: Vec<Option<&str>> = events.iter().map(|event| event.key.as_deref()).collect();
    let headers: Vec<Option<&str>> = events.iter().map(|event| event.headers.as_deref()).collect();
    let payloads: Vec<Option<&str>> = events.iter().map(|event| event.payload.as_deref()).collect();
    let payloads_bytes: Vec<Option<&[u8]>> =
        events.iter().map(|event| event.payload_bytes.as_deref()).collect();
    let rows = session
        .change(
            sql!("message_store"),
            &[
                &lsn,
                &part,
                &count,
                &new_lsn,
                &new_part,
                &new_count,
                &created_ats,
                &topics,
                &kinds,
                &keys,
                &headers,
                &payloads,
                &payloads_bytes,
            ],
            WHAT,
        )
        .await?;
    let stored: bool = rows.first().map_or(Ok(false), |row| row.try_get(0)).doing(WHAT)?;
    if stored {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unavailable, "another relay stores messages by now: this one begins anew"))
}

/// Moves events that have waited into the log, all up to a place; where the next one waits.
pub(super) async fn move_waiting(session: &mut Session, upto: Lsn) -> Result<Option<Lsn>> {
    loop {
        let rows = session.change(sql!("message_move"), &[&pg(upto), &MOVED_MAX], WHAT).await?;
        let next: Option<PgLsn> = rows.first().map_or(Ok(None), |row| row.try_get(0)).doing(WHAT)?;
        let next = next.map(|lsn| Lsn(lsn.into()));
        if next.is_none_or(|next| next > upto) {
            return Ok(next);
        }
    }
}

/// Lets messages be written for a while, or no longer.
pub(super) async fn allow(session: &mut Session, during: Option<std::time::Duration>) -> Result<()> {
    session.change(sql!("message_allow"), &[&during.map(For)], WHAT).await.map(drop)
}

/// How far the server's log has come.
pub(super) async fn written(session: &Session) -> Result<Lsn> {
    let rows = session.query(sql!("wal_written"), &[], WHAT).await?;
    let lsn: PgLsn = rows[0].try_get(0).doing(WHAT)?;
    Ok(Lsn(lsn.into()))
}

fn pg(lsn: Lsn) -> PgLsn {
    PgLsn::from(lsn.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_again_is_known() {
        let place = Place { lsn: Some(Lsn(10)), part: Some((Lsn(20), 2)) };
        assert!(place.covers(Lsn(9), 7));
        assert!(!place.covers(Lsn(10), 1), "it begins where all others have ended");
        assert!(place.covers(Lsn(20), 2) && !place.covers(Lsn(20), 3));
        assert!(!Place::default().covers(Lsn(0), 1));
    }

    #[test]
    fn a_place_never_goes_back() {
        let place = Place { lsn: Some(Lsn(10)), part: Some((Lsn(20), 2)) };
        assert_eq!(place.after(Lsn(5), None), place, "the slot was confirmed up to there");
        assert_eq!(place.after(Lsn(5), Some((Lsn(7), 9))), place, "one that is stored is told again");
        assert_eq!(place.after(Lsn(12), Some((Lsn(20), 1))), Place { lsn: Some(Lsn(12)), ..place });
        assert_eq!(place.after(Lsn(12), Some((Lsn(20), 3))).part, Some((Lsn(20), 3)));
        assert_eq!(place.after(Lsn(25), Some((Lsn(30), 1))).part, Some((Lsn(30), 1)));
        assert_eq!(place.after(Lsn(25), None), Place { lsn: Some(Lsn(25)), part: None });
    }
}
