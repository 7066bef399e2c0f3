//! Webhooks: each event is a request, signed as Standard Webhooks says.
//!
//! *Ack.* The receiver has answered with a status from 200 to 299 within the time limit. Redirects are not followed. What
//! other statuses mean stands in `answer`; the body of an answer is read for as much as a connection needs to be used again,
//! and looked at by nobody.
//!
//! *Order.* Many keys are in flight at once, up to `concurrency` requests for each host, and the events of one key one after the
//! other (`per_key`). With `batch` several events are one request, and one request is in flight at a time.
//!
//! *Repeats.* An answer that is lost makes the event come again, with the same `webhook-id` and `idempotency-key`.
//!
//! *Where to.* [`guard`](self) refuses what is no public address unless `allow` names it, see [`Allowed`].

mod answer;
#[cfg(feature = "bench")]
pub(crate) mod bare;
mod batches;
mod guard;
mod options;
mod signature;

use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use postrider_core::{Delivery, Failure, Outcome, Sink};
use tokio::sync::Semaphore;
use tokio::time::timeout;

pub use guard::Allowed;
pub use options::{HttpMethod, HttpOptions};

use self::answer::Reach;
use self::guard::Guard;
use self::signature::Signer;
use crate::envelope::names;
use crate::secret::Exposed;
use crate::{Binding, per_key, sizes};

/// Events of one batch that are on their way at a time, over all hosts.
const IN_FLIGHT_MAX: usize = 256;
/// Bytes of an answer's body that are read, and for how long, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Hosts whose requests are counted. Beyond it those without a request are forgotten.
const HOSTS_MAX: usize = 1024;

/// Sends deliveries to webhooks. Clones share their connections and their limits.
#[derive(Debug, Clone)]
pub struct HttpSink {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: HttpOptions,
    client: Client<HttpsConnector<Guard>, Full<Bytes>>,
    guard: Guard,
    signer: Signer,
    /// The headers of every request, secrets among them.
    headers: HeaderMap,
    /// The secrets as they were read.
    exposed: Vec<Exposed>,
    /// Requests in flight for each host.
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// The one receiver has answered 410.
    gone: AtomicBool,
}

impl HttpSink {
    async fn deliver(&self, delivery: &Delivery) -> Result<(), Failure> {
        self.request(self.prepare(delivery)?).await
    }

    fn prepare(&self, delivery: &Delivery) -> Result<Request<Full<Bytes>>, Failure> {
        let options = &self.shared.options;
        let url = options.url_for(delivery)?;
        let message = options.envelope.wrap(delivery, Binding::Http)?;
        let id =
            message.headers.iter().find(|(name, _)| name == names::DEDUP_ID).map_or("", |(_, value)| value);
        let mut headers = HeaderMap::new();
        for (name, value) in message.pairs() {
            add(&mut headers, name, value)?;
        }
        self.signed(url, id, headers, message.body.clone())
    }

    /// A request with everything that receivers tell repeats and strangers by.
    fn signed(
        &self,
        url: Uri,
        id: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let shared = &*self.shared;
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        add(&mut headers, "webhook-id", id)?;
        add(&mut headers, "idempotency-key", id)?;
        add(&mut headers, "webhook-timestamp", &timestamp.to_string())?;
        if let Some(signature) = shared.signer.sign(id, timestamp, &body) {
            add(&mut headers, "webhook-signature", &signature)?;
        }
        for (name, value) in &shared.headers {
            headers.insert(name, value.clone());
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::from(shared.options.method);
        *request.uri_mut() = url;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Makes one request and judges its answer.
    async fn request(&self, request: Request<Full<Bytes>>) -> Result<(), Failure> {
        let shared = &*self.shared;
        let options = &shared.options;
        let url = request.uri();
        shared.guard.check_url(url).map_err(|refused| answer::of_refusal(&refused, options.host_reach()))?;
        let host = url.authority().map(ToString::to_string).unwrap_or_default();
        let places = shared.places_at(&host);
        // Closed by nobody; the wait is bounded by the requests that hold the places, each with its limit.
        let _place = places.acquire().await;
        let answer = match timeout(options.time_limit.get(), shared.client.request(request)).await {
            Err(_) => {
                return Err(Failure::retry(format!("{host} gave no answer within {}", options.time_limit)));
            }
            Ok(Err(error)) => return Err(answer::of_error(&error, &host, options.host_reach())),
            Ok(Ok(answer)) => answer,
        };
        let (head, body) = answer.into_parts();
        // The status is the answer. A body that does not end in time costs its connection and nothing else.
        let _ = timeout(ANSWER_TIME_MAX, drain(body)).await;
        let result = answer::of_status(head.status, &head.headers, &host, options.url_reach());
        if head.status.as_u16() == 410 && options.url_reach() == Reach::All {
            shared.gone.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl Shared {
    fn places_at(&self, host: &str) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = hosts.get(host) {
            return Arc::clone(places);
        }
        if hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, places| Arc::strong_count(places) > 1);
        }
        let places = Arc::new(Semaphore::new(self.options.concurrency.get()));
        hosts.insert(host.to_owned(), Arc::clone(&places));
        places
    }
}

/// Reads what is left of an answer, up to a bound.
async fn drain(mut body: Incoming) {
    let mut left = ANSWER_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// The envelope has made names and values fit for HTTP. So many that no request could carry them are refused for good.
fn add(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Failure> {
    let wrong = || Failure::permanent(format!("HTTP cannot carry the header `{}`", name.escape_debug()));
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
    let value = HeaderValue::from_str(value).map_err(|_| wrong())?;
    headers.try_append(header, value).map(|_| ()).map_err(|_| wrong())
}

impl Sink for HttpSink {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        if self.shared.gone.load(Ordering::Relaxed) {
            let host = self.shared.options.to_string();
            return per_key::none_sent(&batch, Failure::unavailable(answer::gone(&host)));
        }
        if let Some(events_max) = self.shared.options.batch {
            return batches::send(self, &batch, events_max.get()).await;
        }
        per_key::send(&batch, IN_FLIGHT_MAX, pending(), |delivery| async move {
            match self.deliver(delivery).await {
                Ok(()) => Outcome::Ack,
                Err(failure) => sizes::outcome(failure),
            }
        })
        .await
    }

    fn keeps_order(&self) -> bool {
        true
    }
}
