//! Two cursors that many systems have used, and that are wrong.

use std::rc::Rc;

use postrider_core::log::Xid;

use super::Row;
use super::flaw::Flaw;
use super::settlement::StoredPosition;
use super::witness::Attempt;
use super::world::{World, turn};

/// Delivers with a cursor that is no tick. Its memory outlives everything: it fails without a crash.
pub(super) async fn follow(world: Rc<World>) {
    let start = postrider_core::log::Tick::start();
    let stored = StoredPosition { from: start.clone(), to: start, last_id: 0 };
    world.witness.borrow_mut().created(0, stored);
    world.created.set(world.plan.subscriptions.len());
    let mut cursor = (Xid(0), 0);
    loop {
        world.dawdle(5).await;
        let quiet = world.quiet.get();
        let (rows, next) = match world.flaw {
            Some(Flaw::MaxIdCursor) => by_id(&world, cursor).await,
            _ => by_xid(&world, cursor).await,
        };
        for row in &rows {
            world.witness.borrow_mut().delivered(0, row, Attempt::Acked, &world.pg.borrow());
        }
        cursor = next;
        if rows.is_empty() && quiet {
            return;
        }
    }
}

/// Rows above the largest id that was seen.
async fn by_id(world: &World, (xid, last): (Xid, i64)) -> (Vec<Row>, (Xid, i64)) {
    let snapshot = world.pg.borrow().snapshot();
    turn().await;
    let rows: Vec<Row> = world.pg.borrow().rows(&snapshot, last).copied().collect();
    let last = rows.last().map_or(last, |row| row.id);
    (rows, (xid, last))
}

/// Rows of transactions below the oldest running one, by xid and id.
async fn by_xid(world: &World, cursor: (Xid, i64)) -> (Vec<Row>, (Xid, i64)) {
    let snapshot = world.pg.borrow().snapshot();
    turn().await;
    let mut rows: Vec<Row> = world.pg.borrow().rows(&snapshot, 0).copied().collect();
    rows.retain(|row| row.xid < snapshot.xmin() && (row.xid, row.id) > cursor);
    rows.sort_by_key(|row| (row.xid, row.id));
    let cursor = rows.last().map_or(cursor, |row| (row.xid, row.id));
    (rows, cursor)
}
