//! A sink that takes everything and keeps nothing, for trials and measurements.

use std::fmt;

use postrider_core::{Delivery, Error, Outcome, Result, Sink};
use serde::Deserialize;

use crate::options::SinkOptions;

/// The null sink has nothing to choose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NullOptions {}

impl SinkOptions for NullOptions {
    type Sink = NullSink;
    const SCHEMES: &'static [&'static str] = &["null"];

    fn from_text(text: &str) -> Result<Self> {
        if text == "null" {
            Ok(Self {})
        } else {
            Err(Error::invalid("sink `null` takes nothing: write null"))
        }
    }

    async fn open(&self) -> Result<NullSink> {
        Ok(NullSink)
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(vec!["takes every event and keeps none".to_owned()])
    }
}

impl fmt::Display for NullOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null")
    }
}

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
    use crate::sample::delivery;

    #[tokio::test]
    async fn everything_is_acked() {
        let outcomes = NullSink.send(vec![delivery(1, b"1"), delivery(2, b"2")]).await;
        assert_eq!(outcomes, [Outcome::Ack, Outcome::Ack]);
    }
}
