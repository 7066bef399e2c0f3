//! Transactions that commit long after they began: how their rows are found, and what that costs others.
//!
//! ```text
//!    ids ──►   lowest               from.seq()          to.seq()
//!   ───────────┼──s──────────────s──┼─n─n─nnn─n─nn──────┤
//!              └ cold: rows of stragglers, few, between all that was written since they began
//!                                   └ hot: nearly every row is of the window
//! ```
//!
//! The cold part is looked through by ids, a bounded stretch at a time, at about eight million a second once
//! they are in memory. No reader may go on before that is done, because later commits may build upon the
//! straggler. Where the leaf has an index on `(xid, id)`, the cold part is read by the stragglers' xids
//! instead. Producers would pay for that index with every event (a quarter more WAL), so it is not there by
//! default: a warning advises operators with such transactions to make it. It helps from the next one on,
//! because building it without blocking producers waits for open transactions.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postrider_core::log::{Window, Xid};
use postrider_core::{EventId, Result};
use tokio_postgres::Row;
use tracing::warn;

use crate::error::Doing;
use crate::log::log_rows::{RowsRead, rows_read, rows_take};
use crate::log::turn::{LEAVES, Stretch, Turn, stretches};
use crate::options::PostgresOptions;
use crate::server::session::{Ask, Session, Tx};
use crate::server::statement::Schema;
use crate::server::values::XidValue;
use crate::store::Inner;

/// So many ids are looked through sooner than by an index.
const BY_ID_MAX: i64 = 20_000;

/// Ids that one statement looks through, so that a scan of any length is made of calls that are not.
const SCAN_IDS_MAX: i64 = 1_000_000;

/// Transactions that one statement asks for; with more, the log is read by ids.
const XIDS_MAX: usize = 1_000;

/// How long it is believed which leaves have an index.
const BELIEVE: Duration = Duration::from_secs(60);

/// How often people are told.
const WARN_EVERY: Duration = Duration::from_secs(60);

const WHAT: &str = "look for late events";

/// What is known about the leaves, and when people were told.
#[derive(Default)]
pub(crate) struct Stragglers {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    session: u64,
    looked_at: Option<Instant>,
    indexed: Leaves,
    warned_at: Option<Instant>,
}

/// Some of the 16 leaves: one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Leaves(u16);

impl Leaves {
    fn read(rows: &[Row]) -> Result<Self> {
        rows.iter().try_fold(Self::default(), |Self(leaves), row| {
            let leaf: i32 = row.try_get(0).doing(WHAT)?;
            Ok(Self(leaves | 1 << (leaf & 15)))
        })
    }

    fn contains(self, leaf: u8) -> bool {
        self.0 & (1 << leaf) != 0
    }
}

/// Reads a window on behind `above`: the stretch that was looked at, and what it holds.
pub(crate) async fn window_read(
    store: &Inner,
    session: &Session,
    window: &Window,
    above: i64,
) -> Result<(Stretch, RowsRead)> {
    let above = past_emptied(session, window, above).await?;
    let stretch = match cold(store, session, window, above).await? {
        Some(Cold::ByXid(stretch, xids)) => {
            return Ok((stretch, late_read(session, stretch, &xids, store).await?));
        }
        Some(Cold::ById(stretch)) => stretch,
        None => Stretch::behind(above, window.to.seq()),
    };
    Ok((stretch, rows_read(session, stretch, &window.from.snapshot, &store.appetite).await?))
}

/// Where to read on behind `above` if the ring has come round since. Leaves of turns before that serve others
/// by now: there is nothing in these turns but perhaps a row that came late, and there may be thousands of
/// them.
///
/// A reader of the window sees all of its rows, so none of them lies below the first row that it finds.
async fn past_emptied(session: &Session, window: &Window, above: i64) -> Result<i64> {
    let end = window.to.seq();
    let turns = Turn::of(EventId(end)).number() - Turn::of(EventId(above.saturating_add(1))).number();
    if turns < LEAVES {
        return Ok(above);
    }
    let rows = session.query(sql!("log/event_first"), &[&above], WHAT).await?;
    let first: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose().doing(WHAT)?.flatten();
    Ok(first.map_or(end, |first| end.min(first - 1)).max(above))
}

/// How to read a part of a window of which few rows are the window's own.
enum Cold {
    ByXid(Stretch, Vec<XidValue>),
    ById(Stretch),
}

/// How to read on behind `above` if a large cold part lies there.
async fn cold(store: &Inner, session: &Session, window: &Window, above: i64) -> Result<Option<Cold>> {
    let budget = store.options.straggler_budget;
    // Of a window that was entered before a restart it is not known where the cold part ends.
    let is_known = window.from.seq() > 0;
    let (end, few) =
        if is_known { (window.from.seq(), BY_ID_MAX.min(budget)) } else { (window.to.seq(), SCAN_IDS_MAX) };
    if end.saturating_sub(above) <= few {
        return Ok(None);
    }
    let ended = Ended::look(session, above, end).await?;
    let ids = ended.ids_between(above, end);
    if ids <= few {
        return Ok(None);
    }
    let by_id = Some(Cold::ById(ended.scan(above, end)));
    if !is_known {
        return Ok(by_id);
    }
    let (whole, indexed) = (Stretch::behind(above, end), store.stragglers.indexed(session).await?);
    if indexed.contains(whole.turn.leaf()) {
        let xids = window.stragglers(XIDS_MAX);
        let by_xid = |xids: Vec<Xid>| Cold::ByXid(whole, xids.into_iter().map(XidValue).collect());
        return Ok(xids.map(by_xid).or(by_id));
    }
    if ids > budget && store.stragglers.is_time_to_warn(Instant::now()) {
        let advice = index_advice(&store.options.schema, above, end, indexed);
        warn!(
            ids,
            advice,
            "a transaction from long ago has committed: its events are looked for among all since it began, and \
             others wait; an index makes that short"
        );
    }
    Ok(by_id)
}

async fn late_read(
    session: &Session,
    stretch: Stretch,
    xids: &Vec<XidValue>,
    store: &Inner,
) -> Result<RowsRead> {
    let (leaf, asked) = (stretch.turn.leaf(), store.appetite.rows());
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&stretch.above, &stretch.up_to, xids, &(asked as i64)];
    let stream = session.stream(sql!("log/event_fetch_late").on_leaf(leaf), &parameters, WHAT).await?;
    rows_take(session, leaf, stream, asked, &store.appetite).await
}

impl Stragglers {
    /// The leaves that have the index, by a look that may be a minute old.
    async fn indexed(&self, session: &Session) -> Result<Leaves> {
        {
            let known = self.lock();
            let fresh = known.looked_at.is_some_and(|at| at.elapsed() < BELIEVE);
            if fresh && known.session == session.id() {
                return Ok(known.indexed);
            }
        }
        let rows = session.query(sql!("log/leaf_xid_index"), &[], WHAT).await?;
        let indexed = Leaves::read(&rows)?;
        let mut known = self.lock();
        (known.session, known.looked_at, known.indexed) = (session.id(), Some(Instant::now()), indexed);
        Ok(indexed)
    }

    /// Whether people have not been told for a while; then they are told now.
    fn is_time_to_warn(&self, now: Instant) -> bool {
        let mut known = self.lock();
        let is_time = known.warned_at.is_none_or(|at| now.saturating_duration_since(at) >= WARN_EVERY);
        if is_time {
            known.warned_at = Some(now);
        }
        is_time
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is going to happen when the transaction that has been open for longest commits, if that is worth a sentence.
/// `floor` says where its events can lie.
pub(crate) async fn straggler_check(
    tx: &Tx<'_>,
    options: &PostgresOptions,
    oldest: Xid,
    floor: i64,
    issued: i64,
) -> Result<Option<String>> {
    let ids = Ended::look(tx, floor, issued).await?.ids_between(floor, issued);
    let indexed = Leaves::read(&tx.query(sql!("log/leaf_xid_index"), &[], WHAT).await?)?;
    let advice = index_advice(&options.schema, floor, issued, indexed);
    Ok((ids > options.straggler_budget && !advice.is_empty()).then(|| {
        format!(
            "transaction {} has been open for long: when it commits, its events are looked for among {ids} ids, and \
             all others wait meanwhile; end it (see pg_stat_activity and pg_prepared_xacts), and for the next one run \
             `{advice}`, which waits until this one has ended",
            oldest.0
        )
    }))
}

/// What to run so that late events are found by their transactions in all leaves of a range of ids.
fn index_advice(schema: &Schema, above: i64, up_to: i64, indexed: Leaves) -> String {
    let mut advice = String::new();
    for stretch in stretches(above, up_to, EventId(up_to)) {
        let leaf = stretch.turn.leaf();
        if !indexed.contains(leaf) {
            // Writing to a string cannot fail.
            let _ = write!(
                advice,
                "{}create index concurrently if not exists event_{leaf}_xid on {}.event_{leaf} (xid, id)",
                if advice.is_empty() { "" } else { "; " },
                schema.name()
            );
        }
    }
    advice
}

/// The last events of turns that have ended: behind them the rest of the turn was passed over.
struct Ended(HashMap<i64, i64>);

impl Ended {
    /// Asks the leaves, since a turn may have been ended by others than retention.
    async fn look(server: &impl Ask, above: i64, up_to: i64) -> Result<Self> {
        let mut ended = HashMap::new();
        let current = Turn::of(EventId(up_to));
        for stretch in stretches(above, up_to, EventId(up_to)).filter(|stretch| stretch.turn != current) {
            let newest = sql!("log/event_newest").on_leaf(stretch.turn.leaf());
            let rows = server.ask(newest, &[&stretch.above, &stretch.up_to], WHAT).await?;
            let last = rows.first().map(|row| row.try_get(0)).transpose().doing(WHAT)?;
            ended.insert(stretch.turn.number(), last.unwrap_or(stretch.above));
        }
        Ok(Self(ended))
    }

    fn last_of(&self, turn: Turn) -> i64 {
        self.0.get(&turn.number()).copied().unwrap_or(i64::MAX)
    }

    /// How many ids were issued above one and up to another.
    fn ids_between(&self, above: i64, up_to: i64) -> i64 {
        stretches(above, up_to, EventId(up_to))
            .map(|stretch| (stretch.up_to.min(self.last_of(stretch.turn)) - stretch.above).max(0))
            .sum()
    }

    /// What one statement looks through behind `above`.
    fn scan(&self, above: i64, up_to: i64) -> Stretch {
        let whole = Stretch::behind(above, up_to);
        let enough = above.saturating_add(SCAN_IDS_MAX);
        if enough < whole.up_to.min(self.last_of(whole.turn)) {
            Stretch { up_to: enough, ..whole }
        } else {
            whole
        }
    }
}

#[cfg(test)]
mod tests {
    use postrider_testkit::postgres::{Version, shared};

    use super::*;
    use crate::server::pooler::Way;
    use crate::server::session::Role;
    use crate::server::statement::Sql;
    use crate::store::PostgresStore;

    const TURN: i64 = 1 << 34;

    #[test]
    fn ids_that_were_passed_over_do_not_count() {
        let ended = Ended(HashMap::from([(0, 500), (1, TURN + 100)]));
        assert_eq!(ended.ids_between(0, 400), 400);
        assert_eq!(ended.ids_between(100, TURN + 50), 400 + 51);
        assert_eq!(ended.ids_between(600, 2 * TURN + 7), 101 + 8);
        assert_eq!(ended.ids_between(9, 9), 0);
    }

    #[test]
    fn a_scan_is_bounded_and_crosses_what_was_passed_over_at_once() {
        let ended = Ended(HashMap::from([(0, 5_000_000)]));
        let up_to = |above| ended.scan(above, TURN + 3_000_000).up_to;
        assert_eq!(up_to(0), SCAN_IDS_MAX);
        assert_eq!(up_to(3_999_999), 4_999_999);
        assert_eq!(up_to(4_000_000), TURN - 1, "what commits there meanwhile is met too");
        assert_eq!(up_to(TURN - 1), TURN - 1 + SCAN_IDS_MAX);
        assert_eq!(up_to(TURN + 2_500_000), TURN + 3_000_000);
    }

    #[test]
    fn people_are_told_once_a_minute() {
        let (stragglers, start) = (Stragglers::default(), Instant::now());
        let told = [0, 1, 59, 60, 61, 119, 120].map(|after| {
            let now = start + Duration::from_secs(after);
            stragglers.is_time_to_warn(now)
        });
        assert_eq!(told, [true, false, false, true, false, false, true]);
    }

    #[test]
    fn the_advice_names_each_leaf_that_lacks_the_index() {
        let schema = Schema::new("shop").unwrap();
        let advice = index_advice(&schema, 5, 2 * TURN + 5, Leaves(0b10));
        assert_eq!(
            advice,
            "create index concurrently if not exists event_0_xid on shop.event_0 (xid, id); \
             create index concurrently if not exists event_2_xid on shop.event_2 (xid, id)"
        );
        assert_eq!(index_advice(&schema, 5, 9, Leaves(1)), "");
    }

    /// In a leaf that was never analysed, and in one that was; by a plan for any parameters.
    #[tokio::test]
    async fn the_index_is_used_if_it_is_there() {
        for version in Version::ALL {
            let database = shared(version).create_database();
            let options = PostgresOptions::from_url(&database.url).unwrap();
            let store = PostgresStore::open(options.clone()).await.unwrap();
            let insert = "insert into postrider.event (topic, type, payload_bytes)
                          select 'order', 'order', '' from generate_series(1, 5000)";
            database.query(insert);
            let way = Way::new(options.pooler);
            let mut reader = Session::connect(&options, &way, Role::Reader).await.unwrap();
            let statement = sql!("log/event_fetch_late").on_leaf(0).text(&options.schema).into_owned();
            let prepare = format!("set plan_cache_mode = force_generic_plan; prepare late as {statement}");
            let tx = reader.begin().await.unwrap();
            tx.run(&prepare, WHAT).await.unwrap();
            tx.commit(WHAT).await.unwrap();
            assert_eq!(store.inner.stragglers.indexed(&reader).await.unwrap(), Leaves(0));
            assert!(!plan(&reader).await.contains("event_0_xid"));
            for script in [index_advice(&options.schema, 0, 9, Leaves(0)), "analyze".to_owned()] {
                database.query(&script);
                let plan = plan(&reader).await;
                assert!(plan.contains("using event_0_xid on event_0"), "{version:?}: {plan}");
                assert_eq!(plan.matches("Sort").count(), 2, "sorts what it has found only: {plan}");
            }
            let again = Session::connect(&options, &way, Role::Reader).await.unwrap();
            assert_eq!(store.inner.stragglers.indexed(&again).await.unwrap(), Leaves(1), "{version:?}");
        }
    }

    async fn plan(reader: &Session) -> String {
        let explain = Sql::new("explain (costs off) execute late (0, 5000, '{800}', 4000)");
        let lines = reader.query(explain, &[], WHAT).await.unwrap();
        lines.iter().map(|line| line.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
    }
}
