//! Several events as one request: a JSON array.
//!
//! One answer is for all of them, so one request is in flight at a time. A receiver that refuses an array for
//! good may mean one event of it: then each is sent as an array of its own, so that only what it refuses
//! becomes a dead letter.

use std::fmt::Write;

use bytes::Bytes;
use hyper::header::HeaderMap;
use postrider_core::{Delivery, Error, Failure, FailureClass, Outcome, Result};
use sha2::{Digest, Sha256};

use super::answer::Reach;
use super::target::Target;
use super::{HttpOptions, HttpSink, add};
use crate::batch::sizes;
use crate::envelope::{CONTENT_TYPE, Format};
use crate::{Binding, FailedKeys};

/// What config must say for batches.
pub(super) fn check(options: &HttpOptions, target: &Target) -> Result<()> {
    if options.batch.is_none() {
        return Ok(());
    }
    if content_type(options.envelope.format).is_none() {
        return Err(Error::invalid(
            "a `batch` is a JSON array: set `envelope` to json or cloudevents-structured, or leave `batch` out",
        ));
    }
    if target.url_reach() == Reach::Some {
        return Err(Error::invalid(
            "the events of a `batch` go to one URL: use no placeholders in `url`, or leave `batch` out",
        ));
    }
    Ok(())
}

fn content_type(format: Format) -> Option<&'static str> {
    match format {
        Format::Json => Some("application/json"),
        Format::CloudEventsStructured => Some("application/cloudevents-batch+json"),
        Format::Raw | Format::CloudEvents | Format::Debezium => None,
    }
}

pub(super) async fn send(sink: &HttpSink, batch: &[Delivery], events_max: usize) -> Vec<Outcome> {
    let mut run =
        Run { sink, batch, outcomes: vec![Outcome::Untried; batch.len()], failed: FailedKeys::default() };
    let places: Vec<_> = (0..batch.len()).collect();
    for chunk in places.chunks(events_max) {
        if run.send_chunk(chunk).await.is_err() {
            break;
        }
    }
    run.outcomes
}

struct Run<'a> {
    sink: &'a HttpSink,
    batch: &'a [Delivery],
    outcomes: Vec<Outcome>,
    failed: FailedKeys,
}

/// The receiver is down: nothing more is sent.
struct Down;

impl Run<'_> {
    async fn send_chunk(&mut self, chunk: &[usize]) -> Result<(), Down> {
        let chunk: Vec<_> =
            chunk.iter().copied().filter(|place| !self.failed.blocks(&self.batch[*place])).collect();
        let Some(refused) = self.request(&chunk).await else { return Ok(()) };
        if refused.class() != FailureClass::Permanent {
            return self.fail(&chunk, &refused);
        }
        if let [_] = chunk[..] {
            return self.fail(&chunk, &refused);
        }
        for place in chunk {
            if self.failed.blocks(&self.batch[place]) {
                continue;
            }
            if let Some(failure) = self.request(&[place]).await {
                self.fail(&[place], &failure)?;
            }
        }
        Ok(())
    }

    /// Sends events as one array and acks them all, or says why not.
    async fn request(&mut self, places: &[usize]) -> Option<Failure> {
        if places.is_empty() {
            return None;
        }
        let body = match self.body(places) {
            Ok(body) => body,
            Err(failure) => return Some(failure),
        };
        let options = &self.sink.shared.options;
        let request = async {
            let mut headers = HeaderMap::new();
            add(&mut headers, CONTENT_TYPE, content_type(options.envelope.format).unwrap_or_default())?;
            let url = self.sink.shared.target.url_for(&self.batch[places[0]])?;
            self.sink.request(self.sink.signed(url, &self.id(places), headers, body)?).await
        };
        match request.await {
            Ok(()) => {
                for place in places {
                    self.outcomes[*place] = Outcome::Ack;
                }
                None
            }
            Err(failure) => Some(failure),
        }
    }

    fn body(&self, places: &[usize]) -> Result<Bytes, Failure> {
        let envelope = &self.sink.shared.options.envelope;
        let mut body = vec![b'['];
        for place in places {
            if body.len() > 1 {
                body.push(b',');
            }
            body.extend_from_slice(&envelope.wrap(&self.batch[*place], Binding::Http)?.body);
        }
        body.push(b']');
        Ok(body.into())
    }

    /// The same for the same events. Each has its own id inside of the array.
    fn id(&self, places: &[usize]) -> String {
        let mut digest = Sha256::new();
        for place in places {
            digest.update(self.batch[*place].dedup_id());
            digest.update(b"\n");
        }
        digest.finalize().iter().fold("batch-".to_owned(), |mut id, byte| {
            // Writing to a string cannot fail.
            let _ = write!(id, "{byte:02x}");
            id
        })
    }

    fn fail(&mut self, places: &[usize], failure: &Failure) -> Result<(), Down> {
        for place in places {
            let delivery = &self.batch[*place];
            if !self.failed.blocks(delivery) {
                self.failed.note(delivery);
                self.outcomes[*place] = sizes::outcome(failure.clone());
            }
        }
        if failure.class() == FailureClass::Unavailable { Err(Down) } else { Ok(()) }
    }
}
