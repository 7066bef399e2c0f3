//! Order, visibility and faults, each with real servers: what a model of PostgreSQL could get wrong.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod cancellation;
mod clocks;
mod crashes;
mod damage;
mod epoch;
mod groups;
mod interleaved;
mod large;
mod locks;
mod log;
mod managed;
mod memory;
mod moves;
mod network;
mod outboxes;
mod places;
mod plans;
mod pooler;
mod producers;
mod queue_acks;
mod queue_faults;
mod queue_lanes;
mod queue_limits;
mod queues;
mod relay;
mod schedules;
mod seeks;
mod sharing;
mod sizes;
mod slots;
mod sources;
mod stage;
mod stragglers;
mod takeover;
mod turns;
mod turnstile;
mod upgrades;
mod visibility;
mod wake;
