//! What every store says when it refuses something: in the same words, since people should not have to know which
//! database they talk to.

use crate::error::{Error, ErrorKind};
use crate::event::EventId;
use crate::limits::SCHEDULES_MAX;
use crate::settle::MemberId;
use crate::store::LetterId;

/// A subscription of this name is there already.
pub fn subscription_exists(name: &str) -> Error {
    let message = format!("subscription `{name}` exists already: use another name, or delete it first");
    Error::new(ErrorKind::Conflict, message)
}

/// No subscription of this name is there.
pub fn subscription_missing(name: &str) -> Error {
    let name = name.escape_default();
    let message = format!("there is no subscription `{name}`: see `postrider subscription list`");
    Error::new(ErrorKind::NotFound, message)
}

/// No schedule of this name is there.
pub fn schedule_missing(name: &str) -> Error {
    let name = name.escape_default();
    let message = format!("there is no schedule `{name}`: see `postrider schedule list`");
    Error::new(ErrorKind::NotFound, message)
}

/// A store has as many schedules as it may.
pub fn schedules_are_too_many() -> Error {
    let message = format!("the store has {SCHEDULES_MAX} schedules, which is the limit: delete one first");
    Error::new(ErrorKind::Conflict, message)
}

/// A delivery is not dead, or not any more.
pub fn letter_is_not_dead(letter: &LetterId) -> Error {
    let message = format!(
        "event {} is no dead letter of subscription `{}`: it may have been replayed or discarded already",
        letter.event_id, letter.subscription
    );
    Error::new(ErrorKind::NotFound, message)
}

/// A member has been away for too long.
pub fn member_is_forgotten(member: MemberId) -> Error {
    let message = format!(
        "member {} has been forgotten, since it left or did not beat for too long: join again",
        member.0
    );
    Error::new(ErrorKind::Fenced, message)
}

/// The lease of an event was lost.
pub fn lease_is_lost(event: EventId) -> Error {
    let message = format!(
        "event {event} is not leased by this worker any more, since its lease ran out or it was settled: roll back"
    );
    Error::new(ErrorKind::Fenced, message)
}
