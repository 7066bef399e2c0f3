//! RabbitMQ, by AMQP 0-9-1 with publisher confirms.
//!
//! # What is promised
//!
//! - *Ack*: every queue to which the exchange routes the message has it, on disk if the queue is durable and,
//!   for a quorum queue, on a majority. Messages are persistent.
//! - An event that no queue wants is not acked: it is published as `mandatory`, the broker gives it back, and
//!   it is tried again by the retry policy, because a queue may yet be bound. A broker confirms such a
//!   message as well. So the sink judges the confirms of a batch only once it knows, by message id, all
//!   messages that were given back with them.
//! - *Order*: a batch never holds two events of one key, because a broker may refuse the first and take the
//!   second (a queue that was full for a moment). Keys travel side by side, many messages before the first
//!   confirm.
//! - *Duplicates*: only of an event that was not confirmed at first, with the same `message_id`. A broker
//!   refuses a message by closing its channel, and what else was on it is published again, whether it had
//!   arrived or not.
//!
//! Each batch has a channel to itself, out of at most `channels_max` of one connection. A channel on which
//! anything failed is never used again. The next batch opens a lost connection again, with growing
//! pauses until its deadline.
//!
//! | file | question it answers |
//! |---|---|
//! | this | what can be chosen? |
//! | `sink` | what becomes of each event of a batch? |
//! | `publication` | what is published for one event? |
//! | `channels` | where do channels come from, and when is the connection opened again? |
//! | `refusal` | what does an error say about the event, the exchange and the broker? |

mod channels;
mod publication;
mod refusal;
mod sink;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use postrider_core::{Error, Result};
use serde::{Deserialize, Deserializer};

pub use sink::RabbitMqSink;

use crate::envelope::Envelope;
use crate::options::SinkOptions;
use crate::{Binding, Secret, SinkUrl, Template};

/// What can be said in a URL, for its errors.
const URL_OPTIONS: &str = "routing_key, vhost, envelope, cloudevents_prefix or login_in_clear";
/// RabbitMQ's own, which it lets in from loopback alone.
const USUAL_LOGIN: &str = "guest";

/// How events are published to RabbitMQ.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RabbitMqOptions {
    /// The nodes, each `HOST` or `HOST:PORT`; they are tried in this order.
    #[serde(deserialize_with = "brokers_from_config")]
    pub brokers: Vec<String>,
    /// Whether the connection is encrypted; certificates are checked against those of the system.
    #[serde(default)]
    pub tls: bool,
    /// The virtual host.
    #[serde(default = "default_vhost")]
    pub vhost: String,
    /// The exchange, which must be there. The empty one routes to the queue that the routing key names.
    pub exchange: Template,
    /// The routing key.
    #[serde(default = "default_routing_key")]
    pub routing_key: Template,
    /// Headers beside those of the envelope.
    #[serde(default)]
    pub headers: BTreeMap<String, Template>,
    /// How events are wrapped.
    #[serde(default)]
    pub envelope: Envelope,
    /// What stands before the attributes of envelope `cloudevents`: `cloudEvents:`, as AMQP's binding of
    /// CloudEvents says, or `ce-`, as receivers of RabbitMQ expect that follow Knative.
    #[serde(default)]
    pub cloudevents_prefix: CloudEventsPrefix,
    /// Who logs in; `guest` if nobody is given.
    #[serde(default)]
    pub user: Option<String>,
    /// The password.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Whether to log in without encryption at a broker that is not this machine.
    #[serde(default)]
    pub login_in_clear: bool,
    /// Bytes of the largest message. It must not be above the broker's `max_message_size`.
    #[serde(default = "default_message_bytes_max")]
    pub message_bytes_max: NonZeroU32,
    /// Channels, and so batches under way at once.
    #[serde(default = "default_channels_max")]
    pub channels_max: NonZeroU32,
    /// Milliseconds after which what has not been confirmed is given up, to be tried again.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: NonZeroU32,
}

/// What stands before the attributes of CloudEvents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CloudEventsPrefix {
    /// `cloudEvents:`.
    #[default]
    #[serde(rename = "cloudEvents:")]
    CloudEvents,
    /// `ce-`.
    #[serde(rename = "ce-")]
    Ce,
}

impl CloudEventsPrefix {
    fn binding(self) -> Binding {
        match self {
            Self::CloudEvents => Binding::Amqp,
            Self::Ce => Binding::AmqpCe,
        }
    }

    fn from_word(word: &str) -> Result<Self> {
        [Self::CloudEvents, Self::Ce]
            .into_iter()
            .find(|prefix| prefix.binding().cloudevents_prefix() == word)
            .ok_or_else(|| {
                Error::invalid("option `cloudevents_prefix` of sink `amqp:…`: write cloudEvents: or ce-")
            })
    }
}

fn default_vhost() -> String {
    "/".to_owned()
}

fn default_routing_key() -> Template {
    "{type}".parse().expect("the default routing key is a template")
}

fn default_message_bytes_max() -> NonZeroU32 {
    number(16 * 1024 * 1024)
}

fn default_channels_max() -> NonZeroU32 {
    number(16)
}

fn default_timeout_ms() -> NonZeroU32 {
    number(30_000)
}

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("defaults are above zero")
}

impl RabbitMqOptions {
    /// With every choice left as it is by default. Brokers are `HOST:PORT`, with commas between.
    pub fn new(brokers: &str, exchange: Template) -> Result<Self> {
        Ok(Self {
            brokers: checked_brokers(brokers.split(',').map(str::to_owned).collect())?,
            tls: false,
            vhost: default_vhost(),
            exchange,
            routing_key: default_routing_key(),
            headers: BTreeMap::new(),
            envelope: Envelope::default(),
            cloudevents_prefix: CloudEventsPrefix::default(),
            user: None,
            password: None,
            login_in_clear: false,
            message_bytes_max: default_message_bytes_max(),
            channels_max: default_channels_max(),
            timeout_ms: default_timeout_ms(),
        })
    }

    fn usual_port(&self) -> u16 {
        if self.tls { 5671 } else { 5672 }
    }
}

impl SinkOptions for RabbitMqOptions {
    type Sink = RabbitMqSink;
    const SCHEMES: &'static [&'static str] = &["amqp", "amqps"];

    /// `amqp://user:password@one,two:5672/EXCHANGE?routing_key={type}&vhost=/`.
    fn from_text(text: &str) -> Result<Self> {
        let mut url = SinkUrl::parse(text)?;
        if url.path.starts_with('/') {
            return Err(Error::invalid(
                "the path of sink `amqp:…` is the exchange: write the virtual host as amqp://HOST/EXCHANGE?vhost=/",
            ));
        }
        let tls = url.scheme == "amqps";
        let port = if tls { 5671 } else { 5672 };
        let mut options = Self::new(&url.addresses(port).join(","), url.path.parse()?)?;
        options.tls = tls;
        if let Some(text) = url.take_option("routing_key") {
            options.routing_key = text.parse()?;
        }
        if let Some(vhost) = url.take_option("vhost") {
            options.vhost = vhost;
        }
        if let Some(word) = url.take_option("envelope") {
            options.envelope = word.parse()?;
        }
        if let Some(word) = url.take_option("cloudevents_prefix") {
            options.cloudevents_prefix = CloudEventsPrefix::from_word(&word)?;
        }
        options.login_in_clear = url.take_flag("login_in_clear")?;
        url.no_more_options(URL_OPTIONS)?;
        (options.user, options.password) = (url.user.take(), url.password.take());
        Ok(options)
    }

    /// Reaches no broker: one that is down when a relay starts is like one that goes down later.
    async fn open(&self) -> Result<RabbitMqSink> {
        RabbitMqSink::open(self)
    }

    async fn check(&self) -> Result<Vec<String>> {
        channels::check(self).await
    }
}

impl fmt::Display for RabbitMqOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = |text: &str| text.replace('%', "%25").replace('?', "%3F").replace('&', "%26");
        f.write_str(if self.tls { "amqps://" } else { "amqp://" })?;
        if let Some(user) = &self.user {
            write!(f, "{user}{}@", if self.password.is_some() { ":***" } else { "" })?;
        }
        write!(f, "{}/{}", self.brokers.join(","), escaped(&self.exchange.to_string()))?;
        write!(f, "?routing_key={}", escaped(&self.routing_key.to_string()))?;
        if self.vhost != default_vhost() {
            write!(f, "&vhost={}", escaped(&self.vhost))?;
        }
        if self.envelope.format != Envelope::default().format {
            write!(f, "&envelope={}", self.envelope.format)?;
        }
        if self.cloudevents_prefix != CloudEventsPrefix::default() {
            write!(f, "&cloudevents_prefix={}", self.cloudevents_prefix.binding().cloudevents_prefix())?;
        }
        if self.login_in_clear {
            f.write_str("&login_in_clear=true")?;
        }
        Ok(())
    }
}

fn checked_brokers(brokers: Vec<String>) -> Result<Vec<String>> {
    let is_wrong = |broker: &String| {
        broker.is_empty()
            || broker.contains(|c: char| c.is_control() || c.is_whitespace() || ",/@".contains(c))
    };
    if brokers.is_empty() || brokers.iter().any(is_wrong) {
        return Err(Error::invalid(
            "the brokers of a rabbitmq sink are HOST or HOST:PORT each, and at least one",
        ));
    }
    Ok(brokers)
}

fn brokers_from_config<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    checked_brokers(Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_a_url_and_shown_without_the_password() {
        let text =
            "amqps://me:canary@one,two:7/orders.{topic}?routing_key={key|none}&vhost=shop&envelope=json";
        let options = RabbitMqOptions::from_text(text).unwrap();
        assert_eq!(options.brokers, ["one:5671", "two:7"]);
        assert_eq!((options.tls, &*options.vhost), (true, "shop"));
        assert_eq!(options.password.as_ref().unwrap().read().unwrap().expose(), "canary");
        let shown = options.to_string();
        assert_eq!(
            shown,
            "amqps://me:***@one:5671,two:7/orders.{topic}?routing_key={key|none}&vhost=shop&envelope=json"
        );
        assert!(!format!("{options:?}").contains("canary"));
        let plain = RabbitMqOptions::from_text("amqp://h/orders").unwrap();
        assert_eq!(plain.to_string(), "amqp://h:5672/orders?routing_key={type}");
        assert_eq!(RabbitMqOptions::from_text(&plain.to_string()).unwrap(), plain);
        let knative = RabbitMqOptions::from_text("amqp://h/e?cloudevents_prefix=ce-").unwrap();
        assert_eq!(knative.cloudevents_prefix, CloudEventsPrefix::Ce);
        assert_eq!(RabbitMqOptions::from_text(&knative.to_string()).unwrap(), knative);
        let table =
            serde_json::from_str::<RabbitMqOptions>(r#"{"brokers": ["h:5672"], "exchange": "orders"}"#);
        assert_eq!(table.unwrap(), plain);
    }

    #[test]
    fn mistakes_are_refused_before_anything_is_opened() {
        for (bad, reason) in [
            ("amqp://h/%2f", "write the virtual host as"),
            ("amqp://h/{oops}", "there is no placeholder"),
            ("amqp://h/e?routing_key={x}", "there is no placeholder"),
            ("amqp://h/e?cloudevents_prefix=ce", "write cloudEvents: or ce-"),
            ("amqp://h/e?persistent=false", "no option `persistent`"),
        ] {
            let error = RabbitMqOptions::from_text(bad).unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }
}
