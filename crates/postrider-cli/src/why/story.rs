//! What happened to a delivery, in order: its failures, from the recorded attempts, and the actions of
//! people, from the audit.

use postrider_core::Timestamp;
use postrider_core::store::{ActionReport, AttemptReport, DeliveryAction, DeliveryReport};

use super::reason;
use crate::output::Page;
use crate::text;

/// The steps of a delivery, as clauses of a sentence.
#[derive(Default)]
pub(super) struct Story<'a> {
    clauses: Vec<String>,
    /// Failures since the last action in the audit, and the last of their errors.
    failures: Option<(u32, &'a str)>,
    /// Since when its handler has been asked to end, unless that has ended.
    cancelled_at: Option<Timestamp>,
    /// The last action in the audit.
    last: Option<&'a ActionReport>,
}

impl<'a> Story<'a> {
    pub(super) fn of(report: &'a DeliveryReport, page: &Page) -> Self {
        let mut story = Self { last: last_action(report), ..Self::default() };
        let attempts = report.history.iter().map(Step::Attempt);
        let mut steps: Vec<_> = attempts.chain(actions(report).iter().map(Step::Action)).collect();
        steps.sort_by_key(Step::at);
        for step in steps {
            match step {
                Step::Attempt(attempt) => story.attempted(attempt),
                Step::Action(action) => story.did(action, page),
            }
        }
        story.tell_failures();
        story
    }

    fn attempted(&mut self, attempt: &'a AttemptReport) {
        // What ends after this is the attempt that was cancelled, whatever its handler calls it.
        if let (Some(at), Some(clause)) = (self.cancelled_at.take(), self.clauses.last_mut()) {
            let later = text::span(Step::Attempt(attempt).at().since(at));
            *clause = format!("{clause}; its handler ended {later} later");
            return;
        }
        // Old records give way to new ones, but a number stays what it is until a replay.
        let count = self.failures.map_or(0, |(count, _)| count) + 1;
        self.failures = Some((count.max(attempt.attempt), &attempt.error));
    }

    /// Only the last of several is told with its time.
    fn did(&mut self, action: &'a ActionReport, page: &Page) {
        self.tell_failures();
        let is_last = self.last.is_some_and(|last| std::ptr::eq(last, action));
        self.clauses.push(by(action) + &if is_last { when(action, page) } else { String::new() });
        self.cancelled_at = (action.action == DeliveryAction::Cancelled).then_some(action.at);
    }

    fn tell_failures(&mut self) {
        if let Some((count, error)) = self.failures.take() {
            self.clauses.push(format!("failed {}{}", text::times(count), reason(error)));
        }
    }

    /// The sentence, with its end.
    pub(super) fn told(mut self, ending: Option<&str>) -> String {
        self.clauses.extend(ending.map(str::to_owned));
        self.clauses.join(", ")
    }
}

enum Step<'a> {
    Attempt(&'a AttemptReport),
    Action(&'a ActionReport),
}

impl Step<'_> {
    /// When it was over.
    fn at(&self) -> Timestamp {
        match self {
            Self::Attempt(attempt) => attempt.started_at.after(attempt.took),
            Self::Action(action) => action.at,
        }
    }
}

/// What people did to a delivery, as far as this may be known.
pub(super) fn actions(report: &DeliveryReport) -> &[ActionReport] {
    report.actions.as_deref().unwrap_or_default()
}

/// The last action on a delivery, from the audit.
pub(super) fn last_action(report: &DeliveryReport) -> Option<&ActionReport> {
    actions(report).last()
}

/// What was done and by whom: `edited by ann`.
pub(super) fn by(action: &ActionReport) -> String {
    let verb = match action.action {
        DeliveryAction::Edited => "edited",
        DeliveryAction::Replayed => "replayed",
        DeliveryAction::Discarded => "discarded",
        DeliveryAction::Cancelled => "cancelled",
        DeliveryAction::PassedOver => "passed over by a seek",
        DeliveryAction::BroughtBack => "brought back by a seek",
    };
    // Here it is of no interest by which program.
    let actor = action.actor.strip_suffix(" (cli)").unwrap_or(&action.actor);
    let actor = text::shorten(actor, 100);
    match action.action {
        DeliveryAction::PassedOver | DeliveryAction::BroughtBack => format!("{verb} of {actor}"),
        _ => format!("{verb} by {actor}"),
    }
}

/// How long ago, as what follows who did it.
pub(super) fn when(action: &ActionReport, page: &Page) -> String {
    format!(" {}", page.relative(action.at))
}
