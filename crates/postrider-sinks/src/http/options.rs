//! What a webhook needs to know, and how it is opened and checked.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use postrider_core::{Delivery, Error, ErrorKind, Failure, Result};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use tokio::time::timeout;
use tower_service::Service;

use super::answer::Reach;
use super::guard::{Allowed, Guard};
use super::signature::Signer;
use super::{HttpSink, Shared, answer, batches};
use crate::secret::Exposed;
use crate::spec::SinkOptions;
use crate::{Envelope, Secret, Template, TimeLimit};

/// A connection that was not used for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Where and how to send webhooks.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HttpOptions {
    /// The URL of each event. What stands for a placeholder is percent-encoded.
    pub url: Template,
    /// The method.
    #[serde(default)]
    pub method: HttpMethod,
    /// More headers for every request, such as `authorization`. A value may be a secret's place, `env:NAME` or `file:/path`.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// Secrets that requests are signed with as Standard Webhooks says, newest first: `whsec_…`. Several while receivers change.
    #[serde(default)]
    pub secrets: Vec<Secret>,
    /// How events are wrapped.
    #[serde(default)]
    pub envelope: Envelope,
    /// Sends up to so many events as one JSON array. The URL must be the same for all, the envelope `json` or
    /// `cloudevents-structured`.
    #[serde(default)]
    pub batch: Option<NonZeroUsize>,
    /// Requests in flight at a time for each host.
    #[serde(default = "concurrency")]
    pub concurrency: NonZeroUsize,
    /// Hosts and networks that may be spoken to though they are not public; hosts in it also without TLS.
    #[serde(default)]
    pub allow: Vec<Allowed>,
    /// A file with the certificates to trust instead of the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How long a request may take, from the connection to the answer's status.
    #[serde(default = "time_limit")]
    pub time_limit: TimeLimit,
}

/// The methods that a webhook may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum HttpMethod {
    /// The usual one.
    #[default]
    Post,
    /// For receivers that store under the URL.
    Put,
    /// For receivers that change what is under the URL.
    Patch,
}

impl From<HttpMethod> for Method {
    fn from(method: HttpMethod) -> Self {
        match method {
            HttpMethod::Post => Self::POST,
            HttpMethod::Put => Self::PUT,
            HttpMethod::Patch => Self::PATCH,
        }
    }
}

fn concurrency() -> NonZeroUsize {
    const { NonZeroUsize::new(16).unwrap() }
}

fn time_limit() -> TimeLimit {
    TimeLimit::seconds(30)
}

impl SinkOptions for HttpOptions {
    type Sink = HttpSink;
    const SCHEMES: &'static [&'static str] = &["http", "https"];

    /// The URL, as it is.
    fn from_text(text: &str) -> Result<Self> {
        let url = text.parse().map_err(|error: Error| {
            // It repeats the text, in which there may be a password or a token.
            let error = error.to_string();
            let reason = error.rsplit_once("`, column ").map_or("it is no template", |(_, reason)| reason);
            Error::invalid(format!("the URL of a webhook, column {reason}"))
        })?;
        Ok(Self {
            url,
            method: HttpMethod::default(),
            headers: BTreeMap::new(),
            secrets: Vec::new(),
            envelope: Envelope::default(),
            batch: None,
            concurrency: concurrency(),
            allow: Vec::new(),
            ca_file: None,
            time_limit: time_limit(),
        })
    }

    /// Connects to nothing yet, so that a receiver that is down delays its own events alone.
    async fn open(&self) -> Result<HttpSink> {
        let guard = Guard::new(&self.allow);
        self.check_url(&guard)?;
        batches::check(self)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(self.concurrency.get())
            .pool_timer(TokioTimer::new())
            .build(self.connector(guard.clone())?);
        let mut shared = Shared {
            client,
            guard,
            signer: Signer::read(&self.secrets)?,
            headers: self.own_headers()?,
            exposed: self.exposed()?,
            sole: None,
            hosts: std::sync::Mutex::default(),
            gone: AtomicBool::new(false),
            options: self.clone(),
        };
        if let Some(constant) = self.url.as_constant() {
            let url = constant.parse().map_err(|_| no_url())?;
            let refused = |failure: Failure| Error::invalid(failure.message().to_owned());
            shared.sole = Some(shared.receiver(&url).map_err(refused)?);
        }
        Ok(HttpSink { shared: Arc::new(shared) })
    }

    /// Secrets that cannot be read now change nothing: those that were read before may still be good.
    fn is_stale(&self, sink: &HttpSink) -> bool {
        let changed = self.exposed().is_ok_and(|now| now != sink.shared.exposed);
        changed || sink.shared.gone.load(Ordering::Relaxed)
    }

    /// Connects, with TLS where the URL says so, and sends nothing.
    async fn check(&self) -> Result<Vec<String>> {
        self.open().await?;
        if self.host_reach() == Reach::Some {
            return Ok(vec![format!("sends to {self}, whose host is known only with each event")]);
        }
        let url = self.host_url()?;
        let host = url.authority().map(ToString::to_string).unwrap_or_default();
        let connect = self.connector(Guard::new(&self.allow))?.call(url);
        let unavailable = |text: String| Error::new(ErrorKind::Unavailable, text);
        match timeout(self.time_limit.get(), connect).await {
            Err(_) => Err(unavailable(format!("{host} cannot be connected to within {}", self.time_limit))),
            Ok(Err(error)) => {
                Err(unavailable(answer::of_error(&*error, &host, Reach::All).message().to_owned()))
            }
            Ok(Ok(_)) => Ok(vec![format!("reaches {host}"), format!("sends to {self}")]),
        }
    }
}

impl HttpOptions {
    /// Whether what is wrong with the URL is wrong for all events.
    pub(super) fn url_reach(&self) -> Reach {
        if self.url.is_constant() { Reach::All } else { Reach::Some }
    }

    /// The same of its host.
    pub(super) fn host_reach(&self) -> Reach {
        if self.authority_text().contains('{') { Reach::Some } else { Reach::All }
    }

    fn authority_text(&self) -> String {
        let text = self.url.to_string();
        let rest = text.split_once("://").map_or("", |(_, rest)| rest);
        rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned()
    }

    /// Without its path, which may hold placeholders, whose braces no URL may have.
    fn host_url(&self) -> Result<Uri> {
        let text = self.url.to_string();
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        format!("{scheme}://{}/", self.authority_text()).parse().map_err(|_| no_url())
    }

    /// The URL of one event. What comes from the event stays one piece of it.
    pub(super) fn url_for(&self, delivery: &Delivery) -> Result<Uri, Failure> {
        let text = self.url.render_escaped(delivery, escape)?;
        text.parse().map_err(|_| {
            Failure::permanent("what the sink's `url` becomes with this event is no URL: change it, or emit the event otherwise")
        })
    }

    fn check_url(&self, guard: &Guard) -> Result<()> {
        let text = self.url.to_string();
        if text.contains('#') {
            return Err(Error::invalid(
                "the `url` of a webhook has a fragment, which is never sent: leave out the # and the rest",
            ));
        }
        if self.host_reach() == Reach::Some {
            let scheme = text.split_once("://").map(|(scheme, _)| scheme);
            return if matches!(scheme, Some("https" | "http")) { Ok(()) } else { Err(no_url()) };
        }
        let url = self.host_url()?;
        if let Some(constant) = self.url.as_constant() {
            constant.parse::<Uri>().map_err(|_| no_url())?;
        }
        guard
            .check_url(&url)
            .map_err(|refused| Error::invalid(format!("a webhook cannot be sent: {refused}")))
    }

    /// All secrets as they are now.
    fn exposed(&self) -> Result<Vec<Exposed>> {
        self.headers.values().chain(&self.secrets).map(Secret::read).collect()
    }

    fn own_headers(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        let agent = concat!("postrider/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        for (name, secret) in &self.headers {
            let shown = name.escape_debug();
            let header = HeaderName::from_str(name).map_err(|_| {
                Error::invalid(format!("`{shown}` is no name of a header: correct `headers`"))
            })?;
            let decides = ["content-length", "transfer-encoding", "connection", "host", "content-type"];
            if decides.contains(&header.as_str()) || header.as_str().starts_with("webhook-") {
                return Err(Error::invalid(format!(
                    "the header `{shown}` is not for config to set: remove it from `headers`"
                )));
            }
            let mut value = HeaderValue::from_str(secret.read()?.expose()).map_err(|_| {
                Error::invalid(format!(
                    "the value of the header `{shown}` has what no header can: use printable ASCII"
                ))
            })?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        Ok(headers)
    }

    fn connector(&self, guard: Guard) -> Result<HttpsConnector<Guard>> {
        let mut roots = RootCertStore::empty();
        match &self.ca_file {
            Some(path) => {
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| {
                        Error::invalid(format!(
                            "a certificate in `{}` cannot be used: {error}",
                            path.display()
                        ))
                    })?;
                }
            }
            None => {
                // Systems hold some that nobody can read; whoever needs those is told by the handshake.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::new(ErrorKind::Internal, format!("TLS cannot be set up: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(guard))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |error: &dyn fmt::Display| {
        Error::invalid(format!("the `ca_file` of a webhook, `{}`, cannot be read: {error}", path.display()))
    };
    let all = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| wrong(&error))?;
    if all.is_empty() { Err(wrong(&"it holds no certificate")) } else { Ok(all) }
}

fn no_url() -> Error {
    Error::invalid("the `url` of a webhook is no URL: write https://HOST/PATH")
}

/// Keeps what an event brings from becoming another part of the URL, a step up in its path among them.
fn escape(value: &str) -> String {
    if !value.is_empty() && value.bytes().all(|byte| byte == b'.') {
        return "%2E".repeat(value.len());
    }
    let mut escaped = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// Without the query, in which people put tokens.
impl fmt::Display for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.url.to_string();
        match text.split_once('?') {
            Some((shown, _)) => write!(f, "{shown}?…"),
            None => f.write_str(&text),
        }
    }
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("url", &self.to_string())
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_core::Key;

    use super::*;
    use crate::sample::delivery;

    fn options(url: &str) -> HttpOptions {
        HttpOptions::from_text(url).unwrap()
    }

    #[test]
    fn what_an_event_brings_stays_one_piece_of_the_url() {
        let with_key = |key: &str| {
            let mut delivery = delivery(1, b"");
            Arc::make_mut(&mut delivery.event).key = Some(Key::new(key));
            delivery
        };
        let url =
            |template: &str, key: &str| options(template).url_for(&with_key(key)).map(|url| url.to_string());
        assert_eq!(url("https://h/a/{key}?k={key}", "1").unwrap(), "https://h/a/1?k=1");
        assert_eq!(
            url("https://h/a/{key}/b", "../x?y#z&ü").unwrap(),
            "https://h/a/..%2Fx%3Fy%23z%26%C3%BC/b"
        );
        assert_eq!(url("https://h/a/{key}", "..").unwrap(), "https://h/a/%2E%2E");
        assert_eq!(url("https://{key}.h/", "evil.example/x").ok(), None, "no part of a host holds an escape");
        assert_eq!(url("https://{key}/", "user@evil.example").ok(), None);
    }

    #[tokio::test]
    async fn urls_that_cannot_work_are_refused_when_opened() {
        for bad in [
            "https://",
            "https:///x",
            "http://example.com/",
            "https://u:canary@h/",
            "https://h/#x",
            "https://h /",
            "https://h/a b",
        ] {
            let error = options(bad).open().await.err().unwrap_or_else(|| panic!("{bad}")).to_string();
            assert!(!error.contains("canary"), "{error}");
        }
        for good in ["https://example.com/a/{type}?x={key|}", "https://{header.host}/x", "https://127.0.0.1/"]
        {
            options(good).open().await.unwrap();
        }
        let mut bad = options("https://h/");
        bad.headers.insert("Content-Length".to_owned(), Secret::here("1"));
        assert!(bad.open().await.is_err());
        bad.headers = BTreeMap::from([("x".to_owned(), Secret::here("a\r\nb: canary"))]);
        assert!(!bad.open().await.unwrap_err().to_string().contains("canary"));
    }

    #[test]
    fn tokens_and_secrets_are_not_shown() {
        let read = r#"{"url": "https://h/x?token=canary", "headers": {"authorization": "canary"}, "secrets": ["canary"]}"#;
        let options: HttpOptions = serde_json::from_str(read).unwrap();
        assert!(!format!("{options} {options:?}").contains("canary"));
        assert_eq!(options.to_string(), "https://h/x?…");
        let error = HttpOptions::from_text("https://u:canary@h/{tpye}").unwrap_err().to_string();
        assert!(
            error.contains("column 20: there is no placeholder {tpye}") && !error.contains("canary"),
            "{error}"
        );
    }
}
