//! Subscriptions as stores keep them: settings as JSON, choices as words. A stored format.

use serde::Serialize;

use super::{Mode, NewSubscription, OnDead, Order, Subscription, SubscriptionId, Tuning};
use crate::error::{Error, ErrorKind, Result};
use crate::time::Timestamp;

/// A subscription as its row says, before it is understood.
#[derive(Debug, Clone)]
pub struct StoredSubscription {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its filter and choices.
    pub texts: SubscriptionTexts,
    /// When it was created.
    pub created_at: Timestamp,
    /// Since when it is paused, if it is.
    pub paused_at: Option<Timestamp>,
}

/// What of a subscription is stored as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionTexts {
    /// JSON.
    pub filter: String,
    /// A word.
    pub mode: String,
    /// A word.
    pub order: String,
    /// A word.
    pub on_dead: String,
    /// JSON.
    pub tuning: String,
}

impl StoredSubscription {
    /// Understands it; `Incompatible` if a newer version wrote it.
    pub fn parse(self) -> Result<Subscription> {
        let unknown = |what: &str| {
            Error::new(
                ErrorKind::Incompatible,
                format!("subscription `{}` has a {what} that this version does not know", self.name),
            )
        };
        let texts = &self.texts;
        Ok(Subscription {
            id: SubscriptionId(self.id),
            filter: serde_json::from_str(&texts.filter)
                .map_err(|error| unknown("filter").with_source(error))?,
            mode: named(&Mode::WORDS, &texts.mode).ok_or_else(|| unknown("mode"))?,
            order: named(&Order::WORDS, &texts.order).ok_or_else(|| unknown("order"))?,
            on_dead: named(&OnDead::WORDS, &texts.on_dead).ok_or_else(|| unknown("rule for dead letters"))?,
            tuning: serde_json::from_str(&texts.tuning)
                .map_err(|error| unknown("tuning").with_source(error))?,
            created_at: self.created_at,
            paused_at: self.paused_at,
            name: self.name,
        })
    }
}

impl NewSubscription {
    /// What is stored of it as text.
    pub fn texts(&self) -> SubscriptionTexts {
        SubscriptionTexts {
            filter: json(&self.filter),
            mode: word(&Mode::WORDS, self.mode),
            order: word(&Order::WORDS, self.order),
            on_dead: word(&OnDead::WORDS, self.on_dead),
            tuning: self.tuning.to_text(),
        }
    }
}

impl Tuning {
    /// As it is stored.
    pub fn to_text(&self) -> String {
        json(self)
    }
}

impl Mode {
    const WORDS: [(Self, &'static str); 2] = [(Self::Log, "log"), (Self::Queue, "queue")];
}

impl Order {
    const WORDS: [(Self, &'static str); 2] = [(Self::Key, "key"), (Self::None, "none")];
}

impl OnDead {
    const WORDS: [(Self, &'static str); 2] = [(Self::Skip, "skip"), (Self::Hold, "hold")];
}

fn word<T: Copy + PartialEq>(words: &[(T, &str)], wanted: T) -> String {
    let found = words.iter().find(|(choice, _)| *choice == wanted);
    found.map(|(_, word)| (*word).to_owned()).expect("every choice has a word")
}

fn named<T: Copy>(words: &[(T, &str)], wanted: &str) -> Option<T> {
    words.iter().find(|(_, word)| *word == wanted).map(|(choice, _)| *choice)
}

fn json(settings: &impl Serialize) -> String {
    serde_json::to_string(settings).expect("settings always serialize")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(new: &NewSubscription) -> StoredSubscription {
        let at = Timestamp::from_micros(7);
        StoredSubscription {
            id: 3,
            name: new.name.clone(),
            texts: new.texts(),
            created_at: at,
            paused_at: None,
        }
    }

    #[test]
    fn a_subscription_comes_back_from_its_texts() {
        for order in [Order::Key, Order::None] {
            for on_dead in [OnDead::Skip, OnDead::Hold] {
                let new = NewSubscription::new("mail").topic("ord*").unwrap().order(order).on_dead(on_dead);
                let found = stored(&new).parse().unwrap();
                new.agrees_with(&found).unwrap();
                assert_eq!((found.id, found.tuning), (SubscriptionId(3), new.tuning));
            }
        }
    }

    #[test]
    fn the_words_are_a_stored_format_and_never_change() {
        let texts = NewSubscription::new("mail").texts();
        assert_eq!((&*texts.mode, &*texts.order, &*texts.on_dead), ("log", "key", "skip"));
        let texts = NewSubscription::new("mail").order(Order::None).on_dead(OnDead::Hold).texts();
        assert_eq!((&*texts.order, &*texts.on_dead), ("none", "hold"));
    }

    #[test]
    fn what_a_newer_version_wrote_is_refused_by_name() {
        let newer = || "newer".to_owned();
        let texts = NewSubscription::new("mail").texts();
        let damaged = [
            (SubscriptionTexts { filter: newer(), ..texts.clone() }, "filter"),
            (SubscriptionTexts { mode: newer(), ..texts.clone() }, "mode"),
            (SubscriptionTexts { order: newer(), ..texts.clone() }, "order"),
            (SubscriptionTexts { on_dead: newer(), ..texts.clone() }, "rule for dead letters"),
            (SubscriptionTexts { tuning: newer(), ..texts.clone() }, "tuning"),
        ];
        for (texts, what) in damaged {
            let stored = StoredSubscription { texts, ..stored(&NewSubscription::new("mail")) };
            let error = stored.parse().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Incompatible);
            assert!(error.to_string().contains(&format!("`mail` has a {what} ")), "{error}");
        }
    }
}
