//! Making a restored store work on its new server.
//!
//! What each position covers is worked out by the xids that came along; then rows and positions get new ones
//! that say the same here. The rule is `restamp` in core.
//!
//! ```text
//!   begin ──► look through the log, batch by batch ──► renumber it, batch by batch ──► end
//!   last id   which classes of rows there are          how far is written down         new positions, a new home
//! ```
//!
//! Each step is a separate transaction, so that short statements adopt a log of any size, and an interrupted
//! adoption goes on where it was. No relay works on the store meanwhile, because it is not at home until the
//! end. Producers need not wait: the first step lets transactions end that have drawn ids, and any event that
//! is emitted after it has an id above the last one and an xid of this server, which no position covers.
//! So only rows up to that id are renumbered, each exactly once: a row that has its new xid must not
//! be classified by the old ones again, which is why the place that was reached is written in the transaction
//! that reaches it.
//!
//! Events that producers emitted before the adoption are told from restored ones by their ids, which are
//! above all that the positions know. Where the sequence was not restored that says nothing; then whatever is
//! younger than the last settle counts as not delivered. It may be delivered again, but is not lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::log::{Class, Restamped, ShardPosition, Tick, Window, Xid, restamp};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{Error, ErrorKind, EventId, Result, Shard, ShardSet, Timestamp};
use serde::{Deserialize, Serialize};

use crate::admin::audit::Entry;
use crate::admin::subscription::{subscription_list, subscription_lock};
use crate::error::Doing;
use crate::ownership::lock::lock_retention;
use crate::ownership::shard::shards_free;
use crate::server::identity::look;
use crate::server::session::{Session, Tx};
use crate::server::values::{At, SnapshotValue, XidValue};
use crate::settle::position::{SHARDS, position_newest, position_put};

const WHAT: &str = "adopt the store";

/// Events that one transaction renumbers.
pub(crate) const BATCH_EVENTS: u32 = 20_000;

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

/// How far an adoption has come. It looks through the whole log, and then renumbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdoptProgress {
    /// Events that were looked through.
    pub looked_through: u64,
    /// Events that were renumbered.
    pub renumbered: u64,
}

/// A place where some shards of a subscription stand.
struct Place {
    subscription: SubscriptionId,
    shards: ShardSet,
    position: Arc<ShardPosition>,
}

/// What is written down between two transactions.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    /// The last id that was issued when it began, after the sequence was mended.
    last_id: i64,
    /// Ids above this were issued on this server.
    restored_to: i64,
    /// Events from after this were emitted on this server.
    restored_until_us: Option<i64>,
    sequence_to: Option<i64>,
    /// The classes of rows by name, each with the least of its ids; none until all rows were looked through.
    classes: Option<BTreeMap<String, i64>>,
    /// Rows up to this id are renumbered.
    done_to: i64,
    events: u64,
}

/// Makes this server the store's home; none if it is. Tells how far it has come.
pub(crate) async fn adopt(
    session: &mut Session,
    actor: &str,
    batch: u32,
    mut told: impl FnMut(AdoptProgress),
) -> Result<Option<Adopted>> {
    let Some(mut state) = begin(session).await? else { return Ok(None) };
    let mut progress = AdoptProgress { looked_through: 0, renumbered: state.events };
    if state.classes.is_none() {
        let mut classes: BTreeMap<String, i64> = BTreeMap::new();
        let mut above = i64::MIN;
        while let Some((end, count)) = classify(session, &state, above, batch, &mut classes).await? {
            above = end;
            progress.looked_through += count;
            told(progress);
        }
        state = classified(session, classes).await?;
    }
    while let Some((next, count)) = renumber(session, batch).await? {
        state = next;
        progress.renumbered += count;
        told(progress);
    }
    end(session, actor, &state).await.map(Some)
}

/// The state in which an earlier run left it, or the first state. None if the store is at home.
async fn begin(session: &mut Session) -> Result<Option<State>> {
    let tx = session.begin().await?;
    tx.run("set local lock_timeout = '30s'", WHAT).await?;
    lock_retention(&tx).await?;
    if look(&tx).await?.1 {
        return Ok(None);
    }
    let found = state_get(&tx).await?;
    if found.is_some() {
        return Ok(found);
    }
    tx.execute(sql!("admin/adopt/adopt_lock"), &[], WHAT).await?;
    let state = known(&tx, &places(&tx).await?).await?;
    state_put(&tx, &state).await?;
    tx.commit(WHAT).await?;
    Ok(Some(state))
}

/// The positions of all subscriptions. Takes their shards from the members that held them on the other server.
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
async fn known(tx: &Tx<'_>, places: &[Place]) -> Result<State> {
    let row = tx.query_one(sql!("admin/adopt/adopt_known"), &[], WHAT).await?;
    let column = |index: usize| row.try_get::<_, i64>(index).doing(WHAT);
    let (issued, newest, adopted_to) = (column(0)?, column(1)?, column(3)?);
    let settled_at = row.try_get::<_, Option<At>>(2).doing(WHAT)?.map(|at| at.0);
    let read = places.iter().map(|place| place.position.window.to.seq().max(place.position.last_id.0));
    let restored_to = read.fold(adopted_to, i64::max);
    let last_id = issued.max(newest).max(restored_to);
    let mut state = State {
        last_id,
        restored_to,
        restored_until_us: None,
        sequence_to: None,
        classes: None,
        done_to: i64::MIN,
        events: 0,
    };
    if issued < last_id {
        tx.query(sql!("admin/adopt/adopt_sequence"), &[&last_id], WHAT).await?;
        state.restored_until_us = settled_at.map(Timestamp::as_micros);
        state.sequence_to = Some(last_id);
    }
    Ok(state)
}

/// The places in the log as parameters of a statement, and what else decides which of them cover a row.
struct Rule {
    from: Vec<SnapshotValue>,
    to: Vec<SnapshotValue>,
    last_ids: Vec<i64>,
    restored_to: i64,
    until: Option<At>,
}

impl Rule {
    fn new(places: &[Place], state: &State) -> Self {
        let snapshot = |tick: &Tick| SnapshotValue(tick.snapshot.clone());
        let windows = || places.iter().map(|place| &place.position.window);
        Self {
            from: windows().map(|window| snapshot(&window.from)).collect(),
            to: windows().map(|window| snapshot(&window.to)).collect(),
            last_ids: places.iter().map(|place| place.position.last_id.0).collect(),
            restored_to: state.restored_to,
            until: state.restored_until_us.map(|us| At(Timestamp::from_micros(us))),
        }
    }
}

/// Where a batch of rows ends that begins behind an id, and how many there are; none if there is none.
async fn batch_end(tx: &Tx<'_>, above: i64, last_id: i64, batch: u32) -> Result<Option<(i64, u64)>> {
    let row =
        tx.query_one(sql!("admin/adopt/adopt_batch"), &[&above, &last_id, &i64::from(batch)], WHAT).await?;
    let end: Option<i64> = row.try_get(0).doing(WHAT)?;
    let count = row.try_get::<_, i64>(1).doing(WHAT)? as u64;
    Ok(end.map(|end| (end, count)))
}

/// Looks a batch of rows through for their classes. Where it ends, and how many they are.
async fn classify(
    session: &mut Session,
    state: &State,
    above: i64,
    batch: u32,
    classes: &mut BTreeMap<String, i64>,
) -> Result<Option<(i64, u64)>> {
    let tx = session.begin().await?;
    let Some((end, count)) = batch_end(&tx, above, state.last_id, batch).await? else { return Ok(None) };
    let rule = Rule::new(&places(&tx).await?, state);
    let Rule { from, to, last_ids, restored_to, until } = &rule;
    let rows = tx
        .query(
            sql!("admin/adopt/adopt_classes"),
            &[from, to, last_ids, restored_to, until, &above, &end],
            WHAT,
        )
        .await?;
    for row in &rows {
        let (name, lowest): (String, i64) = (row.try_get(0).doing(WHAT)?, row.try_get(1).doing(WHAT)?);
        classes.entry(name).and_modify(|known| *known = lowest.min(*known)).or_insert(lowest);
    }
    tx.rollback(WHAT).await?;
    Ok(Some((end, count)))
}

/// Writes the classes down, unless another adopter was faster and has begun to renumber by now.
async fn classified(session: &mut Session, classes: BTreeMap<String, i64>) -> Result<State> {
    let tx = session.begin().await?;
    let mut state = state_alone(&tx).await?;
    if state.classes.is_none() {
        state.classes = Some(classes);
        state_put(&tx, &state).await?;
    }
    tx.commit(WHAT).await?;
    Ok(state)
}

/// Renumbers the next batch. The state after it, and how many rows it had; none if all are done.
async fn renumber(session: &mut Session, batch: u32) -> Result<Option<(State, u64)>> {
    let tx = session.begin().await?;
    let mut state = state_alone(&tx).await?;
    let Some((end, count)) = batch_end(&tx, state.done_to, state.last_id, batch).await? else {
        return Ok(None);
    };
    let places = places(&tx).await?;
    let (classes, _) = restamped(&state, places.len())?;
    let (names, xids): (Vec<String>, Vec<XidValue>) =
        classes.into_iter().map(|(name, xid)| (name, XidValue(xid))).unzip();
    let Rule { from, to, last_ids, restored_to, until } = &Rule::new(&places, &state);
    let parameters: &crate::server::session::Parameters<'_> =
        &[from, to, last_ids, restored_to, until, &state.done_to, &end, &names, &xids];
    tx.execute(sql!("admin/adopt/adopt_restamp"), parameters, WHAT).await?;
    (state.done_to, state.events) = (end, state.events + count);
    state_put(&tx, &state).await?;
    tx.commit(WHAT).await?;
    Ok(Some((state, count)))
}

/// A class by name, and its new xid.
type NewXid = (String, Xid);

/// The new xids of the classes by name, and the new ticks of the places.
fn restamped(state: &State, places: usize) -> Result<(Vec<NewXid>, Vec<Tick>)> {
    let classes = state.classes.iter().flatten().map(|(name, lowest)| class_read(name, *lowest)).collect();
    let Restamped { classes, ticks } = restamp(classes, places, state.last_id)?;
    Ok((classes.iter().map(|(class, xid)| (class_name(class), *xid)).collect(), ticks))
}

/// Makes this server the home, now that all rows are of it.
async fn end(session: &mut Session, actor: &str, state: &State) -> Result<Adopted> {
    let tx = session.begin().await?;
    tx.run("set local lock_timeout = '30s'", WHAT).await?;
    let state_now = state_alone(&tx).await?;
    if state_now.done_to != state.done_to {
        return Err(taken_over());
    }
    let places = places(&tx).await?;
    let (_, ticks) = restamped(state, places.len())?;
    tx.execute(sql!("admin/adopt/adopt_members"), &[], WHAT).await?;
    tx.query(sql!("admin/adopt/adopt_turns"), &[], WHAT).await?;
    tx.execute(sql!("admin/adopt/adopt_positions"), &[], WHAT).await?;
    for (place, tick) in places.iter().zip(ticks) {
        let last_id = EventId(tick.seq());
        let at = ShardPosition { shards: place.shards, window: Window::at(&Arc::new(tick)), last_id };
        position_put(&tx, place.subscription, &at).await?;
    }
    tx.execute(sql!("admin/adopt/adopt_identity"), &[&state.last_id], WHAT).await?;
    tx.execute(sql!("admin/adopt/adopt_state_delete"), &[], WHAT).await?;
    let detail = format!("{} events, the last id is {}", state.events, state.last_id);
    Entry { actor, action: "store_adopt", detail: Some(&detail) }.write_of_store(&tx).await?;
    let (store_id, _) = look(&tx).await?;
    tx.commit(WHAT).await?;
    Ok(Adopted { store_id, events: state.events, sequence_to: state.sequence_to })
}

async fn state_get(tx: &Tx<'_>) -> Result<Option<State>> {
    let Some(row) = tx.query_opt(sql!("admin/adopt/adopt_state"), &[], WHAT).await? else { return Ok(None) };
    let text: &str = row.try_get(0).doing(WHAT)?;
    serde_json::from_str(text).map(Some).map_err(|error| {
        Error::new(ErrorKind::Corrupt, "cannot go on with an adoption that was begun").with_source(error)
    })
}

/// The state, which no other transaction changes until this one ends.
async fn state_alone(tx: &Tx<'_>) -> Result<State> {
    lock_retention(tx).await?;
    state_get(tx).await?.ok_or_else(taken_over)
}

async fn state_put(tx: &Tx<'_>, state: &State) -> Result<()> {
    let text = serde_json::to_string(state).map_err(|error| {
        Error::new(ErrorKind::Internal, "cannot write an adoption down").with_source(error)
    })?;
    tx.execute(sql!("admin/adopt/adopt_state_put"), &[&text], WHAT).await.map(drop)
}

fn taken_over() -> Error {
    Error::new(ErrorKind::Conflict, "somebody else adopts this store at the same time: let one of you go on")
}

/// Reads a class by the name that the statement gives it: one digit a place.
fn class_read(name: &str, lowest: i64) -> Class {
    Class { covered_by: name.bytes().map(|digit| digit == b'1').collect(), lowest }
}

fn class_name(class: &Class) -> String {
    class.covered_by.iter().map(|covers| if *covers { '1' } else { '0' }).collect()
}
