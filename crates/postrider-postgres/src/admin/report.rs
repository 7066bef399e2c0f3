//! What people look at: subscriptions with their progress, and the store as a whole.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_core::log::{ShardPosition, Tick, Window};
use postrider_core::settle::MemberId;
use postrider_core::store::{
    MemberReport, ParkedReport, ShardReport, SlotReport, StoreReport, SubscriptionReport,
};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{
    Epoch, EventId, Filter, Key, Position, Result, Shard, ShardSet, Subscription, Timestamp,
};
use tokio_postgres::Row;

use crate::admin::event::{LogEnd, log_end};
use crate::admin::lag::{COUNT_MAX, Counted, events_ahead, least_advanced};
use crate::admin::subscription::subscription_list;
use crate::error::Doing;
use crate::queue::look::queued_counts;
use crate::server::migrate::SCHEMA_VERSION;
use crate::server::session::Tx;
use crate::server::values::At;
use crate::settle::position::{SHARDS, position_newest};
use crate::store::Inner;
use crate::wake::wake_get;
use crate::wal::{Switches, slots, switches};

/// Parked lanes that a report shows.
const PARKED_SHOWN_MAX: i64 = 10;

/// Subscriptions with their progress.
pub(crate) async fn subscription_reports(
    tx: &Tx<'_>,
    subscriptions: Vec<Subscription>,
) -> Result<Vec<SubscriptionReport>> {
    let end = log_end(tx).await?;
    let ids: Vec<i64> = subscriptions.iter().map(|subscription| subscription.id.0).collect();
    let mut rows = RowReports::read(tx, &ids).await?;
    let mut queues = queued_counts(tx, &ids).await?;
    let mut reports = Vec::with_capacity(subscriptions.len());
    for subscription in subscriptions {
        let id = subscription.id;
        let places = position_newest(tx, id, SHARDS).await?;
        let (lag_events, oldest_at) = lag(tx, &places, &end, &subscription.filter).await?;
        let counts = rows.counts.remove(&id).unwrap_or_default();
        let queued = queues.remove(&id).unwrap_or_default();
        let shards = rows.shards.remove(&id).unwrap_or_default();
        reports.push(SubscriptionReport {
            subscription,
            members: rows.members.remove(&id).unwrap_or_default(),
            shards: shards.into_iter().map(|shard| shard.at(&places)).collect(),
            lag_events,
            lag: oldest_at.map(|oldest_at| end.now.since(oldest_at)),
            pending: counts.pending + queued.0,
            leased: counts.leased + queued.1,
            dead: counts.dead,
            parked: rows.parked.remove(&id).unwrap_or_default(),
            parked_count: counts.heads,
        });
    }
    Ok(reports)
}

async fn lag(
    tx: &Tx<'_>,
    places: &[Arc<ShardPosition>],
    end: &LogEnd,
    filter: &Filter,
) -> Result<(u64, Option<Timestamp>)> {
    let Some(least) = least_advanced(places.iter().map(AsRef::as_ref)) else { return Ok((0, None)) };
    let counted = Counted { end, before: EventId(i64::MAX), filter: Some(filter) };
    let ahead = events_ahead(tx, least, counted).await?;
    Ok((ahead.events, ahead.oldest_at))
}

/// The store as a whole.
pub(crate) async fn store_report(tx: &Tx<'_>, store: &Inner) -> Result<StoreReport> {
    let what = "look at the store";
    let size = tx.query_one(sql!("admin/report/store_size"), &[&tx.schema().name()], what).await?;
    let version: &str = size.try_get(1).doing(what)?;
    let end = log_end(tx).await?;
    let nothing_read = ShardPosition {
        shards: ShardSet::ALL,
        window: Window::at(&Arc::new(Tick::start())),
        last_id: EventId(0),
    };
    let all = Counted { end: &end, before: EventId(i64::MAX), filter: None };
    let there = events_ahead(tx, &nothing_read, all).await?;
    let kept = tx.query_one(sql!("admin/report/kept_event_count"), &[&COUNT_MAX], what).await?;
    let kept_at = kept.try_get::<_, Option<At>>(1).doing(what)?.map(|at| at.0);
    let newest = tx.query_one(sql!("admin/report/event_newest_of_all"), &[], what).await?;
    let members = tx.query(sql!("admin/report/member_living"), &[], what).await?;
    let subscriptions = subscription_list(tx).await?;
    Ok(StoreReport {
        store_id: store.identity.get(),
        location: format!("{} (PostgreSQL {version}{})", store.options, store.way),
        schema_version: SCHEMA_VERSION,
        wake: wake_get(tx).await?,
        events: there.events + kept.try_get::<_, i64>(0).doing(what)? as u64,
        newest_id: newest.try_get::<_, Option<i64>>(0).doing(what)?.map(EventId),
        oldest_at: there.oldest_at.into_iter().chain(kept_at).min(),
        bytes: size.try_get::<_, i64>(0).doing(what)? as u64,
        members: members.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().doing(what)?,
        slots: slot_reports(tx).await?,
        subscriptions: subscription_reports(tx, subscriptions).await?,
    })
}

/// The slots that the server has, and those that relays have known.
async fn slot_reports(tx: &Tx<'_>) -> Result<Vec<SlotReport>> {
    let mut known: HashMap<String, Switches> =
        switches(tx).await?.into_iter().map(|switches| (switches.slot.clone(), switches)).collect();
    let mut reports = Vec::new();
    for slot in slots(tx, tx.schema().name()).await? {
        let known = known.remove(&slot.name);
        let report = SlotReport {
            followed: Some(slot.active),
            kept_bytes: slot.kept,
            switches: known.as_ref().map_or(0, |known| known.count),
            reading: known.map(|known| (known.reading, known.at)),
            slot: slot.name,
        };
        reports.push(report);
    }
    reports.extend(known.into_values().map(|known| SlotReport {
        followed: None,
        kept_bytes: 0,
        switches: known.count,
        reading: Some((known.reading, known.at)),
        slot: known.slot,
    }));
    reports.sort_by(|a, b| a.slot.cmp(&b.slot));
    Ok(reports)
}

/// What the rows of some subscriptions say.
struct RowReports {
    members: HashMap<SubscriptionId, Vec<MemberReport>>,
    shards: HashMap<SubscriptionId, Vec<ShardRow>>,
    counts: HashMap<SubscriptionId, Counts>,
    parked: HashMap<SubscriptionId, Vec<ParkedReport>>,
}

/// A shard without its position.
struct ShardRow {
    shard: Shard,
    epoch: Epoch,
    member: Option<MemberId>,
}

/// Rows by their states, and how many of them head a lane.
#[derive(Default)]
struct Counts {
    pending: u64,
    leased: u64,
    dead: u64,
    heads: u64,
}

impl RowReports {
    async fn read(tx: &Tx<'_>, ids: &[i64]) -> Result<Self> {
        let what = "read a subscription's members";
        let members = tx.query(sql!("admin/report/member_list"), &[&ids], what).await?;
        let members = by_subscription(&members, member_read).doing(what)?;
        let what = "read a subscription's shards";
        let shards = tx.query(sql!("admin/report/shard_list"), &[&ids], what).await?;
        let shards = by_subscription(&shards, shard_read).doing(what)?;
        let what = "count deliveries";
        let counts = tx.query(sql!("admin/report/delivery_counts"), &[&ids], what).await?;
        let counts = counts.iter().map(counts_read).collect::<Result<_, _>>().doing(what)?;
        let what = "read the parked keys";
        let parked = tx.query(sql!("admin/report/lane_parked"), &[&ids, &PARKED_SHOWN_MAX], what).await?;
        Ok(Self { members, shards, counts, parked: by_subscription(&parked, parked_read).doing(what)? })
    }
}

/// Rows whose first column is the subscription.
fn by_subscription<T>(
    rows: &[Row],
    read: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<HashMap<SubscriptionId, Vec<T>>, tokio_postgres::Error> {
    let mut found: HashMap<SubscriptionId, Vec<T>> = HashMap::new();
    for row in rows {
        found.entry(SubscriptionId(row.try_get(0)?)).or_default().push(read(row)?);
    }
    Ok(found)
}

fn shard_read(row: &Row) -> Result<ShardRow, tokio_postgres::Error> {
    Ok(ShardRow {
        shard: Shard(row.try_get::<_, i16>(1)? as u16),
        epoch: Epoch(row.try_get(2)?),
        member: row.try_get::<_, Option<i64>>(3)?.map(MemberId),
    })
}

fn member_read(row: &Row) -> Result<MemberReport, tokio_postgres::Error> {
    Ok(MemberReport { id: MemberId(row.try_get(1)?), name: row.try_get(2)?, lives: row.try_get(3)? })
}

impl ShardRow {
    fn at(self, places: &[Arc<ShardPosition>]) -> ShardReport {
        let last_id = places.get(usize::from(self.shard.0)).map_or(EventId(0), |place| place.last_id);
        ShardReport {
            shard: self.shard,
            position: Position::START.at(last_id),
            epoch: self.epoch,
            member: self.member,
        }
    }
}

fn counts_read(row: &Row) -> Result<(SubscriptionId, Counts), tokio_postgres::Error> {
    let count = |column: usize| row.try_get::<_, i64>(column).map(|count| count as u64);
    let counts = Counts { pending: count(1)?, leased: count(2)?, dead: count(3)?, heads: count(4)? };
    Ok((SubscriptionId(row.try_get(0)?), counts))
}

fn parked_read(row: &Row) -> Result<ParkedReport, tokio_postgres::Error> {
    Ok(ParkedReport {
        key: Key::new(row.try_get::<_, &str>(1)?),
        head: EventId(row.try_get(2)?),
        waiting: row.try_get::<_, i64>(4)? as u64,
        due_at: row.try_get::<_, Option<At>>(3)?.map(|at| at.0),
    })
}
