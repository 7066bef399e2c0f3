//! What a webhook needs to know, and how it is opened and checked.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use postrider_core::{Error, ErrorKind, Failure, Result};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use tokio::time::timeout;
use tower_service::Service;

use super::answer::Reach;
use super::guard::{Allowed, Guard, HostPattern};
use super::signature::Signer;
use super::target::{HttpUrl, Target, no_url};
use super::{HttpSink, Shared, answer, batches};
use crate::connect::secret::Exposed;
use crate::options::SinkOptions;
use crate::{Envelope, Secret, TimeLimit};

/// A connection that was not used for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Where and how to send webhooks.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HttpOptions {
    /// The URL of each event, or where that is written: `env:NAME` or `file:/path`. What stands for a placeholder is
    /// percent-encoded.
    pub url: HttpUrl,
    /// The method.
    #[serde(default)]
    pub method: HttpMethod,
    /// More headers for every request, such as `authorization`. A value may be a secret's place, `env:NAME`
    /// or `file:/path`.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// Secrets that requests are signed with as Standard Webhooks says, newest first: `whsec_…`. Several
    /// while receivers change.
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
    /// Hosts that requests may go to, by their names, or as `*.example.com` all below one; needed where
    /// events choose the host and requests carry secrets. Any if nothing is listed.
    #[serde(default)]
    pub hosts: Vec<HostPattern>,
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
        let url = HttpUrl::parse(text)?;
        Ok(Self {
            url,
            method: HttpMethod::default(),
            headers: BTreeMap::new(),
            secrets: Vec::new(),
            envelope: Envelope::default(),
            batch: None,
            concurrency: concurrency(),
            hosts: Vec::new(),
            allow: Vec::new(),
            ca_file: None,
            time_limit: time_limit(),
        })
    }

    /// Connects to nothing yet, so that a receiver that is down delays its own events alone.
    async fn open(&self) -> Result<HttpSink> {
        let guard = Guard::new(&self.allow);
        let target = self.url.read()?;
        target.check(&guard)?;
        self.check_hosts(&target)?;
        batches::check(self, &target)?;
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
            target: target.clone(),
            options: self.clone(),
        };
        if let Some(constant) = target.as_constant() {
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
        let target = self.url.read()?;
        if target.host_reach() == Reach::Some {
            return Ok(vec![format!("sends to {self}, whose host is known only with each event")]);
        }
        let url = target.host_url()?;
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
    /// What no event may choose: a host of its own, where requests carry secrets.
    fn check_hosts(&self, target: &Target) -> Result<()> {
        let has_secrets =
            !self.headers.is_empty() || !self.secrets.is_empty() || matches!(self.url, HttpUrl::Elsewhere(_));
        if target.host_reach() == Reach::Some && has_secrets && self.hosts.is_empty() {
            return Err(Error::invalid(
                "a webhook whose host comes from the event would show its secrets to any host that an event names: list the hosts \
                 in `hosts`, or use no `headers` and `secrets`",
            ));
        }
        Ok(())
    }

    /// All secrets as they are now.
    fn exposed(&self) -> Result<Vec<Exposed>> {
        let url = match &self.url {
            HttpUrl::Here(_) => None,
            HttpUrl::Elsewhere(place) => Some(place),
        };
        self.headers.values().chain(&self.secrets).chain(url).map(Secret::read).collect()
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
                // Systems hold some that cannot be parsed; a handshake that needs one of them tells.
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

/// Without its path and query, in which people put tokens.
impl fmt::Display for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
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
    use super::*;

    fn options(url: &str) -> HttpOptions {
        HttpOptions::from_text(url).unwrap()
    }

    #[tokio::test]
    async fn urls_that_cannot_work_are_refused_when_opened() {
        for bad in
            ["https://", "https:///x", "http://example.com/", "https://h/#x", "https://h /", "https://h/a b"]
        {
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

    #[tokio::test]
    async fn an_event_does_not_choose_who_sees_a_secret() {
        let read = |more: &str| -> HttpOptions {
            serde_json::from_str(&format!(r#"{{"url": "https://{{header.host}}/x"{more}}}"#)).unwrap()
        };
        for bad in [
            r#", "headers": {"authorization": "canary"}"#,
            r#", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]"#,
        ] {
            let error = read(bad).open().await.unwrap_err().to_string();
            assert!(error.contains("list the hosts in `hosts`") && !error.contains("canary"), "{error}");
            read(&format!(r#"{bad}, "hosts": ["*.example.com"]"#)).open().await.unwrap();
        }
        read("").open().await.unwrap();
    }

    #[test]
    fn tokens_and_secrets_are_not_shown() {
        let read = r#"{"url": "https://h/x?token=canary", "headers": {"authorization": "canary"}, "secrets": ["canary"]}"#;
        let options: HttpOptions = serde_json::from_str(read).unwrap();
        assert!(!format!("{options} {options:?}").contains("canary"));
        assert_eq!(options.to_string(), "https://h/…");
        let error = HttpOptions::from_text("https://h/canary/{tpye}").unwrap_err().to_string();
        assert!(
            error.contains("column 18: there is no placeholder {tpye}") && !error.contains("canary"),
            "{error}"
        );
    }
}
