//! Which keys of a batch must wait.

use std::collections::HashSet;

use postrider_core::{Delivery, Key};

/// The keys of a batch of which an event failed. A sink that keeps order asks before it sends, or reports, a later one:
/// once an event of a key fails, no later one of its key may take effect in the same batch.
///
/// Empty batches and keys without failures cost nothing. Events without a key never wait for each other.
#[derive(Debug, Default)]
pub struct FailedKeys(HashSet<Key>);

impl FailedKeys {
    /// Notes that `delivery` was not acked.
    pub fn note(&mut self, delivery: &Delivery) {
        if let Some(key) = &delivery.key {
            self.0.insert(key.clone());
        }
    }

    /// Whether an earlier event of its key was not acked: then this one is `Untried`.
    pub fn blocks(&self, delivery: &Delivery) -> bool {
        !self.0.is_empty() && delivery.key.as_ref().is_some_and(|key| self.0.contains(key))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sample::delivery;

    #[test]
    fn a_failed_event_blocks_its_key_and_no_other() {
        let with_key = |key: Option<&str>| {
            let mut delivery = delivery(1, b"");
            Arc::make_mut(&mut delivery.event).key = key.map(Key::new);
            delivery
        };
        let mut failed = FailedKeys::default();
        assert!(!failed.blocks(&with_key(Some("a"))));
        failed.note(&with_key(Some("a")));
        failed.note(&with_key(None));
        assert!(failed.blocks(&with_key(Some("a"))));
        assert!(!failed.blocks(&with_key(Some("b"))) && !failed.blocks(&with_key(None)));
    }
}
