//! Making a restored store work on its new server.
//!
//! What each position covers is worked out by the xids that came along; then rows and positions get new ones that say
//! the same here. The rule is `restamp` in core. Everything happens in one transaction, in which nobody can emit.
//!
//! Events that producers emitted before the adoption are told from restored ones by their ids, which are above all that the
//! positions know. Where the sequence was not restored that says nothing; then whatever is younger than the last settle
//! counts as not delivered. It may be delivered again, but is not lost.

use std::sync::Arc;

use postrider_core::log::{Class, Restamped, ShardPosition, Tick, Window, restamp};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{EventId, Result, Shard, ShardSet, Timestamp};
use tokio_postgres::Row;

use crate::audit::Entry;
use crate::error::Doing;
use crate::identity::look;
use crate::lock::lock_retention;
use crate::position::{SHARDS, position_newest, position_put};
use crate::session::Tx;
use crate::shard::shards_free;
use crate::subscription::{subscription_list, subscription_lock};
use crate::values::{At, SnapshotValue, XidValue};

const WHAT: &str = "adopt the store";

/// What an adoption did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The store's new identity.
    pub store_id: String,
    /// Events that were looked through and renumbered.
    pub events: u64,
    /// Where the sequence of ids had to be moved to; none if it had been restored with the rest.
    pub sequence_to: Option<i64>,
}

/// A place where some shards of a subscription stand.
struct Place {
    subscription: SubscriptionId,
    shards: ShardSet,
    position: Arc<ShardPosition>,
}

/// What is known of the log.
struct Known {
    /// The last id that was issued, after the sequence was mended.
    last_id: i64,
    /// Ids above this were issued on this server.
    restored_to: i64,
    /// Events from after this were emitted on this server.
    restored_until: Option<Timestamp>,
    sequence_to: Option<i64>,
}

/// Makes this server the store's home; none if it is.
pub(crate) async fn adopt(tx: &Tx<'_>, actor: &str) -> Result<Option<Adopted>> {
    tx.run("set local lock_timeout = '30s'", WHAT).await?;
    lock_retention(tx).await?;
    tx.execute(sql!("adopt_lock"), &[], WHAT).await?;
    if look(tx).await?.1 {
        return Ok(None);
    }
    let places = places(tx).await?;
    let known = known(tx, &places).await?;
    let (events, ticks) = renumber(tx, &places, &known).await?;
    tx.execute(sql!("adopt_members"), &[], WHAT).await?;
    tx.query(sql!("adopt_turns"), &[], WHAT).await?;
    tx.execute(sql!("adopt_positions"), &[], WHAT).await?;
    for (place, tick) in places.iter().zip(ticks) {
        let last_id = EventId(tick.seq());
        let at = ShardPosition { shards: place.shards, window: Window::at(&Arc::new(tick)), last_id };
        position_put(tx, place.subscription, &at).await?;
    }
    tx.execute(sql!("adopt_identity"), &[&known.last_id], WHAT).await?;
    let detail = format!("{events} events, the last id is {}", known.last_id);
    Entry { actor, action: "store_adopt", detail: Some(&detail) }.write_of_store(tx).await?;
    let (store_id, _) = look(tx).await?;
    Ok(Some(Adopted { store_id, events, sequence_to: known.sequence_to }))
}

/// Where all subscriptions stand. Takes their shards from whoever held them on the other server.
async fn places(tx: &Tx<'_>) -> Result<Vec<Place>> {
    let mut places: Vec<Place> = Vec::new();
    for subscription in subscription_list(tx).await? {
        let id = subscription_lock(tx, &subscription.name).await?.id;
        shards_free(tx, id, None, ShardSet::ALL).await?;
        let first = places.len();
        for (shard, position) in (0..).map(Shard).zip(position_newest(tx, id, SHARDS).await?) {
            match places[first..].iter_mut().find(|place| Arc::ptr_eq(&place.position, &position)) {
                Some(place) => place.shards.insert(shard),
                None => places.push(Place { subscription: id, shards: ShardSet::of([shard]), position }),
            }
        }
    }
    Ok(places)
}

/// Reads what is known, and mends the sequence if it was not restored.
async fn known(tx: &Tx<'_>, places: &[Place]) -> Result<Known> {
    let row = tx.query_one(sql!("adopt_known"), &[], WHAT).await?;
    let column = |index: usize| row.try_get::<_, i64>(index).doing(WHAT);
    let (issued, newest, adopted_to) = (column(0)?, column(1)?, column(3)?);
    let settled_at = row.try_get::<_, Option<At>>(2).doing(WHAT)?.map(|at| at.0);
    let read = places.iter().map(|place| place.position.window.to.seq().max(place.position.last_id.0));
    let restored_to = read.fold(adopted_to, i64::max);
    let last_id = issued.max(newest).max(restored_to);
    if issued >= last_id {
        return Ok(Known { last_id, restored_to, restored_until: None, sequence_to: None });
    }
    tx.query(sql!("adopt_sequence"), &[&last_id], WHAT).await?;
    Ok(Known { last_id, restored_to, restored_until: settled_at, sequence_to: Some(last_id) })
}

/// Gives every row its new xid. Returns how many rows there were to renumber, and the new ticks of the places.
async fn renumber(tx: &Tx<'_>, places: &[Place], known: &Known) -> Result<(u64, Vec<Tick>)> {
    let snapshot = |tick: &Tick| SnapshotValue(tick.snapshot.clone());
    let windows = || places.iter().map(|place| &place.position.window);
    let from: Vec<SnapshotValue> = windows().map(|window| snapshot(&window.from)).collect();
    let to: Vec<SnapshotValue> = windows().map(|window| snapshot(&window.to)).collect();
    let last_ids: Vec<i64> = places.iter().map(|place| place.position.last_id.0).collect();
    let until = known.restored_until.map(At);
    tx.execute(sql!("adopt_table"), &[], WHAT).await?;
    tx.execute(sql!("adopt_classify"), &[&from, &to, &last_ids, &known.restored_to, &until], WHAT).await?;
    let rows = tx.query(sql!("adopt_classes"), &[], WHAT).await?;
    let classes: Vec<Class> = rows.iter().map(class_read).collect::<Result<_>>()?;
    let Restamped { classes, ticks } = restamp(classes, places.len(), known.last_id)?;
    let (names, xids): (Vec<String>, Vec<XidValue>) =
        classes.iter().map(|(class, xid)| (class_name(class), XidValue(*xid))).unzip();
    let updated = tx.execute(sql!("adopt_restamp"), &[&names, &xids], WHAT).await?;
    Ok((updated, ticks))
}

/// Reads a class by the name that the statement gives it: one digit a place.
fn class_read(row: &Row) -> Result<Class> {
    let name: &str = row.try_get(0).doing(WHAT)?;
    let covered_by = name.bytes().map(|digit| digit == b'1').collect();
    Ok(Class { covered_by, lowest: row.try_get(1).doing(WHAT)? })
}

fn class_name(class: &Class) -> String {
    class.covered_by.iter().map(|covers| if *covers { '1' } else { '0' }).collect()
}
