//! Who writes: producers, another database, those who resolve what was prepared, the disk, the janitor.

use std::rc::Rc;

use super::flaw::Flaw;
use super::leaves::Care;
use super::world::{World, turn};
use super::{Inner, Lost, Session};

/// Emits, in transactions of all shapes, until the end comes.
pub(super) async fn produce(world: Rc<World>) {
    let mut session = world.pg.borrow_mut().connect();
    while !world.ending.get() {
        if transact(&world, session).await.is_err() {
            session = world.pg.borrow_mut().connect();
        }
        world.dawdle(10).await;
    }
}

async fn transact(world: &World, session: Session) -> Result<(), Lost> {
    world.pg.borrow_mut().begin(session)?;
    turn().await;
    if world.chance(0.3) {
        world.pg.borrow_mut().take_xid(session)?;
        world.dawdle(15).await;
    }
    for key in 0..world.plan.keys {
        if !world.chance(1.5 / f64::from(world.plan.keys)) {
            continue;
        }
        while !world.pg.borrow_mut().lock(session, key)? {
            turn().await;
        }
        world.dawdle(3).await;
        embellish(world, session, key).await?;
        emit(world, session, key).await?;
    }
    if world.chance(0.1) {
        world.dawdle(60).await;
    }
    end(world, session).await
}

/// What transactions do besides emitting.
async fn embellish(world: &World, session: Session, key: u32) -> Result<(), Lost> {
    if world.chance(0.15) {
        world.pg.borrow_mut().savepoint(session)?;
        emit(world, session, key).await?;
        if world.chance(0.6) {
            world.pg.borrow_mut().rollback_to(session)?;
            world.count(|report| report.undone += 1);
        } else {
            world.pg.borrow_mut().release(session)?;
        }
        turn().await;
    }
    if world.chance(0.1) {
        let inner = if world.chance(0.5) { Inner::Released } else { Inner::Undone };
        let count = 1 + world.below(20) as u32;
        world.pg.borrow_mut().nest(session, count, inner)?;
        turn().await;
    }
    Ok(())
}

/// One event: first the xid, then the id.
async fn emit(world: &World, session: Session, key: u32) -> Result<(), Lost> {
    if !world.has(Flaw::IdBeforeXid) {
        world.pg.borrow_mut().take_xid(session)?;
        world.dawdle(2).await;
    }
    let id = world.pg.borrow_mut().draw_id(session)?;
    world.dawdle(2).await;
    world.pg.borrow_mut().insert(session, id, key)?;
    world.dawdle(2).await;
    Ok(())
}

async fn end(world: &World, session: Session) -> Result<(), Lost> {
    turn().await;
    if world.chance(0.15) {
        return world.pg.borrow_mut().rollback(session);
    }
    let prepared_before = world.pg.borrow().prepared().contains(&session);
    if world.chance(world.plan.prepared) && !prepared_before {
        world.count(|report| report.prepared += 1);
        return world.pg.borrow_mut().prepare(session);
    }
    let flushes = !world.chance(world.plan.unflushed);
    commit(world, session, flushes).await
}

/// The moments of a commit.
pub(super) async fn commit(world: &World, session: Session, flushes: bool) -> Result<(), Lost> {
    let written = world.pg.borrow_mut().commit_write(session)?;
    turn().await;
    world.pg.borrow().alive(session)?;
    if flushes {
        world.pg.borrow_mut().flush(written);
        turn().await;
    }
    world.pg.borrow_mut().commit_show(session)
}

/// Another database of the same server: takes xids.
pub(super) async fn elsewhere(world: Rc<World>) {
    let mut session = world.pg.borrow_mut().connect();
    while !world.ending.get() {
        let taken = || -> Result<(), Lost> {
            let mut pg = world.pg.borrow_mut();
            pg.begin(session)?;
            pg.take_xid(session).map(|_| ())
        };
        let begun = taken();
        world.dawdle(40).await;
        let ended = match begun {
            Ok(()) if world.chance(0.5) => world.pg.borrow_mut().rollback(session),
            Ok(()) => commit(&world, session, false).await,
            Err(lost) => Err(lost),
        };
        if ended.is_err() {
            session = world.pg.borrow_mut().connect();
        }
    }
}

/// Resolves what others have prepared, at last all of it.
pub(super) async fn resolve(world: Rc<World>) {
    while !world.quiet.get() {
        world.dawdle(80).await;
        let prepared = world.pg.borrow().prepared();
        if !prepared.is_empty() {
            let which = prepared[world.below(prepared.len())];
            let commits = world.chance(0.7);
            world.pg.borrow_mut().resolve(which, commits);
        }
        turn().await;
    }
}

/// The server's own flushing, which is never in a hurry.
pub(super) async fn flush(world: Rc<World>) {
    loop {
        world.dawdle(60).await;
        let inserted = world.pg.borrow().inserted();
        turn().await;
        world.pg.borrow_mut().flush(inserted);
    }
}

/// Rotates leaves and empties old ones.
pub(super) async fn keep_house(world: Rc<World>) {
    let care = Care {
        rotates_into_full: world.has(Flaw::RotateIntoFull),
        keeps_no_copy: world.has(Flaw::TruncateWithoutCopy),
    };
    let mut session = world.pg.borrow_mut().connect();
    while !world.quiet.get() {
        world.dawdle(60).await;
        let all_there = world.created.get() == world.plan.subscriptions.len();
        if all_there && tidy_up(&world, session, care).await.is_err() {
            session = world.pg.borrow_mut().connect();
        }
        turn().await;
    }
}

async fn tidy_up(world: &World, session: Session, care: Care) -> Result<(), Lost> {
    world.pg.borrow_mut().begin(session)?;
    if world.chance(0.5) {
        let rotated = world.pg.borrow_mut().leaf_rotate(session, care)?;
        world.count(|report| report.rotated += u64::from(rotated));
    } else {
        let removed = world.pg.borrow_mut().leaf_truncate(session, care)?;
        world.count(|report| report.removed += removed as u64);
    }
    turn().await;
    commit(world, session, false).await
}
