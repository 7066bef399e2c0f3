//! Calls of people: the CLI, the API and the dashboard.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::event::Listed;
use postrider_core::store::{
    DeadLetter, DeadLetterQuery, DeliveryReport, EventQuery, LetterId, Pruned, StoreReport,
    SubscriptionReport,
};
use postrider_core::{
    Event, EventId, NewEvent, NewSubscription, Position, Result, Start, Store, Subscription, Tuning,
};

use crate::admin::event::Listing;
use crate::admin::subscription::Change;
use crate::admin::{check, dead_letter, event, report, seek, subscription};
use crate::file::connection::{Commit, ConnectionThread, read};
use crate::file::open;
use crate::log::event::event_get;
use crate::retention::prune;
use crate::store::SqliteStore;
use crate::subscription::{subscription_get, subscription_list};

impl Store for SqliteStore {
    fn id(&self) -> String {
        self.inner.id.clone()
    }

    async fn event_emit(&self, mut events: Vec<NewEvent>) -> Result<Vec<EventId>> {
        // Here and not below: the thread that writes has no trace of the caller's.
        events.iter_mut().for_each(postrider_core::emit::trace);
        let now = self.now();
        self.change(move |tx| event::event_emit(tx, &events, now)).await
    }

    async fn event_list(&self, query: EventQuery) -> Result<Vec<Listed>> {
        let mut listing = Listing::new(query);
        while !listing.done {
            listing = self
                .read(move |tx| {
                    listing.step(tx)?;
                    Ok(listing)
                })
                .await?;
        }
        Ok(listing.found)
    }

    async fn event_get(&self, id: EventId) -> Result<Option<Event>> {
        self.read(move |tx| event_get(tx, id)).await
    }

    async fn event_deliveries(&self, id: EventId) -> Result<Vec<DeliveryReport>> {
        self.read(move |tx| report::event_deliveries(tx, id)).await
    }

    async fn subscription_create(&self, new: NewSubscription) -> Result<Subscription> {
        let now = self.now();
        self.change(move |tx| subscription::subscription_create(tx, &new, now)).await
    }

    async fn subscription_get(&self, name: &str) -> Result<Subscription> {
        let name = name.to_owned();
        self.read(move |tx| subscription_get(tx, &name)).await
    }

    async fn subscription_list(&self) -> Result<Vec<SubscriptionReport>> {
        let (observer, now) = (self.observer(), self.now());
        self.read(move |tx| {
            subscription_list(tx)?
                .into_iter()
                .map(|found| report::subscription_report(tx, found, &observer, now))
                .collect()
        })
        .await
    }

    async fn subscription_report(&self, name: &str) -> Result<SubscriptionReport> {
        let (name, observer, now) = (name.to_owned(), self.observer(), self.now());
        self.read(move |tx| {
            let found = subscription_get(tx, &name)?;
            report::subscription_report(tx, found, &observer, now)
        })
        .await
    }

    async fn subscription_tune(&self, name: &str, tuning: Tuning) -> Result<Subscription> {
        self.subscription_change(name, Change::Tune(tuning)).await
    }

    async fn subscription_pause(&self, name: &str) -> Result<Subscription> {
        self.subscription_change(name, Change::Pause).await
    }

    async fn subscription_resume(&self, name: &str) -> Result<Subscription> {
        self.subscription_change(name, Change::Resume).await
    }

    async fn subscription_seek(&self, name: &str, to: Start, actor: &str) -> Result<Position> {
        let (name, auditor) = (name.to_owned(), self.auditor(actor));
        self.change(move |tx| seek::subscription_seek(tx, &name, to, &auditor)).await
    }

    async fn subscription_delete(&self, name: &str, actor: &str) -> Result<()> {
        let (name, auditor) = (name.to_owned(), self.auditor(actor));
        self.change(move |tx| subscription::subscription_delete(tx, &name, &auditor)).await
    }

    async fn dead_letter_list(&self, query: DeadLetterQuery) -> Result<Vec<DeadLetter>> {
        self.read(move |tx| dead_letter::dead_letter_list(tx, &query)).await
    }

    async fn dead_letter_get(&self, letter: &LetterId) -> Result<DeadLetter> {
        let letter = letter.clone();
        self.read(move |tx| dead_letter::dead_letter_get(tx, &letter)).await
    }

    async fn dead_letter_edit(&self, letter: &LetterId, payload: Bytes, actor: &str) -> Result<()> {
        let (letter, auditor) = (letter.clone(), self.auditor(actor));
        self.change(move |tx| dead_letter::dead_letter_edit(tx, &letter, &payload, &auditor)).await
    }

    async fn dead_letter_replay(&self, which: DeadLetterQuery, actor: &str) -> Result<u64> {
        let auditor = self.auditor(actor);
        self.change(move |tx| dead_letter::dead_letter_replay(tx, &which, &auditor)).await
    }

    async fn dead_letter_discard(&self, which: DeadLetterQuery, actor: &str) -> Result<u64> {
        let auditor = self.auditor(actor);
        self.change(move |tx| dead_letter::dead_letter_discard(tx, &which, &auditor)).await
    }

    async fn stats(&self) -> Result<StoreReport> {
        let (observer, now, wal) = (self.observer(), self.now(), self.inner.wal.clone());
        let location = format!("{} (SQLite {})", self.inner.options.path.display(), rusqlite::version());
        self.read(move |tx| {
            let bytes = open::bytes_on_disk(tx, &wal)?;
            report::store_report(tx, &observer, now, report::Place { location, bytes })
        })
        .await
    }

    async fn check(&self) -> Result<Vec<String>> {
        // Reading the whole file takes long; fetches must not wait for it.
        let options = self.inner.options.clone();
        let (_, found) = ConnectionThread::start("check", move || {
            let conn = open::open_reader(&options)?;
            let found = read(&conn, |tx| check::check(tx))?;
            Ok(((), found))
        })
        .await?;
        Ok(found)
    }

    async fn prune(&self, retention: Duration) -> Result<Pruned> {
        let cutoff = self.now().before(retention);
        let from = EventId(self.inner.prune_from.load(Ordering::Relaxed));
        let mut bite = self.read(move |tx| prune::pick(tx, from, cutoff)).await?;
        self.inner.prune_from.store(bite.next.0, Ordering::Relaxed);
        let ids = std::mem::take(&mut bite.ids);
        let removed = if ids.is_empty() {
            0
        } else {
            // Losing the removal in a power cut does no harm: the events are removed again.
            self.write(Commit::Plain, move |tx| prune::remove(tx, &ids)).await?
        };
        Ok(bite.pruned(removed))
    }
}

impl SqliteStore {
    async fn subscription_change(&self, name: &str, change: Change) -> Result<Subscription> {
        let (name, now) = (name.to_owned(), self.now());
        self.change(move |tx| subscription::subscription_change(tx, &name, &change, now)).await
    }
}
