//! How events become queued rows: which of them share a block, and in which order they will be claimed.
//!
//! **Fairness** is start-time fair queueing, decided when a row is fed, so that a claim need not search.
//! Every tenant has a clock, which each of its rows moves on by one. A row begins at the time of its tenant's
//! clock, or at that of the queue, if that is later: a tenant that was away has saved nothing up. Rows are
//! claimed in the order of their beginnings. So while `n` tenants have rows, each gets one of `n` claims,
//! however many rows it has:
//!
//! ```text
//!   fed      a a a a a a   b    a    c         a has brought many rows before b and c come
//!   begins   0 1 2 3 4 5   1    6    1         the queue stands at 1 by then
//!   claimed  a a b c a a a a a                 b and c wait for one row of a, not for all
//! ```
//!
//! Without fairness there is one tenant, and rows are claimed in the order in which they were fed.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::{Fed, NewRow, Priority, Spans};
use crate::event::{Event, Key};
use crate::limits;
use crate::settle::Lane;
use crate::subscription::{Fair, LeaseBy, Order, Subscription};
use crate::time::Timestamp;

/// Plans what is fed; the only one who gives virtual time.
#[derive(Debug)]
pub struct Feeder {
    order: Order,
    /// Whether keys that have no order have a limit.
    limited: bool,
    by: LeaseBy,
    fair: Fair,
    /// Where the queue stands: the least virtual time that is ready to be claimed.
    now: i64,
    /// Where the clock of the last one of all stands.
    newest: i64,
    /// The clocks of tenants that are ahead of the queue.
    tenants: HashMap<i64, i64>,
}

impl Feeder {
    /// Goes on where an earlier one has ended.
    pub fn new(subscription: &Subscription, fed: &Fed) -> Self {
        let newest = fed.newest.map_or(0, |newest| newest + 1);
        let queue = &subscription.tuning.queue;
        let mut feeder = Self {
            order: subscription.order,
            limited: queue.per_key.is_some(),
            by: queue.lease_by,
            fair: queue.fair.clone(),
            now: 0,
            newest,
            tenants: fed.tenants.iter().map(|(tenant, last)| (*tenant, last + 1)).collect(),
        };
        feeder.stand_at(fed.front);
        feeder
    }

    /// Learns where the queue stands; none if nothing is ready to be claimed.
    pub fn stand_at(&mut self, front: Option<i64>) {
        // Time does not run backwards, and no tenant can be ahead of everything that was fed.
        self.now = front.unwrap_or(self.newest).max(self.now).min(self.newest);
        self.tenants.retain(|_, clock| *clock > self.now);
        if self.tenants.len() > limits::FAIR_TENANTS_MAX {
            // They begin again, side by side: unfair for one round, and bounded.
            self.tenants.clear();
            self.now = self.newest;
        }
    }

    /// The rows for some events that follow each other in the log.
    pub fn plan(&mut self, events: &[Arc<Event>]) -> Vec<NewRow> {
        let mut rows = Vec::new();
        // The blocks that still have room, one for each priority.
        let mut open: HashMap<Priority, usize> = HashMap::new();
        for event in events {
            let (lane, priority) = (self.lane(event), Priority::of(event));
            let alone = lane.is_some()
                || event.due_at.is_some()
                || self.by == LeaseBy::Event
                || self.fair != Fair::Nobody;
            let bytes = event.bytes().min(u32::MAX as usize) as u32;
            if !alone
                && let Some(row) = open.get(&priority).map(|index| &mut rows[*index])
                && joins(row, event, bytes)
            {
                self.newest += 1;
                continue;
            }
            if !alone {
                open.insert(priority, rows.len());
            }
            let tenant = self.tenant(event);
            rows.push(NewRow {
                events: Spans::one(event.id),
                bytes,
                priority,
                virtual_time: self.begin(tenant),
                tenant,
                turn: turn(event, lane.as_ref()),
                lane,
                due_at: event.due_at,
            });
        }
        rows
    }

    /// Moves a tenant's clock on by one row; where it begins.
    fn begin(&mut self, tenant: Option<i64>) -> i64 {
        let Some(tenant) = tenant else {
            self.newest += 1;
            return self.newest - 1;
        };
        let clock = self.tenants.entry(tenant).or_insert(self.now);
        let begins = (*clock).max(self.now);
        *clock = begins + 1;
        self.newest = self.newest.max(*clock);
        begins
    }

    /// Where keys have a limit and no order, all events of a key are in one lane, or they would have it twice.
    fn lane(&self, event: &Event) -> Option<Lane> {
        let key = event.key.clone()?;
        match self.order {
            Order::Key => Some(Lane { key, late: event.due_at.is_some() }),
            Order::None if self.limited => Some(Lane { key, late: false }),
            Order::None => None,
        }
    }

    fn tenant(&self, event: &Event) -> Option<i64> {
        let name = match &self.fair {
            Fair::Nobody => return None,
            Fair::Key => event.key.as_ref().map(Key::as_str),
            Fair::Topic => Some(event.topic.as_str()),
            Fair::Header(name) => event.headers.get(name),
        };
        // Those who have no name share one.
        Some(xxh3_64(name.unwrap_or_default().as_bytes()) as i64)
    }
}

/// Its place in its lane. A delayed event that shares the lane with others comes between them by its age:
/// behind all of them it might wait for ever.
fn turn(event: &Event, lane: Option<&Lane>) -> i64 {
    let shares = lane.is_some_and(|lane| !lane.late);
    event.due_at.filter(|_| !shares).map_or(event.id.0, Timestamp::as_micros)
}

/// Adds an event to a block, if there is room.
fn joins(block: &mut NewRow, event: &Event, bytes: u32) -> bool {
    let sum = block.bytes.saturating_add(bytes);
    let fits = block.events.count() < limits::BLOCK_EVENTS_MAX && sum as usize <= limits::BLOCK_BYTES_MAX;
    if fits && block.events.push(event.id) {
        block.bytes = sum;
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::event::{EventId, Headers, Kind, Topic};
    use crate::subscription::{Mode, NewSubscription, SubscriptionId};

    fn subscription(order: Order, by: LeaseBy, fair: Fair) -> Subscription {
        let mut new = NewSubscription::new("mail").mode(Mode::Queue).order(order);
        new.tuning.queue.lease_by = by;
        new.tuning.queue.fair = fair;
        Subscription {
            id: SubscriptionId(1),
            name: new.name,
            filter: new.filter,
            mode: new.mode,
            order: new.order,
            on_dead: new.on_dead,
            tuning: new.tuning,
            created_at: Timestamp::from_micros(0),
            paused_at: None,
        }
    }

    fn event(id: i64, key: Option<&str>) -> Event {
        Event {
            id: EventId(id),
            topic: Topic::new("order"),
            kind: Kind::new("order.created"),
            key: key.map(Key::new),
            payload: Bytes::from_static(b"0123456789"),
            headers: Headers::default(),
            created_at: Timestamp::from_micros(id),
            due_at: None,
            flaw: None,
        }
    }

    fn plan(subscription: &Subscription, events: Vec<Event>) -> Vec<NewRow> {
        let events: Vec<_> = events.into_iter().map(Arc::new).collect();
        Feeder::new(subscription, &Fed::default()).plan(&events)
    }

    #[test]
    fn events_without_order_share_blocks() {
        let rows = plan(
            &subscription(Order::None, LeaseBy::Block, Fair::Nobody),
            (1..=250).map(|id| event(id, Some("k"))).collect(),
        );
        assert_eq!(rows.iter().map(|row| row.events.count()).collect::<Vec<_>>(), [100, 100, 50]);
        assert!(rows.is_sorted_by_key(|row| row.virtual_time));
        assert!(rows.iter().all(|row| row.lane.is_none()));
    }

    #[test]
    fn what_needs_order_a_time_or_its_own_lease_stands_alone() {
        let keyed = subscription(Order::Key, LeaseBy::Block, Fair::Nobody);
        let rows =
            plan(&keyed, vec![event(1, Some("k")), event(2, None), event(3, Some("k")), event(4, None)]);
        let counts: Vec<_> = rows.iter().map(|row| row.events.to_pairs()).collect();
        assert_eq!(
            counts,
            [vec![1, 1], vec![2, 1, 4, 1], vec![3, 1]],
            "only those without a key share a block"
        );
        let due = Event { due_at: Some(Timestamp::from_micros(99)), ..event(2, None) };
        let rows = plan(&keyed, vec![event(1, None), due, event(3, None)]);
        assert_eq!((rows.len(), rows[1].turn, rows[1].due_at.is_some()), (2, 99, true));
        let single = subscription(Order::None, LeaseBy::Event, Fair::Nobody);
        assert_eq!(plan(&single, (1..=5).map(|id| event(id, None)).collect()).len(), 5);
    }

    #[test]
    fn what_has_a_limit_stands_alone_in_the_one_lane_of_its_key() {
        let mut limited = subscription(Order::None, LeaseBy::Block, Fair::Nobody);
        limited.tuning.queue.per_key = Some(2);
        let due = Event { due_at: Some(Timestamp::from_micros(99)), ..event(3, Some("k")) };
        let rows = plan(&limited, vec![event(1, Some("k")), event(2, None), due, event(4, None)]);
        let counts: Vec<_> = rows.iter().map(|row| row.events.to_pairs()).collect();
        assert_eq!(counts, [vec![1, 1], vec![2, 1, 4, 1], vec![3, 1]]);
        let lane = Some(Lane { key: Key::new("k"), late: false });
        assert_eq!((&rows[0].lane, &rows[1].lane, &rows[2].lane), (&lane, &None, &lane));
        assert_eq!((rows[2].turn, rows[2].due_at.is_some()), (3, true));
    }

    #[test]
    fn a_block_is_of_one_priority_and_bounded_in_bytes() {
        let unordered = subscription(Order::None, LeaseBy::Block, Fair::Nobody);
        let mut urgent = event(2, None);
        urgent.headers.set(Priority::HEADER, "5");
        let rows = plan(&unordered, vec![event(1, None), urgent, event(3, None)]);
        assert_eq!(
            rows.iter().map(|row| row.events.to_pairs()).collect::<Vec<_>>(),
            [vec![1, 1, 3, 1], vec![2, 1]]
        );
        let large =
            |id| Event { payload: Bytes::from(vec![0; limits::BLOCK_BYTES_MAX / 2]), ..event(id, None) };
        assert_eq!(plan(&unordered, vec![large(1), large(2), large(3)]).len(), 3);
    }

    #[test]
    fn whoever_comes_late_waits_for_one_round_only() {
        let fair = subscription(Order::None, LeaseBy::Block, Fair::Key);
        let mut feeder = Feeder::new(&fair, &Fed::default());
        let many: Vec<_> = (0..1000).map(|id| Arc::new(event(id, Some("noisy")))).collect();
        let times: Vec<_> = feeder.plan(&many).iter().map(|row| row.virtual_time).collect();
        assert_eq!(times, (0..1000).collect::<Vec<_>>());
        feeder.stand_at(Some(10));
        let late = feeder.plan(&[Arc::new(event(2000, Some("quiet"))), Arc::new(event(2001, Some("noisy")))]);
        assert_eq!((late[0].virtual_time, late[1].virtual_time), (10, 1000));
        feeder.stand_at(None);
        let after = feeder.plan(&[Arc::new(event(3000, Some("noisy")))]);
        assert_eq!(after[0].virtual_time, 1001, "an empty queue has caught up with everybody");
    }

    #[test]
    fn a_feeder_goes_on_where_another_has_ended() {
        let fair = subscription(Order::None, LeaseBy::Block, Fair::Topic);
        let mut first = Feeder::new(&fair, &Fed::default());
        let rows = first.plan(&[Arc::new(event(1, None)), Arc::new(event(2, None))]);
        let tenant = rows[0].tenant.unwrap();
        let fed = Fed { front: Some(1), tenants: vec![(tenant, 1)], newest: Some(1) };
        let next = |feeder: &mut Feeder| feeder.plan(&[Arc::new(event(3, None))])[0].virtual_time;
        assert_eq!((next(&mut first), next(&mut Feeder::new(&fair, &fed))), (2, 2));
    }

    proptest! {
        /// However rows come in, a tenant that has rows waits for at most one row of each other one per row of its own.
        #[test]
        fn shares_are_even_while_all_have_rows(tenants in proptest::collection::vec(0_usize..5, 1..200)) {
            let fair = subscription(Order::None, LeaseBy::Block, Fair::Key);
            let mut feeder = Feeder::new(&fair, &Fed::default());
            let names = ["a", "b", "c", "d", "e"];
            let events: Vec<_> =
                tenants.iter().enumerate().map(|(id, t)| Arc::new(event(id as i64, Some(names[*t])))).collect();
            let mut order: Vec<_> =
                feeder.plan(&events).iter().zip(&tenants).map(|(row, t)| (row.virtual_time, row.events.first(), *t)).collect();
            order.sort();
            for place in 0..order.len() {
                let left = |t: usize| order[place..].iter().any(|(_, _, other)| *other == t);
                let taken = |t: usize| order[..place].iter().filter(|(_, _, other)| *other == t).count();
                let waiting: Vec<usize> = (0..5).filter(|t| left(*t)).map(taken).collect();
                let (least, most) = (waiting.iter().min().unwrap(), waiting.iter().max().unwrap());
                prop_assert!(most - least <= 1, "{waiting:?}");
            }
        }
    }
}
