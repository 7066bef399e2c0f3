//! Keeps the claims of a worker alive, and says how long each may be trusted.
//!
//! ```text
//!   asked                        4/5 of the lease        9/10            the lease ends: others may take over
//!     │ ───────── trusted ─────────────┤ ── handlers end ──┤ ── dropped ───┤
//!     └ from before the claim was sent, or the last extension that succeeded
//! ```
//!
//! The keeper is a separate task, so neither a settle nor a handler makes it late.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::queue::{Board, EventProgress, Extended, Token};
use postrider_core::{EventId, QueueStore};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

/// However long a lease lasts, it is extended this often: that is how a worker learns what was cancelled.
const EXTEND_EVERY_MAX: Duration = Duration::from_secs(5);
/// How long to wait after an extension that failed, at the least.
const FAILED_WAIT_MIN: Duration = Duration::from_millis(10);

/// The claims that a worker holds, as its loop and its keeper see them.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: Mutex<Held>,
    /// Tells the keeper that something is to be extended sooner than it knows.
    hurry: Notify,
    /// Tells the loop that there is news.
    told: Notify,
    /// Where handlers say how far they have come.
    board: Board,
}

#[derive(Debug, Default)]
struct Held {
    claims: BTreeMap<Token, Kept>,
    /// No claim is to be doubted before this, so that the loop need not look at all of them at every turn.
    doubted_at: Option<Instant>,
    news: Vec<News>,
}

impl Held {
    fn look_again(&mut self) {
        self.doubted_at = self.claims.values().map(|kept| kept.trusted_until).min();
    }
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    lease: Duration,
    trusted_until: Instant,
    extend_at: Instant,
}

impl Kept {
    fn new(lease: Duration, asked: Instant) -> Self {
        Self { lease, trusted_until: asked + lease / 5 * 4, extend_at: asked + extend_every(lease) }
    }
}

/// What the keeper has learnt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The store does not know this claim any more.
    Lost(Token),
    /// These events were cancelled.
    Cancelled(Token, Vec<EventId>),
}

/// A claim that is not trusted any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Doubted {
    pub(crate) token: Token,
    /// When its handlers must have ended.
    pub(crate) let_go_at: Instant,
}

impl Claims {
    /// No claims yet, of handlers that leave word of their progress on `board`.
    pub(crate) fn new(board: Board) -> Self {
        Self { board, ..Self::default() }
    }

    /// Keeps a claim that was asked for at `asked`. False if it has come too late to be trusted.
    pub(crate) fn hold(&self, token: Token, lease: Duration, asked: Instant) -> bool {
        let kept = Kept::new(lease, asked);
        let in_time = Instant::now() < kept.trusted_until;
        if in_time {
            let mut held = self.lock();
            if held.claims.values().all(|other| kept.extend_at < other.extend_at) {
                self.hurry.notify_one();
            }
            held.doubted_at =
                Some(held.doubted_at.map_or(kept.trusted_until, |at| at.min(kept.trusted_until)));
            held.claims.insert(token, kept);
        }
        in_time
    }

    /// Lets a claim go: it is settled, or lost.
    pub(crate) fn forget(&self, token: Token) {
        self.lock().claims.remove(&token);
    }

    /// Forgets the claims that may not be trusted any more, and says which they are.
    pub(crate) fn doubted(&self, now: Instant) -> Vec<Doubted> {
        let mut held = self.lock();
        let over = held.claims.extract_if(.., |_, kept| kept.trusted_until <= now);
        let over =
            over.map(|(token, kept)| Doubted { token, let_go_at: kept.trusted_until + kept.lease / 10 });
        let over = over.collect();
        held.look_again();
        over
    }

    /// When claims may be to be doubted unless they are extended.
    pub(crate) fn doubted_at(&self) -> Option<Instant> {
        self.lock().doubted_at
    }

    /// Makes the keeper extend now, to find out what is left.
    pub(crate) fn hurry(&self) {
        self.put_off(Instant::now());
        self.hurry.notify_one();
    }

    /// Waits for news. Cancel safe.
    pub(crate) async fn told(&self) {
        self.told.notified().await;
    }

    /// Takes what was learnt.
    pub(crate) fn news(&self) -> Vec<News> {
        std::mem::take(&mut self.lock().news)
    }

    fn tokens(&self) -> Vec<Token> {
        self.lock().claims.keys().copied().collect()
    }

    /// When something is to be extended.
    fn extend_at(&self) -> Option<Instant> {
        self.lock().claims.values().map(|kept| kept.extend_at).min()
    }

    /// How long an extension may take before it is tried again.
    fn patience(&self) -> Duration {
        let least = self.lock().claims.values().map(|kept| extend_every(kept.lease)).min();
        least.unwrap_or(EXTEND_EVERY_MAX)
    }

    /// All claims are to be extended at this instant.
    fn put_off(&self, to: Instant) {
        self.lock().claims.values_mut().for_each(|kept| kept.extend_at = to);
    }

    /// Takes in an answer about some claims.
    fn extended(&self, asked_about: &[Token], answer: Vec<Extended>, asked: Instant) {
        let mut held = self.lock();
        let mut answer: BTreeMap<Token, Vec<EventId>> =
            answer.into_iter().map(|extended| (extended.token, extended.cancelled)).collect();
        let Held { claims, news, .. } = &mut *held;
        for token in asked_about {
            // What was let go meanwhile is of no interest.
            let Some(kept) = claims.get_mut(token) else { continue };
            let Some(cancelled) = answer.remove(token) else {
                claims.remove(token);
                news.push(News::Lost(*token));
                continue;
            };
            *kept = Kept::new(kept.lease, asked);
            if !cancelled.is_empty() {
                news.push(News::Cancelled(*token, cancelled));
            }
        }
        if !news.is_empty() {
            self.told.notify_one();
        }
        held.look_again();
    }

    /// Nothing panics under this lock.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Extends what is held until dropped.
pub(crate) async fn keep<S: QueueStore>(store: S, claims: Arc<Claims>) {
    let mut unwritten: BTreeMap<EventId, EventProgress> = BTreeMap::new();
    loop {
        let extend_at = claims.extend_at();
        tokio::select! {
            // Of what has just been claimed nothing is due yet: it is looked again when.
            () = claims.hurry.notified() => continue,
            () = at(extend_at) => {}
        }
        let (tokens, patience, asked) = (claims.tokens(), claims.patience(), Instant::now());
        // What could not be written goes along the next time, unless its handler has said more.
        unwritten.extend(claims.board.take().into_iter().map(|noted| (noted.event_id, noted)));
        let progress: Vec<EventProgress> = unwritten.values().cloned().collect();
        // A call that never returns must not keep the next one from being made.
        match tokio::time::timeout(patience, store.extend(tokens.clone(), progress)).await {
            Ok(Ok(answer)) => {
                claims.extended(&tokens, answer, asked);
                unwritten.clear();
                continue;
            }
            Ok(Err(error)) => warn!(%error, "could not extend leases; trying again"),
            Err(_) => warn!("the store did not answer when leases were extended; trying again"),
        }
        claims.put_off(Instant::now() + (patience / 5).max(FAILED_WAIT_MIN));
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn extend_every(lease: Duration) -> Duration {
    (lease / 4).min(EXTEND_EVERY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_claim_is_trusted_for_four_fifths_of_its_lease_from_before_it_was_asked_for() {
        let claims = Claims::default();
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(claims.hold(Token(1), LEASE, asked));
        assert_eq!(claims.doubted_at(), Some(asked + LEASE / 5 * 4));
        assert_eq!(claims.doubted(asked + LEASE / 5 * 4 - Duration::from_millis(1)), []);
        let doubted = Doubted { token: Token(1), let_go_at: asked + LEASE / 10 * 9 };
        assert_eq!((claims.doubted(asked + LEASE / 5 * 4), claims.doubted_at()), (vec![doubted], None));
        assert!(
            !claims.hold(Token(2), LEASE, asked.checked_sub(Duration::from_secs(6)).unwrap()),
            "too late"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_extends_what_it_names_and_loses_the_rest() {
        let claims = Claims::default();
        let asked = Instant::now();
        for token in 1..=3 {
            claims.hold(Token(token), LEASE, asked);
        }
        claims.forget(Token(3));
        let later = asked + Duration::from_secs(2);
        let answer = vec![Extended { token: Token(1), cancelled: vec![EventId(7)] }];
        claims.extended(&[Token(1), Token(2), Token(3)], answer, later);
        assert_eq!(claims.news(), [News::Cancelled(Token(1), vec![EventId(7)]), News::Lost(Token(2))]);
        assert_eq!((claims.tokens(), claims.doubted_at()), (vec![Token(1)], Some(later + LEASE / 5 * 4)));
    }
}
