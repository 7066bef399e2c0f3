//! Everything that stands in a public signature can be named by `postrider::`, without the crates below it.
//! That this compiles is most of the test.

use postrider::balance::Survey;
use postrider::delivery::{Cause, Origin};
use postrider::event::Due;
use postrider::queue::{
    Ask, Claimed, EventProgress, Extended, Fed, Feed, QueueSettle, QueueSettled, Swept, Token,
};
use postrider::retry::Verdict;
use postrider::settle::{
    AttemptRecord, Chunk, DueRows, Hold, Lane, MemberId, Room, Row, Settle, Settled, Taken,
};
use postrider::store::{ActionReport, DeliveryAction, DeliveryReport, SubscriptionReport};
use postrider::subscription::SubscriptionId;
use postrider::time::Clock;
use postrider::{
    Epoch, Event, Fair, LeaseBy, Members, NewSubscription, Position, Priority, QueueTuning, Rate, Scope,
    Shard, ShardSet, Tuning, Unique,
};

/// What those need to name who bring a store or a sink of their own, or keep a value in a struct.
#[expect(dead_code, reason = "it is made to be compiled")]
struct Names {
    owner: (Survey, Hold, Taken, Chunk, DueRows, Room, Settle, Settled, Row, Lane, AttemptRecord, MemberId),
    queue:
        (Ask, Claimed, EventProgress, Extended, Fed, Feed, QueueSettle, QueueSettled, Swept, Token, Priority),
    report: (ActionReport, DeliveryAction, DeliveryReport, SubscriptionReport, SubscriptionId),
    delivery: (Cause, Origin, Due, Verdict, Epoch, Shard, ShardSet, Position),
    clock: Box<dyn Clock>,
}

#[test]
fn settings_are_written_with_names_of_the_root() {
    let mut tuning = Tuning { members: Members::One, ..Tuning::default() };
    tuning.queue = QueueTuning {
        lease_by: LeaseBy::Event,
        fair: Fair::default(),
        rate: Some(Rate { per_second: 5, burst: 10 }),
        ..tuning.queue
    };
    let subscription = NewSubscription { tuning, ..NewSubscription::new("mail") };
    assert_eq!(subscription.tuning.members, Members::One);
    let unique = Unique::new("order-42").scope(Scope::Topic);
    drop(Event::new("order").unique(unique));
}
