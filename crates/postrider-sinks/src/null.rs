//! A sink that takes everything and keeps nothing, for trials and measurements.

use postrider_core::{Delivery, Outcome, Sink};

/// Acks every delivery without looking at it.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullSink;

impl Sink for NullSink {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        vec![Outcome::Ack; batch.len()]
    }

    fn keeps_order(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::sample::delivery;

    #[tokio::test]
    async fn everything_is_acked() {
        let outcomes = NullSink.send(vec![delivery(1, b"1"), delivery(2, b"2")]).await;
        assert_eq!(outcomes, [Outcome::Ack, Outcome::Ack]);
    }
}
