//! Mistakes that are known to lose, repeat, invert or invent events, made on purpose.

/// A mistake in reading or writing that was made, or nearly made. The simulation must catch all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The reader believes that the next xid is the snapshot's `xmax`. Transactions that have an xid beyond
    /// are then taken for ones that begin later, and their rows are looked for too high.
    NextXidIsXmax,
    /// The next xid is read before the sequence, so that a transaction may begin and draw ids in between.
    BoundBeforeSequence,
    /// A position outlives a crash that takes the log behind it back, as one does that is kept in a file or
    /// on another server. Xids are then issued again that the position takes for delivered; only where windows
    /// wait for the disk they are not, since the disk then has every xid that a window has seen end.
    PositionOutlivesCrash,
    /// The last id is stored with the newest tick instead of that of its own window.
    LastIdWithNewestTick,
    /// Producers draw the id before they have an xid.
    IdBeforeXid,
    /// The reader keeps its memory although the server has crashed.
    MemoryKeptOverCrash,
    /// After the reader's connection was lost, only the subscription that met the error loads its position
    /// again; others go on with ticks that the shared tail knows nothing of.
    NeighbourKeepsMemory,
    /// A settle finds a new connection by itself after a crash. The one before it was not flushed and may be
    /// undone, and what it said is then never stored.
    SettleOverCrash,
    /// What is visible is handed out although it is not on disk.
    NoFlushGate,
    /// When a parked key is free again, what comes up the log is handed out before what waits in memory.
    HandBackBeforeMemory,
    /// Who is behind reads up to the newest tick of the tail as it is, which may be older than its own.
    CatchUpToOlderTick,
    /// The sequence goes on in a leaf that is not empty.
    RotateIntoFull,
    /// A leaf is emptied without a copy of what deliveries refer to.
    TruncateWithoutCopy,
    /// Shards are given to another member before what was done of them is settled.
    HandOverUnsettled,
    /// A subscription that is moved back ends its window at the present moment, so that it covers what has committed
    /// since it last looked.
    MovedToNow,
    /// Progress is the largest id that was seen.
    MaxIdCursor,
    /// Progress is the oldest running xid; rows below it are read by xid and id.
    HorizonCursor,
    /// A position is written by a transaction that took its xid before the snapshot was taken. Not one of
    /// [`Flaw::ALL`], for it does no harm here: whatever the snapshot saw end has left an entry in the
    /// write-ahead log before the position's commit, so that a crash that spares the one spares the other.
    /// The store avoids it all the same, since then nothing hangs on the order of these entries.
    SettledByOlderXid,
}

impl Flaw {
    /// All that do harm.
    pub const ALL: [Self; 17] = [
        Self::NextXidIsXmax,
        Self::BoundBeforeSequence,
        Self::PositionOutlivesCrash,
        Self::LastIdWithNewestTick,
        Self::IdBeforeXid,
        Self::MemoryKeptOverCrash,
        Self::NeighbourKeepsMemory,
        Self::SettleOverCrash,
        Self::NoFlushGate,
        Self::HandBackBeforeMemory,
        Self::CatchUpToOlderTick,
        Self::RotateIntoFull,
        Self::TruncateWithoutCopy,
        Self::HandOverUnsettled,
        Self::MovedToNow,
        Self::MaxIdCursor,
        Self::HorizonCursor,
    ];
}
