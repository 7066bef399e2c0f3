//! Where one event stands for each subscription.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_core::log::ShardPosition;
use postrider_core::settle::Lane;
use postrider_core::store::{AttemptReport, DeliveryReport};
use postrider_core::subscription::SubscriptionId;
use postrider_core::{
    DeliveryState, Error, ErrorKind, EventId, Key, Order, Result, Shard, Subscription, Timestamp, limits,
};
use tokio_postgres::Row;

use crate::admin::audit::action_list;
use crate::admin::event::{Found, event_get, log_end};
use crate::admin::lag::{Counted, events_ahead};
use crate::admin::subscription::subscription_list;
use crate::error::Doing;
use crate::queue::look::{queue_head, queued_of_event, results_of};
use crate::server::session::Tx;
use crate::server::values::At;
use crate::settle::attempt::attempt_list;
use crate::settle::position::{SHARDS, position_newest};

/// Where an event stands for each subscription that wants it; nothing if the event is gone.
pub(crate) async fn event_deliveries(tx: &Tx<'_>, id: EventId) -> Result<Vec<DeliveryReport>> {
    let Some(found) = event_get(tx, [id]).await?.remove(&id) else { return Ok(Vec::new()) };
    let event = &found.event;
    let mut subscriptions = subscription_list(tx).await?;
    subscriptions
        .retain(|subscription| subscription.filter.matches(event.topic.as_str(), event.kind.as_str()));
    let mut standings = Vec::with_capacity(subscriptions.len());
    // Positions before rows: if the position passes the event in between, the row that it may leave is seen.
    for subscription in subscriptions {
        standings.push(Standing::of(tx, subscription, &found).await?);
    }
    let mut rows = delivery_get(tx, id).await?;
    for standing in &mut standings {
        standing.row = rows.remove(&standing.subscription.id);
        if standing.row.is_some() {
            standing.ahead_of = None;
        }
    }
    let mut heads = lane_head(tx, &standings, &found).await?;
    let queued = queued_of_event(tx, id, None).await?;
    let mut results = results_of(tx, id).await?;
    for (subscription, row) in &queued {
        if let Some(lane) = row.lane.as_ref().filter(|_| row.waits)
            && let Some(head) = queue_head(tx, *subscription, lane).await?
        {
            heads.insert(*subscription, head);
        }
    }
    let deliveries = standings.iter().map(|standing| (standing.subscription.id, id));
    let mut attempts = attempt_list(tx, deliveries, limits::ATTEMPT_RECORDS_MAX).await?;
    let wanted = standings.iter().map(|standing| &standing.subscription);
    let mut actions = action_list(tx, event, wanted).await?;
    let end = log_end(tx).await?;
    let mut reports = Vec::with_capacity(standings.len());
    for standing in standings {
        let ahead = match &standing.ahead_of {
            Some(position) => {
                let counted = Counted { end: &end, before: id, filter: None };
                Some(events_ahead(tx, position, counted).await?.events)
            }
            None => None,
        };
        let history = attempts.remove(&(standing.subscription.id, id)).unwrap_or_default();
        let behind = heads.remove(&standing.subscription.id);
        let (subscription, covered) = (standing.subscription.id, standing.is_covered());
        let mut report = standing.report(&found, ahead, behind, history);
        let kept = results.remove(&subscription).unwrap_or_default();
        (report.result, report.progress) = (kept.result, kept.progress);
        report.actions =
            actions.as_mut().map(|actions| actions.remove(&report.subscription).unwrap_or_default());
        if let Some(row) = queued.get(&subscription).filter(|_| covered) {
            report.state = if row.leased { DeliveryState::Leased } else { DeliveryState::Pending };
            (report.attempts, report.lost) = (row.started, row.lost());
            report.due_at = row.due_at;
        }
        reports.push(report);
    }
    Ok(reports)
}

/// What is known about the event and one subscription.
struct Standing {
    subscription: Subscription,
    /// The position of the event's shard, if that has not reached it.
    ahead_of: Option<Arc<ShardPosition>>,
    row: Option<DeliveryRow>,
}

impl Standing {
    async fn of(tx: &Tx<'_>, subscription: Subscription, found: &Found) -> Result<Self> {
        let ahead_of = match found.xid {
            None => None,
            Some(xid) => {
                let places = position_newest(tx, subscription.id, SHARDS).await?;
                let shard = Shard::of(found.event.key.as_ref(), found.event.id, SHARDS);
                let place = &places[usize::from(shard.0)];
                (!place.covers(xid, found.event.id)).then(|| Arc::clone(place))
            }
        };
        Ok(Self { subscription, ahead_of, row: None })
    }

    fn is_covered(&self) -> bool {
        self.ahead_of.is_none()
    }

    /// The lane that the event waits in. Ahead of the position it waits for its lane as soon as it comes up the log.
    fn lane(&self, found: &Found) -> Option<Lane> {
        match &self.row {
            Some(row) if row.waits => row.lane.clone(),
            None if !self.is_covered() && self.subscription.order == Order::Key => {
                let late = found.event.due_at.is_some();
                found.event.key.clone().map(|key| Lane { key, late })
            }
            _ => None,
        }
    }

    fn report(
        self,
        found: &Found,
        ahead: Option<u64>,
        behind: Option<EventId>,
        history: Vec<AttemptReport>,
    ) -> DeliveryReport {
        let covered = self.is_covered();
        let state = match &self.row {
            Some(row) => row.state,
            None if covered => DeliveryState::Done,
            None => DeliveryState::Pending,
        };
        let due_at = match &self.row {
            Some(row) => row.due_at,
            None if covered => None,
            None => found.event.due_at,
        };
        DeliveryReport {
            subscription: self.subscription.name,
            state,
            // A row keeps the attempts that failed; another one runs while it is leased.
            attempts: self.row.map_or(0, |row| row.attempts + u32::from(state == DeliveryState::Leased)),
            lost: 0,
            due_at,
            behind,
            ahead,
            paused: self.subscription.paused_at.is_some(),
            history,
            actions: None,
            result: None,
            progress: None,
        }
    }
}

/// What a report needs of a row.
struct DeliveryRow {
    lane: Option<Lane>,
    state: DeliveryState,
    attempts: u32,
    due_at: Option<Timestamp>,
    waits: bool,
}

/// The rows of an event, by subscription.
async fn delivery_get(tx: &Tx<'_>, id: EventId) -> Result<HashMap<SubscriptionId, DeliveryRow>> {
    let rows = tx.query(sql!("admin/delivery/delivery_get"), &[&id.0], "read a delivery").await?;
    rows.iter().map(delivery_read).collect()
}

fn delivery_read(row: &Row) -> Result<(SubscriptionId, DeliveryRow)> {
    let what = "read a delivery";
    let key = row.try_get::<_, Option<&str>>(1).doing(what)?.map(Key::new);
    let late = row.try_get(2).doing(what)?;
    let word: &str = row.try_get(3).doing(what)?;
    let state = DeliveryState::from_word(word).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, format!("a delivery is in the unknown state `{word}`"))
    })?;
    let delivery = DeliveryRow {
        lane: key.map(|key| Lane { key, late }),
        state,
        attempts: row.try_get::<_, i32>(4).doing(what)? as u32,
        due_at: row.try_get::<_, Option<At>>(5).doing(what)?.map(|at| at.0),
        waits: row.try_get(6).doing(what)?,
    };
    Ok((SubscriptionId(row.try_get(0).doing(what)?), delivery))
}

/// The head of the lane that the event waits in, for each subscription where it waits.
async fn lane_head(
    tx: &Tx<'_>,
    standings: &[Standing],
    found: &Found,
) -> Result<HashMap<SubscriptionId, EventId>> {
    let what = "find the head of a key's queue";
    let lanes: Vec<(i64, Lane)> = standings
        .iter()
        .filter_map(|standing| standing.lane(found).map(|lane| (standing.subscription.id.0, lane)))
        .collect();
    if lanes.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<i64> = lanes.iter().map(|(id, _)| *id).collect();
    let keys: Vec<&str> = lanes.iter().map(|(_, lane)| lane.key.as_str()).collect();
    let lates: Vec<bool> = lanes.iter().map(|(_, lane)| lane.late).collect();
    let rows = tx.query(sql!("admin/delivery/lane_head"), &[&ids, &keys, &lates], what).await?;
    let read = |row: &Row| Ok((SubscriptionId(row.try_get(0)?), EventId(row.try_get(1)?)));
    rows.iter().map(read).collect::<Result<_, _>>().doing(what)
}
