//! Webhooks: each event is a request, signed as Standard Webhooks says.
//!
//! *Ack.* The receiver has answered with a status from 200 to 299 within the time limit. Redirects are not
//! followed. What other statuses mean stands in `answer`; the body of an answer is read for as much as a
//! connection needs to be used again. How it begins is kept with an attempt that failed, and reaches no log.
//!
//! *Order.* Many keys are in flight at once, up to `concurrency` requests for each host, and the events of
//! one key one after the other (`per_key`). With `batch` several events are one request, and one request is
//! in flight at a time.
//!
//! *Repeats.* An answer that is lost makes the event come again, with the same `webhook-id` and
//! `idempotency-key`.
//!
//! *Where to.* [`guard`](self) refuses what is no public address unless `allow` names it, see [`Allowed`].

mod answer;
#[cfg(feature = "bench")]
pub(crate) mod bare;
mod batches;
mod guard;
mod options;
mod signature;
mod target;

use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use postrider_core::{Delivery, Failure, Outcome, Sink};
use tokio::sync::Semaphore;
use tokio::time::timeout;

pub use guard::{Allowed, HostPattern};
pub use options::{HttpMethod, HttpOptions};
pub use target::HttpUrl;

use self::answer::Reach;
use self::guard::{Guard, Refused};
use self::signature::Signer;
use self::target::Target;
use crate::Binding;
use crate::batch::per_key;
use crate::batch::said::SAID_BYTES_MAX;
use crate::batch::sizes;
use crate::connect::secret::Exposed;
use crate::envelope::names;

/// Events of one batch that are on their way at a time, over all hosts.
const IN_FLIGHT_MAX: usize = 256;
/// Bytes of an answer's body that are read, and for how long, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Hosts whose requests are counted. Beyond it those without a request are forgotten.
const HOSTS_MAX: usize = 1024;

/// Headers for which a request has room at once.
const HEADERS_USUAL: usize = 16;
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
static OUR_NAMES: [HeaderName; names::ALL.len()] = {
    let [a, b, c, d, e, f, g, h] = names::ALL;
    [
        HeaderName::from_static(a),
        HeaderName::from_static(b),
        HeaderName::from_static(c),
        HeaderName::from_static(d),
        HeaderName::from_static(e),
        HeaderName::from_static(f),
        HeaderName::from_static(g),
        HeaderName::from_static(h),
    ]
};

/// Sends deliveries to webhooks. Clones share their connections and their limits.
#[derive(Debug, Clone)]
pub struct HttpSink {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: HttpOptions,
    /// The URL as it was read.
    target: Target,
    client: Client<HttpsConnector<Guard>, Full<Bytes>>,
    guard: Guard,
    signer: Signer,
    /// The headers of every request, secrets among them.
    headers: HeaderMap,
    /// The secrets as they were read.
    exposed: Vec<Exposed>,
    /// Where all requests go, if that is the same for all events.
    sole: Option<Receiver>,
    /// Requests in flight for each host.
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// The one receiver has answered 410.
    gone: AtomicBool,
}

/// Where a request goes.
#[derive(Debug, Clone)]
struct Receiver {
    url: Uri,
    /// As it is told: where an event has named the host, by the template.
    shown: String,
    /// For requests to its host.
    places: Arc<Semaphore>,
}

impl HttpSink {
    async fn deliver(&self, delivery: &Delivery) -> Result<(), Failure> {
        self.request(self.prepare(delivery)?).await
    }

    fn prepare(&self, delivery: &Delivery) -> Result<Request<Full<Bytes>>, Failure> {
        let options = &self.shared.options;
        let url = match &self.shared.sole {
            Some(sole) => sole.url.clone(),
            None => self.shared.target.url_for(delivery)?,
        };
        let message = options.envelope.wrap(delivery, Binding::Http)?;
        let id =
            message.headers.iter().find(|(name, _)| name == names::DEDUP_ID).map_or("", |(_, value)| value);
        let mut headers = HeaderMap::with_capacity(HEADERS_USUAL);
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
        let no_id = |_| Failure::permanent("HTTP cannot carry the deduplication id of the event");
        let id_value = HeaderValue::from_str(id).map_err(no_id)?;
        headers.insert(WEBHOOK_ID, id_value.clone());
        headers.insert(IDEMPOTENCY_KEY, id_value);
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(timestamp));
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
        let elsewhere;
        let Receiver { shown, places, .. } = if let Some(sole) = &shared.sole {
            sole
        } else {
            elsewhere = shared.receiver(request.uri())?;
            &elsewhere
        };
        // Never closed; the wait is bounded by the requests that hold the places, each with its limit.
        let _place = places.acquire().await;
        let answer = match timeout(options.time_limit.get(), shared.client.request(request)).await {
            Err(_) => {
                return Err(Failure::retry(format!("{shown} gave no answer within {}", options.time_limit)));
            }
            Ok(Err(error)) => return Err(answer::of_error(&error, shown, shared.target.host_reach())),
            Ok(Ok(answer)) => answer,
        };
        let (head, body) = answer.into_parts();
        // The status is the answer. A body that does not end in time costs its connection and nothing else.
        let mut beginning = Vec::new();
        if !body.is_end_stream() {
            let _ = timeout(ANSWER_TIME_MAX, drain(body, &mut beginning)).await;
        }
        let receiver = format!("{} to {shown}", Method::from(options.method));
        let reach = shared.target.url_reach();
        let result = answer::of_status(head.status, &head.headers, &receiver, reach, &beginning);
        if head.status.as_u16() == 410 && reach == Reach::All {
            shared.gone.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl Shared {
    /// Refused if it is not to be spoken to.
    fn receiver(&self, url: &Uri) -> Result<Receiver, Failure> {
        let reach = self.target.host_reach();
        let refusal = |refused: &_| answer::of_refusal(refused, reach);
        self.guard.check_url(url).map_err(|refused| refusal(&refused))?;
        let name = url.host().unwrap_or_default();
        let hosts = &self.options.hosts;
        if !hosts.is_empty() && !hosts.iter().any(|listed| listed.matches(name)) {
            return Err(refusal(&Refused::not_listed(name)));
        }
        let host = url.authority().map(ToString::to_string).unwrap_or_default();
        let places = self.places_at(&host);
        let shown = if reach == Reach::All { host } else { self.target.authority() };
        Ok(Receiver { url: url.clone(), shown, places })
    }

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

/// Reads what is left of an answer, up to a bound, and keeps how it begins: a byte more than is shown, so
/// that one knows.
async fn drain(mut body: Incoming, beginning: &mut Vec<u8>) {
    let mut left = ANSWER_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let data = frame.data_ref().map_or(&[][..], |data| &data[..]);
        let room = (SAID_BYTES_MAX + 1).saturating_sub(beginning.len());
        beginning.extend_from_slice(&data[..data.len().min(room)]);
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// The envelope has made names and values fit for HTTP. So many that no request could carry them are refused for good.
fn add(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Failure> {
    let wrong = || Failure::permanent(format!("HTTP cannot carry the header `{}`", name.escape_debug()));
    // Those of ours need no copy.
    let header = match OUR_NAMES.iter().find(|ours| ours.as_str() == name) {
        Some(ours) => ours.clone(),
        None => HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?,
    };
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
        // More than have a place would only wait for one, with all that they hold.
        let sole = self.shared.sole.as_ref();
        let at_once_max = sole.map_or(IN_FLIGHT_MAX, |_| self.shared.options.concurrency.get());
        per_key::send(&batch, at_once_max, pending(), |delivery| async move {
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
