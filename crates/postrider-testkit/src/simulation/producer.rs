//! Who emits, and the truth about what was emitted.

use std::sync::PoisonError;
use std::time::Duration;

use postrider_core::{Event, Store};

use super::World;
use crate::history::{History, ORDINAL};

/// Two hours in either direction.
pub(super) const CLOCK_JUMP_MAX_MICROS: i64 = 7_200_000_000;

/// Emits while things go wrong.
pub(super) async fn produce(world: &World, events: u32) {
    for _ in 0..events {
        if world.chance(world.plan.clock_jump) {
            let micros = world.roll(|rng| rng.i64(-CLOCK_JUMP_MAX_MICROS..CLOCK_JUMP_MAX_MICROS));
            world.clock.step(micros);
        }
        emit(world).await;
        let wait = world.roll(|rng| if rng.u32(0..10) == 0 { rng.u64(0..3000) } else { rng.u64(0..20) });
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
}

/// Emits single events with long pauses between them.
pub(super) async fn trickle(world: &World, events: u32) {
    for _ in 0..events {
        tokio::time::sleep(Duration::from_secs(5)).await;
        emit(world).await;
    }
}

async fn emit(world: &World) {
    let keys = world.plan.keys as usize;
    let (key, delay) = world.roll(|rng| {
        let delay = (rng.f64() < world.plan.delayed).then(|| rng.u64(1..20_000));
        (rng.usize(0..=keys), delay)
    });
    let n = {
        let mut emitted = world.emitted.lock().unwrap_or_else(PoisonError::into_inner);
        // Delayed events leave their key's order, and so its numbers.
        emitted[key] += u64::from(delay.is_none());
        emitted[key]
    };
    let mut event = match (key < keys, delay) {
        (true, None) => History::event("simulated", &format!("k{key}"), n),
        (true, Some(_)) => Event::new("simulated").key(format!("k{key}")),
        (false, _) => Event::new("simulated").header(ORDINAL, n.to_string()),
    };
    if let Some(delay) = delay {
        event = event.due_after(Duration::from_millis(delay));
    }
    let ids =
        world.producers.event_emit(vec![event.clone()]).await.expect("producers lose nothing but wakes");
    world.history.emitted(ids[0], &event);
}
