//! Dead letters as people handle them.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::delivery::Cause;
use postrider_core::event::Listed;
use postrider_core::refusal::letter_is_not_dead;
use postrider_core::settle::Lane;
use postrider_core::store::{AttemptReport, DeadLetter, DeadLetterQuery, LetterId};
use postrider_core::{DeliveryState, Error, Event, EventId, Mode, Result, limits};

use super::AuditLine;
use super::state::{Progress, State, StoredRow, Time};

impl State {
    pub(super) fn letter_list(&self, query: &DeadLetterQuery) -> Vec<DeadLetter> {
        let with_last_attempt = |letter: LetterId| {
            let mut found = self.letter_get(&letter).ok()?;
            found.history.drain(..found.history.len().saturating_sub(1));
            found.event = Listed::preview(found.event.event);
            if let Some(edited) = &mut found.edited_payload {
                edited.truncate(limits::PREVIEW_BYTES_MAX);
            }
            Some(found)
        };
        self.letters(query).into_iter().filter_map(with_last_attempt).collect()
    }

    pub(super) fn letter_get(&self, letter: &LetterId) -> Result<DeadLetter> {
        let missing = || letter_is_not_dead(letter);
        let progress = self.subscriptions.get(&letter.subscription).ok_or_else(missing)?;
        let row = progress.rows.get(&letter.event_id).filter(|row| is_dead(row)).ok_or_else(missing)?;
        let event = self.events.get(&letter.event_id).ok_or_else(missing)?;
        Ok(DeadLetter {
            letter: letter.clone(),
            event: Listed::whole(Event::clone(event)),
            edited_bytes: row.edited.as_ref().map_or(0, Bytes::len) as u64,
            edited_payload: row.edited.clone(),
            holds: row.parks,
            died_at: row.died_at.unwrap_or(event.created_at),
            attempts: row.attempts,
            history: progress.history(letter.event_id),
        })
    }

    pub(super) fn letter_edit(
        &mut self,
        letter: &LetterId,
        payload: Bytes,
        actor: &str,
        time: Time,
    ) -> Result<()> {
        if payload.len() > limits::PAYLOAD_BYTES_MAX {
            return Err(Error::invalid(format!(
                "payload is {} bytes, the limit is {}",
                payload.len(),
                limits::PAYLOAD_BYTES_MAX
            )));
        }
        self.letter_get(letter)?;
        self.letter_row(letter).edited = Some(payload);
        self.audit_letter("dead-letter edit", letter, actor, time);
        Ok(())
    }

    pub(super) fn letters_replay(&mut self, which: &DeadLetterQuery, actor: &str, time: Time) -> u64 {
        let letters = self.letters(which);
        for letter in &letters {
            let behind = self.turn_behind(letter, time);
            if self.is_queue(letter) {
                let event = Arc::clone(&self.events[&letter.event_id]);
                self.progress_of(letter).queue_replay(&event, behind);
                self.audit_letter("dead-letter replay", letter, actor, time);
                continue;
            }
            let row = self.letter_row(letter);
            row.state = row.state.after(Cause::Replay).expect("only dead letters are listed");
            row.attempts = 0;
            row.due = Some(time.now);
            row.died_at = None;
            row.round += 1;
            // A held lane kept its place for it; one that went on has others waiting by now.
            if !row.parks {
                row.turn = behind;
            }
            self.audit_letter("dead-letter replay", letter, actor, time);
        }
        letters.len() as u64
    }

    pub(super) fn letters_discard(&mut self, which: &DeadLetterQuery, actor: &str, time: Time) -> u64 {
        let letters = self.letters(which);
        for letter in &letters {
            if self.is_queue(letter) {
                self.progress_of(letter).queue_discard(letter.event_id);
                self.audit_letter("dead-letter discard", letter, actor, time);
                continue;
            }
            let row = self.letter_row(letter);
            let done = row.state.after(Cause::Discard).expect("only dead letters are listed");
            debug_assert_eq!(done, DeliveryState::Done);
            if row.parks {
                // Only the owner frees a lane, since its memory is next in it: it finds the row due,
                // delivers nothing and takes it out.
                row.state = DeliveryState::Pending;
                row.discarded = true;
                row.due = Some(time.now);
                row.died_at = None;
            } else if let Some(progress) = self.subscriptions.get_mut(&letter.subscription) {
                progress.rows.remove(&letter.event_id);
            }
            self.audit_letter("dead-letter discard", letter, actor, time);
        }
        letters.len() as u64
    }

    fn letters(&self, query: &DeadLetterQuery) -> Vec<LetterId> {
        let mut letters: Vec<_> = self
            .subscriptions
            .iter()
            .filter(|(name, _)| query.subscription.as_ref().is_none_or(|wanted| wanted == *name))
            .flat_map(|(name, progress)| progress.rows.iter().map(move |(id, row)| (*id, name, row)))
            .filter(|(id, _, row)| {
                is_dead(row)
                    && query.event_id.is_none_or(|wanted| wanted == *id)
                    && query.after.is_none_or(|after| *id > after)
            })
            .map(|(event_id, name, _)| LetterId { subscription: name.clone(), event_id })
            .collect();
        letters.sort_by_key(|letter| letter.event_id);
        letters.truncate(query.limit.min(limits::PAGE_ROWS_MAX));
        letters
    }

    /// Behind everything that has been emitted so far, and before what will be: such an event's turn is
    /// its id, and among equal turns the smaller id is first.
    fn turn_behind(&self, letter: &LetterId, time: Time) -> i64 {
        let progress = &self.subscriptions[&letter.subscription];
        match &progress.rows[&letter.event_id].lane {
            Some(lane @ Lane { late: true, .. }) => {
                let last = progress.lane(lane).last().map_or(i64::MIN, |(_, row)| row.turn + 1);
                last.max(time.now.as_micros())
            }
            _ => self.newest.0 + 1,
        }
    }

    fn is_queue(&self, letter: &LetterId) -> bool {
        self.subscriptions[&letter.subscription].subscription.mode == Mode::Queue
    }

    fn progress_of(&mut self, letter: &LetterId) -> &mut Progress {
        self.subscriptions
            .get_mut(&letter.subscription)
            .expect("the letter was looked up under the same lock")
    }

    fn letter_row(&mut self, letter: &LetterId) -> &mut StoredRow {
        self.subscriptions
            .get_mut(&letter.subscription)
            .and_then(|progress| progress.rows.get_mut(&letter.event_id))
            .expect("the letter was looked up under the same lock")
    }

    fn audit_letter(&mut self, action: &'static str, letter: &LetterId, actor: &str, time: Time) {
        let event = format!("event {}", letter.event_id);
        self.audit(AuditLine::new(time.now, actor, action, &letter.subscription, event));
    }
}

impl Progress {
    pub(super) fn history(&self, id: EventId) -> Vec<AttemptReport> {
        let attempts = self.attempts.get(&id).map(Vec::as_slice).unwrap_or_default();
        attempts.iter().map(|attempt| attempt.report.clone()).collect()
    }
}

fn is_dead(row: &StoredRow) -> bool {
    row.state == DeliveryState::Dead
}
