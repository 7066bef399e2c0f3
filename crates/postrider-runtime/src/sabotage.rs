//! Bugs planted on purpose, so that the simulation can show that it would catch them.

/// One planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// An event counts as delivered when its handler begins, not when it ends.
    AckEarly,
    /// A failed event does not keep later ones of its key waiting.
    ForgetToPark,
    /// Nothing is read unless a wake comes, so that a lost wake is a lost event.
    TrustWakes,
    /// A worker of a queue goes on with events whose lease it has lost.
    KeepLost,
}
