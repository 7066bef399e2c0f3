//! Reading a log whose writers commit in any order: the protocol, without a database.
//!
//! With many writers, ids do not become visible in their order, so that "all up to id 7" is no place in
//! the log. What is visible at a moment is a [`Snapshot`] of transactions. A [`Tick`] is such a moment,
//! with what is known then about ids; a [`Window`] is what became visible between two ticks, read in the
//! order of ids; a [`Tail`] is the memory of the last windows, shared by all who read.
//!
//! ```text
//!        xids ──►  ▓ visible   · running   ░ not begun
//!   tick a   ▓▓▓▓·▓▓·▓▓░░░░░░░░░
//!   tick b   ▓▓▓▓▓▓▓·▓▓▓▓▓·░░░░░   window (a, b) = the rows of   ____█_____█▓▓__
//!                └ a straggler: its rows may have small ids; the bounds say how small
//! ```
//!
//! # Why no row is lost, repeated or overtaken
//!
//! Producers' rows carry their transaction's xid, which is fetched before the row's id is drawn from a
//! sequence without a cache. Three facts follow.
//!
//! 1. *Each row is in exactly one window.* Snapshots of one server only grow, so that for a chain of ticks
//!    a ⊆ b ⊆ c … every committed row becomes visible between exactly two neighbours.
//! 2. *Rows of a key keep their order.* The owner of a key emits while it holds the key's lock, so its later
//!    event draws a larger id and becomes visible later: a later window, or the same one and a larger id.
//! 3. *A window is found by ids.* A probe reads the sequence and **then** the next xid. A transaction that
//!    begins after that draws its ids later still: "every row of an xid ≥ `next_xid` has an id > `seq`". This
//!    fact, a **bound**, never expires. Whatever becomes visible after a tick belongs to an xid that the tick
//!    has not seen; the greatest bound at or below it limits where its rows can lie. Fewer bounds mean a longer
//!    scan, never a lost row.
//!
//! # Why a stream of commits and a look at the table can take turns
//!
//! The write-ahead log tells commits in their order, and tells them early: some before they are visible. A
//! decoded transaction that the newest tick does not see makes a separate window, `tick ∪ {xid}`. A decoded
//! transaction that it sees is passed over, because the table has shown it. A look at the table makes the
//! window up to `tick ∪ snapshot`: a decoded transaction that is not visible yet stays seen. So every window
//! holds what the tick before it had not seen, no matter which of the two found it, and facts 1 and 2 hold
//! for both by turns, without a word between them. Two rules remain:
//!
//! - *A reader that begins to follow a stream reads the table once before.* It goes on until the table shows
//!   all that the stream has told and no reader has taken, and what the stream will never tell: what was
//!   committed before its slot was made.
//! - *The stream's place is confirmed up to the first commit that was decoded and is not visible:* a reader
//!   that begins again reads the table first, and finds there what the stream will not tell again.
//!
//! Without them a row would be found too late: the table is read again sooner or later, but by then the
//! stream has told of rows that were written in the knowledge of it. For each rule, `stream_tests.rs` has a
//! reader that does without it, and shows this.
//!
//! Two things are not facts but duties of the store. Xids are issued again after a crash of the server,
//! so a tick may outlive the connection on which it was read only if it was written by a transaction that
//! began later, and memory goes with the connection. And what is visible may not be durable yet: a window is
//! handed out once the server's WAL is flushed as far as it reached when its snapshot had been taken.

mod legs;
mod restamp;
mod snapshot;
#[cfg(test)]
mod stream_tests;
mod tail;
#[cfg(test)]
mod tests;
mod tick;
mod xid_bounds;

pub use legs::{Legs, ShardPosition};
pub use restamp::{Class, Restamped, restamp};
pub use snapshot::{Snapshot, Xid};
pub use tail::{LogRow, Pending, Served, TAIL_BYTES_MAX, TAIL_ROWS_MAX, Tail, TailWindow};
pub use tick::{Lsn, Probe, Tick, Window};
pub use xid_bounds::{XID_BOUNDS_MAX, XidBound, XidBounds};
