//! The processes that work on a store.

use std::collections::BTreeMap;

use postrider_core::refusal::member_is_forgotten;
use postrider_core::settle::MemberId;
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Result, Shard, ShardSet, Timestamp};
use rusqlite::{Connection, Transaction};

use crate::error::Doing;
use crate::ownership::liveness::{Observer, Signs, signs_read};
use crate::ownership::shard::shards_free;

/// Registers this process, and forgets those that are dead: a crashed one cannot do so itself. A member that
/// is forgotten by mistake learns it from its next beat.
pub(crate) fn member_join(
    tx: &Transaction<'_>,
    name: &str,
    observer: &Observer,
    now: Timestamp,
) -> Result<MemberId> {
    for member in member_list(tx)?.iter().filter(|member| observer.is_dead(&member.signs)) {
        member_forget(tx, member.id)?;
    }
    let process = &observer.process;
    tx.prepare_cached(sql!("ownership/member_join"))
        .and_then(|mut join| {
            join.insert((
                name,
                process.pid,
                &process.pid_namespace,
                &process.boot_id,
                process.started as i64,
                now.as_micros(),
                observer.uptime.as_micros() as i64,
            ))
        })
        .map(MemberId)
        .doing("register this process")
}

/// Says that a member lives.
pub(crate) fn member_beat(tx: &Transaction<'_>, member: MemberId, uptime_us: i64) -> Result<()> {
    if beat(tx, member, uptime_us)? { Ok(()) } else { Err(member_is_forgotten(member)) }
}

/// The same for one that need not be known; says whether it is.
pub(crate) fn beat(tx: &Transaction<'_>, member: MemberId, uptime_us: i64) -> Result<bool> {
    tx.prepare_cached(sql!("ownership/member_beat"))
        .and_then(|mut beat| beat.execute((member.0, uptime_us)))
        .map(|known| known > 0)
        .doing("renew the lease")
}

/// Forgets a member and frees what it holds.
pub(crate) fn member_leave(tx: &Transaction<'_>, member: MemberId, now: Timestamp) -> Result<()> {
    let held: Vec<(i64, u16)> = tx
        .prepare_cached(sql!("ownership/shard_held_by"))
        .and_then(|mut held| held.query_map([member.0], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .doing("find what this member holds")?;
    let mut shards: BTreeMap<SubscriptionId, ShardSet> = BTreeMap::new();
    for (subscription, shard) in held {
        shards.entry(SubscriptionId(subscription)).or_default().insert(Shard(shard));
    }
    for (subscription, shards) in shards {
        shards_free(tx, subscription, shards, now)?;
    }
    member_forget(tx, member)
}

/// Refuses a member that has been forgotten: whatever it takes would be free for all at once.
pub(crate) fn member_check(conn: &Connection, member: MemberId) -> Result<()> {
    let known = conn
        .prepare_cached(sql!("ownership/member_exists"))
        .and_then(|mut known| known.exists([member.0]))
        .doing("look this member up")?;
    if known { Ok(()) } else { Err(member_is_forgotten(member)) }
}

/// One row of the member table.
pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(crate) signs: Signs,
    pub(crate) name: String,
}

/// All of them, dead or alive.
pub(crate) fn member_list(conn: &Connection) -> Result<Vec<Member>> {
    conn.prepare_cached(sql!("ownership/member_list"))
        .and_then(|mut list| {
            list.query_map([], |row| {
                let signs = signs_read(row, 1)?;
                Ok(signs.map(|signs| (signs, row.get(0), row.get(6))))
            })?
            .filter_map(Result::transpose)
            .map(|member| {
                let (signs, id, name) = member?;
                Ok(Member { id: MemberId(id?), signs, name: name? })
            })
            .collect()
        })
        .doing("list the members")
}

/// Forgets a member; what it holds is free by that.
pub(crate) fn member_forget(tx: &Transaction<'_>, member: MemberId) -> Result<()> {
    let forget = || {
        tx.prepare_cached(sql!("ownership/standing_delete"))?.execute((None::<i64>, Some(member.0)))?;
        tx.prepare_cached(sql!("ownership/member_leave"))?.execute([member.0])
    };
    forget().map(drop).doing("forget a member")
}
