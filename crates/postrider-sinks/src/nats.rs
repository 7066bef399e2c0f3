//! NATS JetStream: each event is published and acked by the stream that stores it.
//!
//! *Ack.* The stream has stored the event, as durably as its storage and replicas say, or had stored it
//! before: the deduplication id is the `Nats-Msg-Id`, by which the stream drops repeats within its duplicate
//! window. It names the subscription too, because a stream knows one id once, however many subscriptions
//! publish to it (`repeats`).
//!
//! *Order.* All keys of a batch are in flight at once, and the events of one key one after the other
//! (`per_key`): a stream may refuse one event and take the next, and acks come too late to hold that one
//! back.
//!
//! *Connection.* It is made when first needed. Once lost it is not used again: events in flight fail at once,
//! and the next batch makes a new connection with secrets that are read again. So the client's buffer never
//! sends an event long after it was given up, except an event that it already held when the connection broke;
//! the `Nats-Msg-Id` covers that.

mod acks;
#[cfg(feature = "bench")]
pub(crate) mod bare;
mod failures;
mod repeats;
mod sending;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::header::{HeaderMap, HeaderName, HeaderValue, NATS_EXPECTED_STREAM};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use bytes::Bytes;
use postrider_core::{Delivery, Error, Failure, Outcome, Result, Sink};
use serde::Deserialize;
use tokio::sync::watch;

use self::acks::Acks;
use self::repeats::Repeats;
use crate::batch::per_key;
use crate::connect::connection_slot::ConnectionSlot;
use crate::connect::login::Login;
use crate::envelope::names;
use crate::options::SinkOptions;
use crate::{Binding, Envelope, Secret, SinkUrl, Template, TimeLimit};

/// Events of one batch that wait for their acks at a time.
const IN_FLIGHT_MAX: usize = 2048;
/// The line that begins a publish has at most 4096 bytes, in which the inbox for the ack stands too.
const SUBJECT_BYTES_MAX: usize = 3072;
/// How often a connection that does nothing is tried.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const USUAL_PORT: u16 = 4222;
/// By which a stream recognises repeats.
const DEDUP_HEADER: &str = "Nats-Msg-Id";

/// Where and how to publish to NATS JetStream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NatsOptions {
    /// Servers of one cluster, each as `HOST` or `HOST:PORT`.
    pub servers: Vec<String>,
    /// The subject of each event.
    pub subject: Template,
    /// The stream that must take the events; without it, whichever listens on the subject.
    #[serde(default)]
    pub stream: Option<String>,
    /// Who logs in with a password.
    #[serde(default)]
    pub user: Option<String>,
    /// The password.
    #[serde(default)]
    pub password: Option<Secret>,
    /// A token to log in with.
    #[serde(default)]
    pub token: Option<Secret>,
    /// The seed of an NKey to log in with.
    #[serde(default)]
    pub nkey: Option<Secret>,
    /// The content of a `.creds` file to log in with, a JWT and its seed: `file:/path`.
    #[serde(default)]
    pub credentials: Option<Secret>,
    /// Whether the connection must be encrypted. It also is where the server asks for it.
    #[serde(default)]
    pub tls: bool,
    /// Whether to log in without encryption at a server that is not this machine.
    #[serde(default)]
    pub login_in_clear: bool,
    /// A file with the certificates to trust instead of the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How events are wrapped.
    #[serde(default)]
    pub envelope: Envelope,
    /// How long to wait for a connection, and for each ack.
    #[serde(default = "time_limit")]
    pub time_limit: TimeLimit,
}

fn time_limit() -> TimeLimit {
    TimeLimit::seconds(10)
}

impl SinkOptions for NatsOptions {
    type Sink = NatsSink;
    const SCHEMES: &'static [&'static str] = &["nats", "tls"];

    /// `nats://HOST/SUBJECT?stream=NAME&envelope=WORD`, `tls://…` for an encrypted connection. A login without a
    /// password is a token.
    fn from_text(text: &str) -> Result<Self> {
        let mut url = SinkUrl::parse(text)?;
        if url.path.is_empty() {
            return Err(Error::invalid("sink `nats:…` needs a subject: write nats://HOST/SUBJECT"));
        }
        let stream = url.take_option("stream");
        let envelope = url.take_option("envelope").map(|word| word.parse()).transpose()?.unwrap_or_default();
        let login_in_clear = url.take_flag("login_in_clear")?;
        url.no_more_options("stream, envelope or login_in_clear")?;
        let (user, token) = match (url.user.take(), &url.password) {
            (Some(token), None) => (None, Some(Secret::here(token))),
            (user, _) => (user, None),
        };
        Ok(Self {
            servers: url.addresses(USUAL_PORT),
            subject: url.path.parse()?,
            stream,
            user,
            password: url.password,
            token,
            nkey: None,
            credentials: None,
            tls: url.scheme == "tls",
            login_in_clear,
            ca_file: None,
            envelope,
            time_limit: time_limit(),
        })
    }

    /// Connects to nothing yet, so that a broker that is down delays its own events alone.
    async fn open(&self) -> Result<NatsSink> {
        self.addresses()?;
        self.connect_options()?;
        let is_given =
            [&self.password, &self.token, &self.nkey, &self.credentials].iter().any(|one| one.is_some());
        Login {
            sink: "nats",
            servers: &self.servers,
            is_given: is_given || self.user.is_some(),
            tls: self.tls,
            may_be_clear: self.login_in_clear,
        }
        .check()?;
        if let Some(reason) = self.subject.as_constant().and_then(why_no_subject) {
            return Err(Error::invalid(format!(
                "the `subject` of sink `nats` is none to publish to: {reason}"
            )));
        }
        let bad = |c: char| !c.is_ascii_graphic() || ".*>/\\".contains(c);
        if self.stream.as_ref().is_some_and(|stream| stream.is_empty() || stream.contains(bad)) {
            return Err(Error::invalid("the `stream` of sink `nats` is no name of a stream: correct it"));
        }
        Ok(NatsSink {
            shared: Arc::new(Shared {
                options: self.clone(),
                connection: ConnectionSlot::default(),
                repeats: Repeats::default(),
            }),
        })
    }

    async fn check(&self) -> Result<Vec<String>> {
        let sink = self.open().await?;
        let connection = sink.connection().await.map_err(failures::as_error)?;
        let mut found = vec![format!("reaches NATS at {}", self.servers.join(", "))];
        let context = async_nats::jetstream::new(connection.client.clone());
        let stream = match (&self.stream, self.subject.as_constant()) {
            (Some(stream), _) => Some(stream.clone()),
            (None, None) => None,
            (None, Some(subject)) => {
                let stream = context.stream_by_subject(subject).await;
                Some(stream.map_err(|error| failures::no_stream(subject, &error))?)
            }
        };
        found.push(match &stream {
            None => format!("streams are looked up for each subject of `{}`", self.subject),
            Some(name) => {
                let stream = context.get_stream(name).await;
                let stream = stream.map_err(|error| failures::unknown_stream(name, &error))?;
                let subjects = stream.cached_info().config.subjects.join(", ");
                format!("publishes into the stream `{name}`, which listens on {subjects}")
            }
        });
        Ok(found)
    }
}

impl NatsOptions {
    fn addresses(&self) -> Result<Vec<ServerAddr>> {
        if self.servers.is_empty() {
            return Err(Error::invalid("sink `nats` needs a server: write servers = [\"HOST:4222\"]"));
        }
        let scheme = if self.tls { "tls" } else { "nats" };
        let parse = |server: &String| {
            // Not repeated in the error, because the config may hold a whole URL with its password there.
            let wrong =
                || Error::invalid("a server of sink `nats` is no address: write it as HOST or HOST:PORT");
            if server.contains(['@', '/']) {
                return Err(wrong());
            }
            format!("{scheme}://{server}").parse().map_err(|_| wrong())
        };
        self.servers.iter().map(parse).collect()
    }

    /// Reads the secrets.
    fn connect_options(&self) -> Result<ConnectOptions> {
        let read = |secret: &Option<Secret>| secret.as_ref().map(Secret::read).transpose();
        let password = read(&self.password)?;
        let (token, nkey, credentials) = (read(&self.token)?, read(&self.nkey)?, read(&self.credentials)?);
        let ways = [self.user.is_some(), token.is_some(), nkey.is_some(), credentials.is_some()];
        if ways.iter().filter(|way| **way).count() > 1 {
            return Err(Error::invalid(
                "sink `nats` can log in one way: give one of `user`, `token`, `nkey` and `credentials`",
            ));
        }
        if password.is_some() && self.user.is_none() {
            return Err(Error::invalid("sink `nats` has a password and no user: give `user` as well"));
        }
        let mut options = ConnectOptions::new();
        if let Some(user) = &self.user {
            let password = password.map(|password| password.expose().to_owned()).unwrap_or_default();
            options = options.user_and_password(user.clone(), password);
        }
        if let Some(token) = token {
            options = options.token(token.expose().to_owned());
        }
        if let Some(seed) = nkey {
            options = options.nkey(seed.expose().to_owned());
        }
        if let Some(credentials) = credentials {
            // The error would repeat a part of it.
            options = options.credentials(credentials.expose()).map_err(|_| {
                Error::invalid(
                    "the `credentials` of sink `nats` are not those of a .creds file: make a new one",
                )
            })?;
        }
        if let Some(path) = &self.ca_file {
            options = options.add_root_certificates(path.clone());
        }
        Ok(options
            .name("postrider")
            .require_tls(self.tls)
            .no_echo()
            .ping_interval(PING_INTERVAL)
            .connection_timeout(self.time_limit.get())
            .request_timeout(Some(self.time_limit.get()))
            // Every server once. Zero would mean for ever.
            .max_reconnects(Some(self.servers.len().max(1))))
    }
}

impl fmt::Display for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "tls" } else { "nats" };
        write!(f, "{scheme}://{}/{}", self.servers.join(","), self.subject)?;
        match &self.stream {
            Some(stream) => write!(f, "?stream={stream}"),
            None => Ok(()),
        }
    }
}

/// Publishes deliveries to JetStream. Clones share one connection.
#[derive(Debug, Clone)]
pub struct NatsSink {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: NatsOptions,
    connection: ConnectionSlot<Arc<Connection>>,
    repeats: Repeats,
}

#[derive(Debug)]
struct Connection {
    client: Client,
    acks: Acks,
    state: watch::Receiver<State>,
}

/// What the client has told of its connection.
#[derive(Debug, Clone, Default)]
struct State {
    lost: bool,
    /// The last error of the server that belongs to no publish, such as a missing permission.
    said: Option<String>,
}

impl NatsSink {
    /// How many events a stream has dropped as repeats though they were on their first attempt: something
    /// else has published with their ids, or they had been delivered before a crash or a seek.
    pub fn repeats_on_first_attempts(&self) -> u64 {
        self.shared.repeats.told()
    }

    /// The connection, made again if it was lost.
    async fn connection(&self) -> Result<Arc<Connection>, Failure> {
        let shared = &*self.shared;
        let connect = async { shared.connect().await.map(Arc::new) };
        shared.connection.get(|connection| !connection.state.borrow().lost, connect).await
    }
}

/// An event that is ready for NATS.
#[derive(Debug)]
struct Prepared {
    subject: String,
    headers: HeaderMap,
    payload: Bytes,
    bytes: usize,
}

impl Prepared {
    fn of(delivery: &Delivery, options: &NatsOptions) -> Result<Self, Failure> {
        let subject = options.subject.render_words(delivery, "*>")?;
        if let Some(reason) = why_no_subject(&subject) {
            // Without the subject, which may hold the event's key.
            return Err(Failure::permanent(format!(
                "the template `{}` makes no subject of NATS of this event: {reason}. Change the template, or emit the event otherwise",
                options.subject
            )));
        }
        let message = options.envelope.wrap(delivery, Binding::Nats)?;
        let mut headers = HeaderMap::new();
        for (name, value) in message.pairs() {
            let is_dedup_id = name == names::DEDUP_ID;
            let (name, value) = header(name, value)?;
            if is_dedup_id {
                headers.insert(DEDUP_HEADER, value.clone());
            }
            headers.append(name, value);
        }
        if let Some(stream) = &options.stream {
            headers.insert(NATS_EXPECTED_STREAM, stream.as_str());
        }
        let bytes = message.bytes();
        Ok(Self { subject, headers, payload: message.body, bytes })
    }
}

impl Shared {
    async fn connect(&self) -> Result<Connection, Failure> {
        let options = &self.options;
        let (told, state) = watch::channel(State::default());
        // What is wrong with secrets now may be mended: they are read for each connection.
        let connect = options.connect_options().map_err(|error| Failure::unavailable(error.to_string()))?;
        let connect = connect.event_callback(move |event| {
            note(&told, &event);
            std::future::ready(())
        });
        let addresses = options.addresses().map_err(|error| Failure::unavailable(error.to_string()))?;
        // One limit over all servers, the resolution of their names included.
        let client = tokio::time::timeout(options.time_limit.get(), connect.connect(addresses)).await;
        let client = match client {
            Ok(client) => client.map_err(|error| failures::of_connect(&error, options))?,
            Err(_) => return Err(failures::no_answer(options)),
        };
        let acks = Acks::open(&client).await.map_err(|error| failures::of_subscribe(&error))?;
        Ok(Connection { client, acks, state })
    }
}

impl Connection {
    /// Waits until the connection is lost.
    async fn lost(&self) -> Failure {
        // An error means that the client is gone, which is as bad.
        let _ = self.state.clone().wait_for(|state| state.lost).await;
        Failure::unavailable("NATS: the connection was lost before the stream had acked the event")
    }
}

fn note(told: &watch::Sender<State>, event: &Event) {
    match event {
        Event::Disconnected | Event::Closed => told.send_modify(|state| state.lost = true),
        Event::ServerError(error) => told.send_modify(|state| state.said = Some(error.to_string())),
        Event::ClientError(error) => told.send_modify(|state| state.said = Some(error.to_string())),
        // That it has connected or will soon hang up changes nothing.
        _ => {}
    }
}

/// The envelope has made them fit for NATS; the client would panic over others.
fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    // Those of ours need no copy.
    let ours = names::ALL.iter().find(|ours| **ours == name);
    let parsed = ours.map_or_else(|| name.parse(), |ours| Ok(HeaderName::from_static(ours)));
    match (parsed, value.parse()) {
        (Ok(name), Ok(value)) => Ok((name, value)),
        _ => Err(Failure::permanent(format!("NATS cannot carry the header `{}`", name.escape_debug()))),
    }
}

/// A subject comes from an event, so from anybody: it must not be a wildcard, nor speak to the server itself.
fn why_no_subject(subject: &str) -> Option<&'static str> {
    let bad_token = |token: &str| token.is_empty() || token == "*" || token == ">";
    if subject.len() > SUBJECT_BYTES_MAX {
        Some("it is too long")
    } else if subject.contains(|c: char| c.is_whitespace() || c.is_control()) {
        Some("it contains a space or a control character")
    } else if subject.split('.').any(bad_token) {
        Some("one of its parts is empty or a wildcard")
    } else if subject.starts_with(['$', '_']) {
        Some("what begins with $ or _ belongs to NATS")
    } else {
        None
    }
}

impl Sink for NatsSink {
    async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
        if batch.is_empty() {
            return Vec::new();
        }
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(failure) => return per_key::none_sent(&batch, failure),
        };
        sending::send(&connection, &self.shared, &batch).await
    }

    fn keeps_order(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::sizes;
    use crate::sample::delivery;

    #[test]
    fn texts_become_options_and_show_no_password() {
        let read = |text: &str| NatsOptions::from_text(text).unwrap();
        let options = read("tls://me:canary@one,two:7/orders.{type}?stream=ORDERS&envelope=cloudevents");
        assert_eq!(options.servers, ["one:4222", "two:7"]);
        assert_eq!((options.user.as_deref(), options.tls), (Some("me"), true));
        assert_eq!(options.to_string(), "tls://one:4222,two:7/orders.{type}?stream=ORDERS");
        assert!(!format!("{options} {options:?}").contains("canary"));
        let token = read("nats://canary@one/x");
        assert!(token.token.is_some() && token.user.is_none() && !format!("{token:?}").contains("canary"));
        for bad in ["nats://h", "nats://h/", "nats://h/x?strem=a", "nats://h/{oops}", "nats://h/x?envelope=b"]
        {
            assert!(NatsOptions::from_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_subject_that_an_event_spoils_is_refused_for_good_and_not_shown() {
        let options = NatsOptions::from_text("nats://h/{header.a}.x").unwrap();
        let mut event = delivery(1, b"");
        std::sync::Arc::make_mut(&mut event.event).headers.set("a", "$canary");
        let failure = Prepared::of(&event, &options).unwrap_err();
        assert!(
            failure.message().contains("`{header.a}.x`") && !failure.message().contains("canary"),
            "{failure}"
        );
        assert!(matches!(sizes::outcome(failure), Outcome::Dead(_)));
        std::sync::Arc::make_mut(&mut event.event).headers.set("a", "b.>");
        assert_eq!(Prepared::of(&event, &options).unwrap().subject, "b%2E%3E.x");
    }

    #[test]
    fn subjects_that_would_mean_something_else_are_refused() {
        for good in ["orders", "orders.created", "a.b-c_d/é", "a*b.c>d"] {
            assert_eq!(why_no_subject(good), None, "{good}");
        }
        for bad in
            ["", ".", "a.", "a..b", "*", "a.*", "a.>", "a b", "a\r\nPUB x 0\r\n", "$JS.API.STREAM.DELETE.x"]
        {
            assert!(why_no_subject(bad).is_some(), "{bad}");
        }
        assert!(why_no_subject(&"x".repeat(SUBJECT_BYTES_MAX + 1)).is_some());
    }

    #[tokio::test]
    async fn contradictions_are_refused_before_anything_is_connected() {
        let read = |json: &str| serde_json::from_str::<NatsOptions>(json).unwrap();
        for bad in [
            r#"{"servers": [], "subject": "x"}"#,
            r#"{"servers": ["nats://u:canary@h"], "subject": "x"}"#,
            r#"{"servers": ["h"], "subject": "x", "password": "canary"}"#,
            r#"{"servers": ["h"], "subject": "x", "user": "u", "token": "canary"}"#,
            r#"{"servers": ["h"], "subject": "x", "credentials": "canary"}"#,
            r#"{"servers": ["h"], "subject": "x.*"}"#,
            r#"{"servers": ["h"], "subject": "x", "stream": "a b"}"#,
            r#"{"servers": ["h"], "subject": "x", "token": "env:POSTRIDER_TEST_NO_SUCH"}"#,
            r#"{"servers": ["localhost", "h"], "subject": "x", "token": "canary"}"#,
            r#"{"servers": ["h"], "subject": "x", "user": "u", "password": "canary"}"#,
        ] {
            let error = read(bad).open().await.unwrap_err().to_string();
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
