//! Every promise of the store contract as a named test.
//!
//! A store crate brings a [`Rig`] and writes
//!
//! ```text
//! postrider_testkit::conformance_tests!(SqliteRig::new());
//! ```
//!
//! in its `tests/conformance.rs`; each promise becomes one `#[test]`. A promise plays an owner by hand
//! ([`owner`]), so that it depends on no runtime, and moves the clock by hand, so that it never sleeps.
//! It asks only what the contract says: how a store keeps it is its own affair.

pub mod acking;
pub mod blocks;
pub mod dead_letters;
pub mod delayed;
pub mod emit;
pub mod feeding;
pub mod groups;
pub mod oversize;
pub mod oversize_queue;
pub mod owner;
pub mod ownership;
pub mod per_key;
pub mod progress;
pub mod queue;
pub mod reading;
pub mod replacing;
pub mod reports;
pub mod retention;
pub mod schedules;
pub mod settling;
pub mod subscriptions;
pub mod transactional;
pub mod unique;
pub mod worker;

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use postrider_core::settle::MemberId;
use postrider_core::{Delivery, Error, EventId, LogStore};

use crate::ManualClock;

/// What the suite needs to know about a store. A fresh one, with an empty store, is made for each promise.
pub trait Rig: Send + Sync + 'static {
    /// The store under test.
    type Store: LogStore;

    /// The store as this process sees it.
    fn store(&self) -> &Self::Store;

    /// The same store as another process sees it: with connections and caches of its own.
    fn second(&self) -> impl Future<Output = Self::Store> + Send;

    /// The clock that the store goes by.
    fn clock(&self) -> &ManualClock;

    /// Whether leases go by the time of day, which can be stepped, since the store has no better clock.
    fn clock_of_leases_steps(&self) -> bool {
        false
    }

    /// Whether retention removes events one by one, so that a bite can be bounded, or whole pieces of the log.
    fn removes_one_by_one(&self) -> bool {
        true
    }

    /// Makes the process of `member` known to be dead. False if the store has no means to know; then its
    /// lease must run out.
    fn kill(&self, member: MemberId) -> impl Future<Output = bool> + Send;

    /// A transactional handler's work: writes `note` as an effect of `event`, then ends as told.
    fn work(&self, event: EventId, note: &str, ending: Ending) -> <Self::Store as LogStore>::Work;

    /// A handler's own transaction in mode `queue`, on a connection of its own: writes `note` as an effect of
    /// the delivery's event, acks the delivery, then ends as told; with [`Ending::Panic`] its connection is
    /// cut off before it commits.
    fn ack(
        &self,
        delivery: &Delivery,
        note: &str,
        ending: Ending,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// The effects that were committed, in the order of their commits.
    fn effects(&self) -> impl Future<Output = Vec<(EventId, String)>> + Send;

    /// Writes a row into the log by plain SQL, past all checks, as a writer can once they are dropped.
    fn plant(&self, row: &Planted) -> impl Future<Output = EventId> + Send;

    /// The audited actions, each as text that contains the actor's name; none if they cannot be read.
    fn audit(&self) -> impl Future<Output = Option<Vec<String>>> + Send;
}

/// A row of the log as plain SQL may write it.
#[derive(Debug, Clone)]
pub struct Planted {
    /// The topic.
    pub topic: String,
    /// The type.
    pub kind: String,
    /// The key.
    pub key: Option<String>,
    /// The headers as JSON.
    pub headers: Option<String>,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Default for Planted {
    fn default() -> Self {
        Self {
            topic: "order".to_owned(),
            kind: "order.created".to_owned(),
            key: None,
            headers: None,
            payload: b"{}".to_vec(),
        }
    }
}

/// How a transactional handler's work ends once it has written its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Well.
    Success,
    /// With a failure that is worth another attempt.
    Failure,
    /// With a panic.
    Panic,
}

/// The result of a promise. What it asserts panics; what a store refuses unasked ends up here.
pub type Kept<T = ()> = Result<T, Unexpected>;

/// An error that no promise allows for.
pub struct Unexpected {
    error: Error,
    at: &'static Location<'static>,
}

impl From<Error> for Unexpected {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self { error, at: Location::caller() }
    }
}

impl fmt::Debug for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.error, self.at)
    }
}

/// Longest time that a promise may take. None comes near it; one that hangs should say so.
const PROMISE_MAX: Duration = Duration::from_secs(120);

/// Runs one promise on a runtime of its own.
pub fn run<T>(promise: impl Future<Output = Kept<T>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime needs nothing that can be missing");
    runtime.block_on(async {
        match tokio::time::timeout(PROMISE_MAX, promise).await.expect("a promise hangs") {
            Ok(value) => value,
            Err(unexpected) => panic!("the store refused a call: {unexpected:?}"),
        }
    })
}

/// Expands to one test per promise. The expression makes a fresh [`Rig`]; it may await.
#[macro_export]
macro_rules! conformance_tests {
    ($rig:expr) => {
        $crate::conformance_tests! { @topics $rig;
            groups: [
                members_divide_the_events_by_their_shards,
                what_is_free_of_the_wanted_shards_is_taken,
                a_mark_moves_only_the_shards_that_are_held,
                shards_that_stand_apart_go_on_from_where_they_stand,
                a_mark_takes_no_shard_back,
                others_go_on_when_a_members_shards_are_taken,
                a_member_that_lost_its_shards_cannot_beat_again,
                one_member_may_hold_two_parts,
                due_rows_and_parked_lanes_belong_to_their_shard,
                leased_rows_are_taken_back_with_their_shard_only,
                a_survey_names_who_stands_and_who_holds,
                a_survey_leaves_out_the_dead,
                a_survey_tells_who_is_silent,
                a_seek_fences_every_member,
            ]
            emit: [
                ids_come_in_order,
                a_batch_is_written_whole_or_not_at_all,
                a_bad_event_is_refused,
                an_empty_batch_writes_nothing,
                a_repeated_emit_returns_the_first_id,
                a_repeat_within_a_batch_returns_the_first_id,
                an_emitted_event_carries_the_callers_trace,
                payloads_come_back_to_the_byte,
                json_comes_back_to_the_letter,
                topic_type_key_headers_and_time_come_back,
                a_delay_counts_from_the_emit,
                another_process_sees_an_emitted_event,
                an_unknown_event_is_not_there,
                events_are_listed_newest_first,
            ]
            oversize: [
                an_event_that_breaks_a_limit_is_read_without_what_does,
                a_name_that_is_too_long_is_filtered_by_its_beginning,
                a_due_row_that_breaks_a_limit_is_read_without_what_does,
                listings_show_the_beginning_of_what_is_large,
                listed_dead_letters_show_the_beginning_of_what_is_large,
            ]
            unique: [
                a_scoped_key_counts_in_its_scope,
                a_key_is_free_after_its_period,
                conflicts_in_a_batch_stop_nobody,
                a_refused_batch_takes_no_key_over,
                a_bad_period_is_refused,
                a_replacing_emit_takes_the_key_over,
                a_log_delivers_what_was_replaced,
                a_key_is_forgotten_with_its_event,
            ]
            reading: [
                each_event_is_read_once_and_in_order,
                reading_goes_on_where_it_ended,
                a_reader_can_resume_behind_any_event,
                reading_again_brings_the_same,
                a_read_event_is_the_emitted_one,
                the_filter_chooses_by_topic_and_type,
                the_end_covers_unwanted_events,
                a_wanted_event_is_found_behind_a_long_stretch_of_others,
                room_bounds_the_events,
                room_bounds_the_bytes,
                a_read_is_bounded_whatever_the_room,
                a_paused_subscription_reads_nothing,
                subscriptions_read_independently,
                an_empty_log_has_an_end,
            ]
            ownership: [
                the_first_member_takes_every_shard,
                a_second_member_gets_nothing_while_the_first_lives,
                a_take_may_be_repeated,
                shards_are_free_once_their_member_left,
                shards_are_free_once_they_are_released,
                shards_are_free_once_the_lease_ran_out,
                shards_are_free_once_their_process_is_dead,
                a_beat_keeps_ownership,
                a_stepped_clock_costs_no_ownership,
                a_replaced_owner_reads_nothing,
                a_replaced_owner_writes_nothing,
                a_replaced_owner_does_no_work,
                a_replaced_owner_releases_nothing,
                an_old_hold_stays_fenced_when_its_member_owns_again,
                a_replaced_member_leaves_without_harm,
                a_new_owner_starts_where_the_old_one_settled,
                a_new_owner_learns_the_parked_lanes,
                leased_rows_come_back_without_an_attempt,
                leased_rows_come_back_when_released,
                every_join_is_a_new_identity,
                a_forgotten_member_is_fenced,
                leaving_twice_is_harmless,
                an_unknown_subscription_cannot_be_taken,
                ownership_is_per_subscription,
            ]
            settling: [
                the_mark_makes_events_done,
                the_mark_never_moves_back,
                an_empty_settle_changes_nothing,
                a_failed_event_comes_due_after_its_delay,
                without_rows_nothing_is_due,
                a_waiting_row_is_not_due_by_itself,
                a_run_is_in_lane_order,
                a_run_is_bounded,
                due_rows_come_in_the_order_of_their_due_times,
                loaded_rows_starve_nobody,
                the_next_row_is_promoted_when_the_head_leaves,
                a_lane_is_unparked_with_its_last_row,
                a_row_may_join_a_lane_as_it_is_freed,
                a_whole_run_may_be_done_at_once,
                a_run_may_fail_half_way,
                lanes_do_not_wait_for_each_other,
                a_skipped_dead_letter_frees_its_lane,
                a_held_dead_letter_keeps_its_lane,
                a_settle_may_be_repeated,
                a_leased_row_is_done_in_the_end,
                a_leased_row_may_fail,
                rows_without_a_lane_park_nothing,
                an_unordered_subscription_parks_nothing,
                attempts_are_recorded,
                the_record_of_attempts_is_bounded,
                a_paused_subscription_settles_but_hands_out_nothing,
                a_stepped_clock_loses_no_row,
            ]
            delayed: [
                a_delayed_event_comes_up_the_log,
                a_delayed_event_is_due_at_its_time,
                delayed_events_come_in_the_order_of_their_due_times,
                a_failed_delayed_event_parks_the_later_ones,
                the_late_lane_is_independent_of_the_keys_own,
                an_overdue_event_is_due_at_once,
                a_seek_leaves_no_lane_without_a_head,
            ]
            transactional: [
                work_commits_with_the_ack,
                failed_work_writes_nothing,
                panicking_work_writes_nothing,
                work_without_ownership_does_nothing,
                work_settles_rows_and_lanes,
            ]
            dead_letters: [
                dead_letters_are_listed_oldest_first,
                a_dead_letter_has_its_full_history,
                a_held_dead_letter_says_so,
                only_the_dead_are_dead_letters,
                an_edit_changes_only_the_replayed_payload,
                a_replay_counts_attempts_anew,
                a_letter_is_replayed_once,
                a_replayed_letter_may_die_again,
                a_replay_keeps_to_its_query,
                a_skipped_letter_is_replayed_behind_what_waits,
                a_held_letter_is_replayed_at_the_head,
                a_skipped_letter_is_discarded_at_once,
                a_held_letter_is_discarded_through_its_owner,
                a_discard_survives_a_change_of_owner,
                dead_letters_are_per_subscription,
            ]
            subscriptions: [
                a_subscription_is_stored_as_created,
                a_taken_name_is_a_conflict,
                a_bad_subscription_is_refused,
                an_unknown_subscription_is_not_found,
                subscriptions_are_listed_by_name,
                a_subscription_begins_at_its_start,
                a_subscription_that_begins_now_reads_what_follows,
                tuning_may_change_at_any_time,
                pause_and_resume_are_idempotent,
                a_seek_moves_to_the_named_place,
                a_seek_fences_the_owner,
                a_seek_removes_the_rows_above_it,
                a_seek_forward_keeps_the_rows,
                a_seek_back_keeps_what_was_not_read,
                a_deleted_subscription_is_gone,
                a_recreated_subscription_begins_afresh,
            ]
            retention: [
                old_and_delivered_events_go,
                ids_are_not_reused_after_pruning,
                unread_events_stay,
                a_paused_subscription_pins_its_events,
                events_with_a_row_stay,
                without_subscriptions_age_alone_counts,
                retention_goes_bite_by_bite,
                reading_passes_over_what_is_gone,
            ]
            schedules: [
                a_schedule_is_stored_as_put,
                bad_schedules_are_refused,
                schedules_are_listed_by_name,
                schedules_are_bounded,
                a_look_says_what_is_due_and_when_to_look_again,
                a_tick_emits_what_was_put,
                a_bare_event_is_emitted_as_well,
                a_tick_is_emitted_once_however_many_fire_it,
                a_late_second_fire_changes_nothing,
                a_fire_may_be_repeated,
                a_fire_is_all_or_nothing,
                missed_ticks_follow_the_policy,
                many_missed_ticks_take_several_fires,
                a_paused_schedule_does_not_fire,
                a_deleted_schedule_does_not_fire,
                a_replaced_schedule_goes_on,
                a_schedule_with_other_ticks_goes_on_from_now,
                a_stepped_clock_repeats_no_tick,
            ]
            reports: [
                an_unread_event_is_pending_with_those_ahead,
                a_parked_event_says_what_it_waits_for,
                each_state_is_reported,
                what_people_did_is_told_of_the_delivery,
                a_seek_is_told_of_the_events_that_it_touched,
                deliveries_are_told_for_those_who_want_the_event,
                lag_counts_what_is_unread,
                lag_counts_what_is_wanted,
                parked_lanes_are_reported,
                shards_name_their_holder,
                members_are_named_with_their_part,
                stats_tell_the_whole,
                a_healthy_store_checks_out,
                a_wake_is_a_hint,
                a_watch_misses_nothing,
            ]
        }
    };
    (@topics $rig:expr; $($topic:ident: $promises:tt)*) => {
        $($crate::conformance_tests! { @topic $rig; $topic: $promises })*
    };
    (@topic $rig:expr; $topic:ident: [$($promise:ident,)*]) => {
        mod $topic {
            #[allow(unused_imports, reason = "the rig may be named by its full path")]
            use super::*;

            $(
                #[test]
                fn $promise() {
                    $crate::conformance::run(async {
                        let rig = $rig;
                        $crate::conformance::$topic::$promise(&rig).await
                    });
                }
            )*
        }
    };
}

/// The same for mode `queue`, on a store that is a [`QueueStore`](postrider_core::QueueStore).
#[macro_export]
macro_rules! queue_conformance_tests {
    ($rig:expr) => {
        $crate::conformance_tests! { @topics $rig;
            oversize_queue: [
                a_claimed_event_that_breaks_a_limit_comes_without_what_does,
            ]
            queue: [
                fed_events_are_claimed_in_order,
                only_what_is_wanted_and_fed_can_be_claimed,
                a_feed_moves_the_position,
                a_replaced_feeder_feeds_nothing,
                no_event_is_handed_out_twice,
                a_claim_is_bounded,
                a_claim_leaves_room_beside_what_has_failed,
                the_urgent_come_first,
                tenants_share_evenly,
                what_is_done_is_not_claimed_again,
                tokens_grow,
                tokens_grow_when_the_clock_steps,
                an_old_token_changes_nothing,
                one_fenced_row_does_not_spoil_the_rest,
                a_queue_settle_may_be_repeated,
                a_lease_lasts,
                an_extended_lease_lasts_on,
                a_settled_claim_is_forgotten,
                a_reaped_row_shows_that_it_was_begun,
                a_retry_waits_and_counts,
                a_snooze_costs_no_attempt,
                a_delayed_event_is_claimed_at_its_time,
                delayed_events_of_a_key_keep_their_order,
                a_key_is_worked_on_one_by_one,
                a_key_goes_on_with_what_is_fed_later,
                a_failed_event_keeps_its_key_waiting,
                a_dead_letter_skips_or_holds_its_key,
                a_replayed_letter_is_claimed_again,
                a_paused_queue_hands_out_nothing,
                a_deleted_queue_is_not_found,
                a_limit_holds_over_all_members,
                a_rate_holds_over_all_members,
                a_waiting_delivery_is_cancelled_at_once,
                a_worker_is_told_of_a_cancellation,
                a_cancelled_delivery_is_not_reaped_back,
                attempts_and_results_are_kept,
                a_queue_is_reported,
                queued_events_stay,
                a_seek_empties_the_queue_above_it,
            ]
            per_key: [
                a_key_keeps_to_its_limit,
                other_keys_do_not_wait,
                whoever_leaves_frees_a_place,
                as_many_as_leave_come_next,
                what_waits_for_its_time_has_no_place,
                what_is_given_back_keeps_its_place,
                a_reaped_event_can_be_claimed_again,
                delayed_events_share_the_limit,
                dead_letters_have_no_place,
                an_ack_frees_a_place,
                a_feed_that_claims_keeps_to_the_limit,
                a_changed_limit_holds_at_once,
                a_feeder_learns_of_a_limit,
                a_limit_that_makes_no_sense_is_refused,
                a_limit_holds_while_many_claim_and_settle,
            ]
            feeding: [
                a_feed_may_claim,
                a_feed_that_claims_keeps_to_lanes,
                a_feed_claims_nothing_of_what_is_paused,
                a_replaced_feeder_claims_nothing,
            ]
            replacing: [
                only_the_newest_is_handed_out,
                a_replaced_event_waits_for_no_feed,
                a_delayed_event_may_be_put_off,
                what_has_begun_goes_on,
                a_failed_event_may_be_replaced,
                a_replaced_head_lets_its_key_go_on,
                a_block_leaves_out_what_was_replaced,
                a_sweep_goes_on_behind_what_was_replaced,
                a_feed_that_claims_leaves_out_what_was_replaced,
                only_who_holds_the_key_is_replaced,
                what_may_not_be_replaced_is_handed_out,
            ]
            blocks: [
                a_block_brings_many_events,
                a_block_leaves_out_what_is_not_its_own,
                a_block_may_be_split,
                what_runs_on_is_reaped,
                a_reaped_block_comes_back_in_pieces,
                an_event_of_a_block_is_cancelled_alone,
                a_block_is_reported_by_its_events,
                a_split_may_be_repeated,
                a_block_may_fail_or_die_as_a_whole,
                a_cancelled_event_of_a_block_does_not_come_back,
                a_split_after_a_seek_brings_back_only_what_is_left,
            ]
            acking: [
                an_effect_and_its_ack_commit_together,
                what_is_rolled_back_was_never_acked,
                an_ack_makes_the_next_of_its_key_ready,
                an_ack_after_the_lease_was_lost_changes_nothing,
                an_ack_that_was_not_committed_is_found_out,
                a_repeated_settle_of_an_ack_counts_once,
                a_claim_lasts_while_those_who_have_acked_still_run,
                events_of_a_block_are_acked_one_by_one,
                a_block_that_is_acked_in_part_is_settled_in_part,
                a_reaped_block_leaves_out_what_was_acked,
                results_of_what_was_acked_are_kept,
                an_ack_needs_a_lease,
            ]
            progress: [
                progress_is_written_with_the_lease,
                a_stale_token_writes_no_progress,
                the_last_word_on_progress_stays,
            ]
        }
    };
}

#[cfg(test)]
mod tests {
    /// A promise that the macro forgets is never tested, and no other test would notice.
    #[test]
    fn the_macro_knows_every_promise() {
        let expanded = include_str!("conformance.rs");
        let topics = [
            ("emit", include_str!("conformance/emit.rs")),
            ("reading", include_str!("conformance/reading.rs")),
            ("groups", include_str!("conformance/groups.rs")),
            ("ownership", include_str!("conformance/ownership.rs")),
            ("settling", include_str!("conformance/settling.rs")),
            ("delayed", include_str!("conformance/delayed.rs")),
            ("transactional", include_str!("conformance/transactional.rs")),
            ("dead_letters", include_str!("conformance/dead_letters.rs")),
            ("subscriptions", include_str!("conformance/subscriptions.rs")),
            ("retention", include_str!("conformance/retention.rs")),
            ("schedules", include_str!("conformance/schedules.rs")),
            ("reports", include_str!("conformance/reports.rs")),
            ("queue", include_str!("conformance/queue.rs")),
            ("per_key", include_str!("conformance/per_key.rs")),
            ("blocks", include_str!("conformance/blocks.rs")),
            ("feeding", include_str!("conformance/feeding.rs")),
            ("acking", include_str!("conformance/acking.rs")),
            ("progress", include_str!("conformance/progress.rs")),
        ];
        for (topic, source) in topics {
            let promises = source
                .lines()
                .filter_map(|line| line.strip_prefix("pub async fn "))
                .filter_map(|rest| rest.split(['<', '(']).next());
            let mut count = 0;
            for promise in promises {
                let line = format!("\n                {promise},\n");
                assert!(expanded.contains(&line), "{topic}::{promise} is not in the macro");
                count += 1;
            }
            assert!(count > 0, "{topic} promises nothing");
        }
    }
}
