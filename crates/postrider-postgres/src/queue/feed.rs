//! From the log into the queue.
//!
//! What was emitted waits for this, so that it is one flight: the check that the caller is still the owner,
//! the position, the lanes, the rows, and the claim of a worker that waits beside the feeder.

use std::collections::{BTreeMap, HashMap, HashSet};

use postrider_core::queue::{Ask, Fed, Feed, NewRow};
use postrider_core::settle::{Hold, Lane};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{ErrorKind, Fair, Result};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::claim::NewClaim;
use super::floors::{ALL, Floors, Sessions};
use super::hints::Ready;
use super::lanes::{bucket, buckets_taken};
use super::rows::spans_text;
use crate::error::Doing;
use crate::ownership::fence::{Standing, fence};
use crate::ownership::lock::lock_settle;
use crate::server::session::{Parameters, Session, Tx};
use crate::server::statement::Sql;
use crate::server::values::At;
use crate::settle::position::NewPosition;
use crate::store::Inner;

const WHAT: &str = "feed a queue";

/// How often a feed is tried that is known to have done nothing.
const FEED_TRIES: u32 = 5;

/// What was fed so far and is not done.
pub(super) async fn fed(tx: &Tx<'_>, hold: &Hold) -> Result<Fed> {
    let what = "look at a queue";
    let id = hold.subscription.id.0;
    let row = tx.query_one(sql!("queue/feed/queued_newest"), &[&id], what).await?;
    let newest = row.try_get(0).doing(what)?;
    let mut fed = Fed { front: front(tx, hold.subscription.id).await?, tenants: Vec::new(), newest };
    if hold.subscription.tuning.queue.fair != Fair::Nobody {
        let rows = tx.query(sql!("queue/feed/queued_tenants"), &[&id], what).await?;
        let read = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
        fed.tenants = rows.iter().map(read).collect::<Result<_, _>>().doing(what)?;
    }
    Ok(fed)
}

/// Where the queue stands.
pub(super) async fn front(tx: &Tx<'_>, id: SubscriptionId) -> Result<Option<i64>> {
    tx.query_one(sql!("queue/feed/queued_front"), &[&id.0], WHAT).await?.try_get(0).doing(WHAT)
}

/// What a feed has done.
pub(super) struct Done {
    /// Where the queue stands, if the subscription is fair.
    pub(super) front: Option<i64>,
    /// The claim that was made in the same transaction, and what it was answered.
    pub(super) claim: Option<(NewClaim, Vec<Row>)>,
}

/// Moves the position, writes the rows, and claims if it is asked to.
pub(super) async fn feed(store: &Inner, hold: &Hold, feed: &Feed, ask: Option<Ask>) -> Result<Done> {
    let id = hold.subscription.id;
    let mut session = store.writer.session().await?;
    let (reached, known) = store.mark_of(hold, Some(feed.mark), session.id())?;
    // Before it is true: our own claim has to look where it is about to be, and others find nothing there for a moment.
    let ready = ready(&feed.rows);
    store.hints.lower(id, &ready);
    let mut columns = Columns::of(id, &feed.rows);
    let sessions = columns.look_from(&store.floors, session.id());
    let plan = Plan {
        positions: reached.iter().map(|place| NewPosition::new(id, place)).collect(),
        new_ranks: store.hints.new_ranks(id, feed.rows.iter().map(rank)),
        columns,
        claim: ask
            .map(|ask| NewClaim::new(id, hold.member, ask, ask.events, store.hints.fly(id, ask.again > 0))),
        hold,
    };
    let Answers { standing, taken, floors, front, claimed } = plan.carry_out(&mut session, known).await?;
    let lanes = plan.columns.lanes;
    store.floors.seen(sessions, id, lanes.iter().copied().zip(floors));
    let left = lanes.into_iter().filter(|lane| !taken.contains(&bucket(lane))).cloned();
    store.hints.put_ranks(id, &plan.new_ranks);
    store.hints.unsure(id, left.collect());
    store.hints.lower(id, &ready);
    store.hints.due(id, feed.rows.iter().filter_map(|row| row.due_at).min());
    store.marked(hold, Some(feed.mark), standing)?;
    Ok(Done { front, claim: plan.claim.map(|claim| (claim, claimed)) })
}

/// All that a feed does.
struct Plan<'a> {
    hold: &'a Hold,
    positions: Vec<NewPosition>,
    /// Ranks that may not be known yet.
    new_ranks: Vec<i16>,
    columns: Columns<'a>,
    claim: Option<NewClaim>,
}

struct Answers {
    standing: Standing,
    /// Buckets of lanes from which no transaction was taking a head away.
    taken: HashSet<i32>,
    /// The floors of the lanes that rows have entered, as far as they were seen.
    floors: Vec<Option<i64>>,
    front: Option<i64>,
    claimed: Vec<Row>,
}

impl Plan<'_> {
    /// Flies, and flies again if nothing was done and that can be mended: an operator has paused or resumed,
    /// which moves the fence and leaves all shards to the caller; or another claim has drawn the same token.
    async fn carry_out(&self, session: &mut Session, mut known: i64) -> Result<Answers> {
        let mut tries = 0;
        loop {
            tries += 1;
            let answers = self.fly(session.begin().await?, known).await;
            match answers {
                Err(error) if error.is_fenced() && tries < FEED_TRIES => {
                    let tx = session.begin().await?;
                    lock_settle(&tx, self.hold.subscription.id, self.hold.member).await?;
                    known = fence(&tx, self.hold, known).await?.fence;
                    tx.rollback(WHAT).await?;
                }
                Err(error) if error.kind() == ErrorKind::Conflict && tries < FEED_TRIES => {}
                answers => return answers,
            }
        }
    }

    async fn fly(&self, tx: Tx<'_>, known: i64) -> Result<Answers> {
        let (id, member) = (self.hold.subscription.id.0, self.hold.member.0);
        let is_flushed = self.claim.is_some();
        let begin: [&(dyn ToSql + Sync); 1] = [&is_flushed];
        let check: [&(dyn ToSql + Sync); 3] = [&id, &member, &known];
        let positions: Vec<_> = self.positions.iter().map(NewPosition::parameters).collect();
        let ranks: [&(dyn ToSql + Sync); 2] = [&id, &self.new_ranks];
        let buckets: Vec<i32> = self.columns.lanes.iter().map(|lane| bucket(lane)).collect();
        let lanes: [&(dyn ToSql + Sync); 2] = [&id, &buckets];
        let rows = self.columns.parameters();
        let front: [&(dyn ToSql + Sync); 1] = [&id];
        let claim = self.claim.as_ref().map(NewClaim::parameters);
        let fair = self.hold.subscription.tuning.queue.fair != Fair::Nobody;
        let mut steps: Vec<(Sql, &Parameters<'_>)> = Vec::new();
        let mut step = |wanted: bool, sql: Sql, parameters| {
            if wanted {
                steps.push((sql, parameters));
            }
        };
        step(true, sql!("queue/feed/feed_begin"), &begin);
        step(true, sql!("queue/feed/hold_check"), &check);
        for position in &positions {
            step(true, sql!("settle/position/position_put"), position);
        }
        step(!self.new_ranks.is_empty(), sql!("queue/feed/queue_front_put"), &ranks);
        step(!buckets.is_empty(), sql!("queue/feed/queue_lane_take"), &lanes);
        step(!self.columns.ids.is_empty(), sql!("queue/feed/queued_feed"), &rows);
        step(fair, sql!("queue/feed/queued_front"), &front);
        step(claim.is_some(), sql!("queue/feed/queued_claim"), claim.as_ref().map_or(&[], |claim| claim));
        let answers = tx.fly(&steps, WHAT).await?;
        let mut answers: HashMap<Sql, Vec<Row>> = steps.iter().map(|(sql, _)| *sql).zip(answers).collect();
        let mut answer = |sql| answers.remove(&sql).unwrap_or_default();
        let paused = answer(sql!("queue/feed/hold_check"))
            .first()
            .map_or(Ok(false), |row| row.try_get(0))
            .doing(WHAT)?;
        let front = answer(sql!("queue/feed/queued_front"))
            .first()
            .map_or(Ok(None), |row| row.try_get(0))
            .doing(WHAT)?;
        let floors = answer(sql!("queue/feed/queued_feed"))
            .first()
            .map_or(Ok(None), |row| row.try_get(0))
            .doing(WHAT)?;
        Ok(Answers {
            standing: Standing { fence: known, paused },
            taken: buckets_taken(&answer(sql!("queue/feed/queue_lane_take")))?,
            floors: floors.unwrap_or_default(),
            front,
            claimed: answer(sql!("queue/feed/queued_claim")),
        })
    }
}

/// The first of each rank, for those who claim in this process.
pub(super) fn ready(rows: &[NewRow]) -> Vec<Ready> {
    let mut firsts: BTreeMap<i16, i64> = BTreeMap::new();
    for row in rows {
        let first = firsts.entry(rank(row)).or_insert(row.virtual_time);
        *first = row.virtual_time.min(*first);
    }
    firsts.into_iter().collect()
}

/// The lower, the more urgent.
fn rank(row: &NewRow) -> i16 {
    -i16::from(row.priority.level())
}

/// Rows as `queued_feed` takes them.
struct Columns<'a> {
    id: i64,
    /// Lanes that some of them enter, in the order of the first rows that do.
    lanes: Vec<&'a Lane>,
    ids: Vec<i64>,
    last_ids: Vec<i64>,
    virtual_times: Vec<i64>,
    turns: Vec<i64>,
    due: Vec<Option<At>>,
    tenants: Vec<Option<i64>>,
    bytes: Vec<i32>,
    events: Vec<i16>,
    ranks: Vec<i16>,
    lates: Vec<bool>,
    /// How many others of the same lane come before it.
    places: Vec<i32>,
    buckets: Vec<Option<i32>>,
    keys: Vec<Option<&'a str>>,
    spans: Vec<Option<String>>,
    /// Of the first row of each lane, the lane's floor.
    floors: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn of(id: SubscriptionId, rows: &'a [NewRow]) -> Self {
        let entering = |row: &'a NewRow| row.lane.as_ref().filter(|_| row.due_at.is_none());
        let mut lanes: Vec<&Lane> = Vec::new();
        let mut counts: HashMap<&Lane, i32> = HashMap::new();
        let mut place = |row| {
            let Some(lane) = entering(row) else { return 0 };
            let next = counts.entry(lane).or_default();
            if *next == 0 {
                lanes.push(lane);
            }
            *next += 1;
            *next - 1
        };
        Self {
            places: rows.iter().map(&mut place).collect(),
            lanes,
            id: id.0,
            ids: rows.iter().map(|row| row.events.first().0).collect(),
            last_ids: rows.iter().map(|row| row.events.last().0).collect(),
            virtual_times: rows.iter().map(|row| row.virtual_time).collect(),
            turns: rows.iter().map(|row| row.turn).collect(),
            due: rows.iter().map(|row| row.due_at.map(At)).collect(),
            tenants: rows.iter().map(|row| row.tenant).collect(),
            bytes: rows.iter().map(|row| row.bytes.min(i32::MAX as u32) as i32).collect(),
            events: rows.iter().map(|row| row.events.count() as i16).collect(),
            ranks: rows.iter().map(rank).collect(),
            lates: rows.iter().map(|row| row.lane.as_ref().is_some_and(|lane| lane.late)).collect(),
            buckets: rows.iter().map(|row| entering(row).map(bucket)).collect(),
            keys: rows.iter().map(|row| row.lane.as_ref().map(|lane| lane.key.as_str())).collect(),
            spans: rows.iter().map(|row| spans_text(&row.events)).collect(),
            floors: vec![ALL; rows.len()],
        }
    }

    /// Notes from where on the lanes are looked at.
    fn look_from(&mut self, floors: &Floors, writer: u64) -> Sessions {
        let (sessions, known) = floors.of_feed(writer, SubscriptionId(self.id), self.lanes.iter().copied());
        let firsts =
            self.places.iter().zip(&self.buckets).map(|(place, bucket)| *place == 0 && bucket.is_some());
        let mut known = known.into_iter();
        for (floor, _) in self.floors.iter_mut().zip(firsts).filter(|(_, is_first)| *is_first) {
            *floor = known.next().unwrap_or(ALL);
        }
        sessions
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 16] {
        [
            &self.id,
            &self.ids,
            &self.last_ids,
            &self.virtual_times,
            &self.turns,
            &self.due,
            &self.tenants,
            &self.bytes,
            &self.events,
            &self.ranks,
            &self.lates,
            &self.places,
            &self.buckets,
            &self.keys,
            &self.spans,
            &self.floors,
        ]
    }
}
