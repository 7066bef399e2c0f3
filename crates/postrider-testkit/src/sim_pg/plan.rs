//! What a seed stands for.

use postrider_core::log::Xid;

/// Everything that a run decides beforehand, from its seed alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Where it all comes from.
    pub seed: u64,
    /// The first xid of the server; often just below the end of an epoch.
    pub first_xid: Xid,
    /// Turns during which producers begin transactions and things go wrong.
    pub turns: u32,
    /// Sessions that emit.
    pub producers: u32,
    /// Sessions of another database, which take xids and write nothing here.
    pub foreign: u32,
    /// Keys.
    pub keys: u32,
    /// How the subscriptions start. Each stands for the shards of one that are always with one member.
    pub subscriptions: Vec<SimStart>,
    /// Processes that read, each with a memory of its own.
    pub members: usize,
    /// Probability per turn of an owner that it gives its shards to another member.
    pub hand_over: f64,
    /// Share of commits that do not wait for the disk.
    pub unflushed: f64,
    /// Whether windows are handed out without a look at the disk: right if no commit goes ahead of it.
    pub trust: bool,
    /// Share of transactions that are prepared and resolved later.
    pub prepared: f64,
    /// Share of sessions that are so slow that their transactions stay open for long.
    pub slow: f64,
    /// Share of attempts that fail.
    pub failing: f64,
    /// Probability per turn that the server crashes.
    pub crash: f64,
    /// Probability per turn that the reading process dies and starts again, and that it loses its connection.
    pub restart: f64,
    /// Rows that a read may bring.
    pub room: usize,
    /// How many ids below the last one the opening of a window looks eagerly.
    pub reach: i64,
    /// Whether leaves are rotated and emptied.
    pub retention: bool,
    /// Probability per turn of an owner that its subscription is moved back. Not where leaves are emptied:
    /// what comes again of a key then has gaps.
    pub seek: f64,
}

/// Where a subscription starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimStart {
    /// With the first event.
    Oldest,
    /// With what becomes visible after its creation.
    Now,
    /// With this id, counted back from the last one that the sequence had issued.
    Back(i64),
}

impl Plan {
    /// The plan of a seed. One in four is free of crashes: there every event is delivered exactly once.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x51b6);
        let trouble = if rng.u32(0..4) == 0 { 0.0 } else { 1.0 };
        let mut odds = |most: f64| if rng.u32(0..3) == 0 { 0.0 } else { rng.f64() * most };
        let (unflushed, prepared, slow) = (odds(1.0), odds(0.2), odds(0.5));
        let (failing, crash, restart) = (odds(0.3), odds(0.002) * trouble, odds(0.002) * trouble);
        let starts = [SimStart::Oldest, SimStart::Now, SimStart::Back(rng.i64(0..30))];
        let subscriptions = (0..rng.usize(1..4)).map(|_| starts[rng.usize(0..3)]).collect();
        let members = rng.usize(1..4);
        let mut plan = Self {
            seed,
            first_xid: Xid(if rng.bool() { (1 << 32) - rng.u64(1..60) } else { rng.u64(3..1000) }),
            turns: rng.u32(1_000..6_000),
            producers: rng.u32(1..9),
            foreign: rng.u32(0..3),
            keys: rng.u32(1..8),
            subscriptions,
            members,
            hand_over: if members > 1 { 0.02 } else { 0.0 },
            unflushed,
            trust: unflushed == 0.0 && rng.bool(),
            prepared,
            slow,
            failing,
            crash,
            restart,
            room: rng.usize(1..20),
            reach: [0, 5, 50, 10_000][rng.usize(0..4)],
            retention: rng.bool(),
            seek: 0.0,
        };
        if !plan.retention && rng.bool() {
            plan.seek = 0.01;
        }
        plan
    }
}
