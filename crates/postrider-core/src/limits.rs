//! Every upper bound in one place.
//!
//! This file bounds what a user may send. For rows that arrive by plain SQL, the schema does. An event that
//! breaks a limit all the same is read without the offending part, and becomes a dead letter: see
//! [`Flaw`](crate::event::Flaw). [`SPAN_EVENTS_MAX`], [`SPAN_BYTES_MAX`], [`UNSETTLED_EVENTS_MAX`] and
//! [`PARKED_KEYS_MAX`] bound the memory of Postrider.

use std::time::Duration;

/// Bytes of a topic or a type.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 1024;
/// Bytes of an idempotency key.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// How long an idempotency key may be taken: ten years. Anything longer is a unit mistake.
pub const UNIQUE_FOR_MAX: Duration = DUE_AFTER_MAX;
/// Bytes of a payload. Brokers commonly stop at 1 MiB; what cannot be delivered should not be emitted.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Headers of one event.
pub const HEADERS_MAX: usize = 64;
/// Bytes of one event's headers, names and values together.
pub const HEADERS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the JSON that headers are stored as, which the schema checks: each character may be escaped by
/// six, and a schedule adds its own.
pub const HEADERS_JSON_BYTES_MAX: usize = 128 * 1024;
/// Bytes of a subscription's name.
pub const SUBSCRIPTION_NAME_BYTES_MAX: usize = 100;
/// Patterns in one filter, topics and types each.
pub const FILTER_PATTERNS_MAX: usize = 32;
/// How far ahead an event may be due: ten years. Anything longer is a unit mistake.
pub const DUE_AFTER_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Events that one statement writes when many are emitted at once.
pub const EMIT_EVENTS_MAX: usize = 1_000;
/// Bytes of payload that one such statement writes, give or take its last event.
pub const EMIT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Attempts that a retry policy may allow.
pub const ATTEMPTS_MAX: u32 = 1000;
/// Longest delay between two attempts.
pub const RETRY_DELAY_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Entries of a schedule of delays.
pub const RETRY_SCHEDULE_MAX: usize = 100;
/// Bytes of an error message that are kept with an attempt.
pub const ERROR_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the few words by which a failure is named in a log.
pub const LABEL_BYTES_MAX: usize = 100;
/// Attempts of one delivery whose record is kept; older ones give way.
pub const ATTEMPT_RECORDS_MAX: u32 = 100;
/// Actions of people on one delivery that a report tells: the last ones.
pub const DELIVERY_ACTIONS_MAX: u32 = 20;

/// Handlers that one subscription may run at a time.
pub const CONCURRENCY_MAX: u32 = 10_000;
/// Longest time that one attempt may take.
pub const ATTEMPT_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Events that one read of the log looks at, matching or not.
pub const CHUNK_SCAN_MAX: usize = 10_000;
/// Events that one read of the log returns. With 4,000 a drain through a pooler ran at 0.77 of a direct one,
/// with 10,000 at 0.86, for ten more MiB of memory.
pub const CHUNK_EVENTS_MAX: usize = 10_000;
/// Bytes of payload that one read of the log returns, give or take its last event.
pub const CHUNK_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Events read and not yet done, per subscription.
pub const SPAN_EVENTS_MAX: usize = 50_000;
/// Events done and not yet settled, per subscription: what a crash delivers again at the most, beside what
/// runs. A store that settles twenty times a second needs this many to be read at two million a second.
pub const UNSETTLED_EVENTS_MAX: usize = 100_000;
/// Bytes of payload in memory, per subscription. With 32 MiB, and reads of twice the size, a relay of two
/// subscriptions peaked at 140 MiB beside events of 1 MiB; with 16 it peaks at 99 to 113.
pub const SPAN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Rows of one key that are read together once its failed event has been delivered.
pub const RUN_EVENTS_MAX: usize = 100;
/// Events of one batch that a sink gets; their bytes are bounded by [`SPAN_BYTES_MAX`].
pub const BATCH_EVENTS_MAX: usize = 10_000;
/// Due deliveries that are in memory at a time, per subscription.
pub const DUE_LOADED_MAX: usize = 1_000;
/// Keys that may wait behind failed events, per subscription. At this number reading stops, and the log says
/// so once a minute: the receiver is broken, not a few events. Each of them costs a relay some 20 to 40
/// bytes.
pub const PARKED_KEYS_MAX: usize = 2_000_000;
/// Events that one queued row stands for. A worker that ends takes so many with it, and gives them back one by one.
pub const BLOCK_EVENTS_MAX: usize = 100;
/// Bytes of the events of a block; a single event may have more.
pub const BLOCK_BYTES_MAX: usize = 256 * 1024;
/// Largest limit of a key: a larger one would act like none, and the feeder counts up to it.
pub const PER_KEY_MAX: u32 = 1_000;
/// Rows that one claim leases.
pub const CLAIM_ROWS_MAX: usize = 1_000;
/// Rows of expired or due deliveries that one sweep frees.
pub const SWEEP_ROWS_MAX: usize = 1_000;
/// Tenants of a fair queue that a feeder remembers.
pub const FAIR_TENANTS_MAX: usize = 1_000_000;
/// Bytes of a result that a handler may keep.
pub const RESULT_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a note on how far a handler has come.
pub const PROGRESS_BYTES_MAX: usize = 1024;
/// How often an event may end its worker's process before it is a dead letter.
pub const CRASHES_MAX: u32 = 3;
/// Shortest lease of a claim.
pub const LEASE_MIN: Duration = Duration::from_secs(1);
/// Longest lease of a claim.
pub const LEASE_MAX: Duration = Duration::from_secs(12 * 3600);

/// Schedules of a store: few enough to be looked at together.
pub const SCHEDULES_MAX: usize = 1_000;
/// Bytes of a schedule's name.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 100;
/// Bytes of a cron expression.
pub const CRON_BYTES_MAX: usize = 255;
/// Bytes of a time zone's name that are looked at when it is not known.
pub const ZONE_BYTES_MAX: usize = 64;
/// Bytes of the payload that a schedule emits; a transaction may emit it a hundred times.
pub const SCHEDULE_PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Missed ticks that are made up for one by one, the newest. Older ones are dropped.
pub const MISSED_TICKS_MAX: usize = 1_000;
/// Ticks that one transaction emits.
pub const FIRE_TICKS_MAX: usize = 100;
/// How late a tick may be fired and still be in time. Long enough for a restart of all relays.
pub const TICK_LATE_MAX: Duration = Duration::from_secs(60);

/// Rows that one bite of retention removes, so that producers never wait long for it.
pub const PRUNE_ROWS_MAX: usize = 1_000;
/// Rows that one listing returns.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Bytes of a payload that a listing shows, and bytes of headers above which it shows none: a page of the
/// largest events there can be takes about 12 MiB.
pub const PREVIEW_BYTES_MAX: usize = 4 * 1024;

const _: () = {
    assert!(CHUNK_EVENTS_MAX <= CHUNK_SCAN_MAX);
    assert!(CHUNK_EVENTS_MAX * 2 <= SPAN_EVENTS_MAX, "a read must fit beside the one before it");
    assert!(CHUNK_BYTES_MAX + PAYLOAD_BYTES_MAX <= SPAN_BYTES_MAX);
    assert!(RUN_EVENTS_MAX <= DUE_LOADED_MAX);
    assert!(
        HEADERS_JSON_BYTES_MAX >= 6 * HEADERS_BYTES_MAX + 6 * HEADERS_MAX + 2,
        "what may be emitted can be read"
    );
    assert!(PAYLOAD_BYTES_MAX <= CHUNK_BYTES_MAX);
    assert!(BLOCK_EVENTS_MAX <= CHUNK_EVENTS_MAX);
    assert!(FIRE_TICKS_MAX <= EMIT_EVENTS_MAX && FIRE_TICKS_MAX <= MISSED_TICKS_MAX);
    assert!(SCHEDULES_MAX <= PAGE_ROWS_MAX);
    // Of each header: quotes, a colon, a comma and spaces.
    assert!(6 * HEADERS_BYTES_MAX + 16 * (HEADERS_MAX + 2) + 1024 <= HEADERS_JSON_BYTES_MAX);
};
