//! How far handlers have come.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::{Deserialize, Serialize};

use crate::delivery::ticket::{Shared, Ticket, Token};
use crate::error::{Error, Result};
use crate::event::EventId;
use crate::limits;
use crate::position::SubscriptionId;

/// After so many words it is looked whose tickets are gone.
const FORGET_EVERY: usize = 1024;

/// How far a handler has come with an event: a note for people, and how much of the work is done if that is known.
///
/// ```
/// use postrider_core::queue::Progress;
/// assert_eq!(Progress::from("page 3"), Progress { percent: None, note: "page 3".to_owned() });
/// assert_eq!(Progress::from((25, "page 3")).percent, Some(25));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// How much is done, of a hundred.
    pub percent: Option<u8>,
    /// What is being done, of at most [`PROGRESS_BYTES_MAX`](crate::limits::PROGRESS_BYTES_MAX) bytes.
    pub note: String,
}

impl Progress {
    /// Refuses what is out of bounds.
    pub fn check(&self) -> Result<()> {
        if self.percent.is_some_and(|percent| percent > 100) {
            return Err(Error::invalid("more than a hundred percent of something cannot be done"));
        }
        if self.note.len() > limits::PROGRESS_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a note on progress of {} bytes: at most {} are kept",
                self.note.len(),
                limits::PROGRESS_BYTES_MAX
            )));
        }
        if self.note.contains('\0') {
            return Err(Error::invalid(
                "a note on progress with a NUL character, which databases cut or refuse",
            ));
        }
        Ok(())
    }
}

impl From<&str> for Progress {
    fn from(note: &str) -> Self {
        Self { percent: None, note: note.to_owned() }
    }
}

impl From<String> for Progress {
    fn from(note: String) -> Self {
        Self { percent: None, note }
    }
}

impl<N: Into<String>> From<(u8, N)> for Progress {
    fn from((percent, note): (u8, N)) -> Self {
        Self { percent: Some(percent), note: note.into() }
    }
}

/// How far the handler of an event has come, to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventProgress {
    /// Whose delivery it is.
    pub subscription: SubscriptionId,
    /// The event.
    pub event_id: EventId,
    /// Under which token it is leased.
    pub token: Token,
    /// How far it has come.
    pub progress: Progress,
}

/// Where tickets leave word that their handlers have come further. Of each only the last word counts. All
/// clones are the same board.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Vec<Weak<Shared>>>>);

impl Board {
    /// Takes what is new.
    pub fn take(&self) -> Vec<EventProgress> {
        let posted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let tickets = posted.iter().filter_map(Weak::upgrade).map(Ticket::from_shared);
        tickets.filter_map(|ticket| ticket.take_progress().map(|progress| ticket.noted(progress))).collect()
    }

    pub(super) fn post(&self, ticket: Weak<Shared>) {
        let mut posted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Handlers that end soon are gone before anybody looks.
        if posted.len() % FORGET_EVERY == FORGET_EVERY - 1 {
            posted.retain(|ticket| ticket.strong_count() > 0);
        }
        posted.push(ticket);
    }
}
