//! Kafka, through librdkafka.
//!
//! # What is promised
//!
//! - *Ack*: all replicas that are in sync hold the record (`acks=all`).
//! - *Order*: records of one key reach their partition in the order of the batch, whatever is retried and
//!   whichever broker leads. If one is not acked, no later one of its key takes effect. Four things together
//!   make it so:
//!   1. The producer is idempotent: a broker takes a request only after the one before it, and each once.
//!   2. It is gapless: when a broker refuses a record for good, the producer dies with everything behind it,
//!      instead of sending the rest under a new epoch, as it otherwise would.
//!   3. Nothing times out inside of it. The sink has one deadline for a batch; once that has passed, the
//!      producer is thrown away with all that it holds, so that nothing of an earlier attempt is sent after a
//!      later one began.
//!   4. Where a producer is not known, the first event of a key travels ahead of the rest (`wave`): a broker
//!      that has never heard of a producer takes any request from it as the first, even the second
//!      (`courses`).
//! - *Duplicates*: only of an event that was not acked, with the same deduplication id: what was on its way
//!   when a deadline passed or the future was dropped may still arrive, once.
//! - A producer of which any record failed is never used again; the next batch gets a new one.
//!
//! Each batch has a producer to itself, out of at most `producers_max`. So a batch that waits for a dead
//! partition holds up no other, and one that is given up takes nothing of another with it.
//!
//! Why there are no transactions, `docs/sinks.md` says.
//!
//! | file | question it answers |
//! |---|---|
//! | this | what can be chosen? |
//! | `sink` | what becomes of each event of a batch? |
//! | `wave` | which events of a batch may be on their way at once? |
//! | `courses` | where is a producer known? |
//! | `reports` | what has a producer reported of a wave? |
//! | `record` | what is sent for one event, and is it small enough? |
//! | `security` | how are connections encrypted, and how do we log in? |
//! | `producers` | where do producers come from, and where do they go? |
//! | `refusal` | what does an error of Kafka say about the event, the topic and the broker? |
//! | `look` | what does a check find? |

#[cfg(feature = "bench")]
pub(crate) mod bare;
mod courses;
mod look;
mod producers;
mod record;
mod refusal;
mod reports;
mod security;
mod sink;
mod wave;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

use postrider_core::{Error, Result};
use serde::{Deserialize, Deserializer};

pub use security::Sasl;
pub use sink::KafkaSink;

use crate::envelope::Envelope;
use crate::options::SinkOptions;
use crate::{Secret, SinkUrl, Template};

const USUAL_PORT: u16 = 9092;
/// What can be said in a URL, for its errors.
const URL_OPTIONS: &str = "key, envelope, compression, tombstones, sasl or login_in_clear";

/// How events are sent to Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KafkaOptions {
    /// Where clients begin, each `HOST` or `HOST:PORT`. One that answers is enough.
    #[serde(deserialize_with = "brokers_from_config")]
    pub brokers: Vec<String>,
    /// The topic.
    #[serde(deserialize_with = "topic_from_config")]
    pub topic: Template,
    /// The record's key, which chooses the partition as Java's clients do (murmur2). Without it the event's
    /// key, if it has one. What renders as nothing is no key, and any partition will do.
    #[serde(default)]
    pub key: Option<Template>,
    /// Headers beside those of the envelope.
    #[serde(default)]
    pub headers: BTreeMap<String, Template>,
    /// How events are wrapped.
    #[serde(default)]
    pub envelope: Envelope,
    /// Whether an empty body is sent as no value at all, which deletes the key from a compacted topic.
    #[serde(default)]
    pub tombstones: bool,
    /// How records are compressed.
    #[serde(default)]
    pub compression: Compression,
    /// Whether connections are encrypted. A broker then has to prove that it is the one, by a certificate for
    /// the name under which it is reached.
    #[serde(default, deserialize_with = "security::from_config")]
    pub tls: bool,
    /// A file with the certificates to trust instead of the system's.
    #[serde(default, deserialize_with = "security::from_config")]
    pub ca_file: Option<PathBuf>,
    /// A file with a certificate of ours, for brokers that ask for one.
    #[serde(default, deserialize_with = "security::from_config")]
    pub cert_file: Option<PathBuf>,
    /// A file with the key of that certificate.
    #[serde(default, deserialize_with = "security::from_config")]
    pub key_file: Option<PathBuf>,
    /// Who logs in.
    #[serde(default)]
    pub user: Option<String>,
    /// The password.
    #[serde(default)]
    pub password: Option<Secret>,
    /// How the password is shown to a broker.
    #[serde(default, deserialize_with = "security::from_config")]
    pub sasl: Sasl,
    /// Whether to log in without encryption at brokers that are not this machine.
    #[serde(default)]
    pub login_in_clear: bool,
    /// Milliseconds for which records of a partition are gathered before they are sent.
    #[serde(default = "default_linger_ms")]
    pub linger_ms: u32,
    /// Bytes of the largest record, and of the largest request for a partition. It must not be above the
    /// topic's `max.message.bytes`.
    #[serde(default = "default_message_bytes_max")]
    pub message_bytes_max: NonZeroU32,
    /// Bytes that one producer holds; what does not fit waits.
    #[serde(default = "default_queue_bytes_max")]
    pub queue_bytes_max: NonZeroU32,
    /// Producers, and so batches under way at once.
    #[serde(default = "default_producers_max")]
    pub producers_max: NonZeroU32,
    /// Milliseconds after which a batch that has not been acked is given up, to be tried again.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: NonZeroU32,
}

/// How records are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// As gzip does.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

fn default_linger_ms() -> u32 {
    1
}

fn default_message_bytes_max() -> NonZeroU32 {
    number(1_000_000)
}

fn default_queue_bytes_max() -> NonZeroU32 {
    number(32 * 1024 * 1024)
}

fn default_producers_max() -> NonZeroU32 {
    number(4)
}

fn default_timeout_ms() -> NonZeroU32 {
    number(30_000)
}

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("defaults are above zero")
}

impl KafkaOptions {
    /// With every choice left as it is by default. Brokers are `HOST:PORT`, with commas between.
    pub fn new(brokers: &str, topic: Template) -> Result<Self> {
        Ok(Self {
            brokers: checked_brokers(brokers.split(',').map(str::to_owned).collect())?,
            topic: checked_topic(topic)?,
            key: None,
            headers: BTreeMap::new(),
            envelope: Envelope::default(),
            tombstones: false,
            compression: Compression::default(),
            tls: false,
            ca_file: None,
            cert_file: None,
            key_file: None,
            user: None,
            password: None,
            sasl: Sasl::default(),
            login_in_clear: false,
            linger_ms: default_linger_ms(),
            message_bytes_max: default_message_bytes_max(),
            queue_bytes_max: default_queue_bytes_max(),
            producers_max: default_producers_max(),
            timeout_ms: default_timeout_ms(),
        })
    }
}

impl SinkOptions for KafkaOptions {
    type Sink = KafkaSink;
    const SCHEMES: &'static [&'static str] = &["kafka", "kafkas"];

    /// `kafka://user:password@one:9092,two:9092/TOPIC?key=…&compression=zstd`, `kafkas://…` for encrypted connections.
    fn from_text(text: &str) -> Result<Self> {
        let mut url = SinkUrl::parse(text)?;
        let mut options = Self::new(&url.addresses(USUAL_PORT).join(","), url.path.parse()?)?;
        options.key = url.take_option("key").map(|text| text.parse()).transpose()?;
        if let Some(word) = url.take_option("envelope") {
            options.envelope = word.parse()?;
        }
        if let Some(word) = url.take_option("compression") {
            options.compression = word.parse()?;
        }
        options.tombstones = url.take_flag("tombstones")?;
        options.login_in_clear = url.take_flag("login_in_clear")?;
        if let Some(word) = url.take_option("sasl") {
            options.sasl = security::of_this_build(word.parse()?)?;
        }
        options.tls = security::of_this_build(url.scheme == "kafkas")?;
        url.no_more_options(URL_OPTIONS)?;
        (options.user, options.password) = (url.user.take(), url.password.take());
        Ok(options)
    }

    /// Reaches no broker: one that is down when a relay starts is like one that goes down later.
    async fn open(&self) -> Result<KafkaSink> {
        KafkaSink::open(self)
    }

    async fn check(&self) -> Result<Vec<String>> {
        look::check(self).await
    }
}

impl fmt::Display for KafkaOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped =
            |text: &Template| text.to_string().replace('%', "%25").replace('?', "%3F").replace('&', "%26");
        f.write_str(if self.tls { "kafkas://" } else { "kafka://" })?;
        if let Some(user) = &self.user {
            write!(f, "{user}{}@", if self.password.is_some() { ":***" } else { "" })?;
        }
        write!(f, "{}/{}", self.brokers.join(","), escaped(&self.topic))?;
        let mut options = Vec::new();
        options.extend(self.key.as_ref().map(|key| format!("key={}", escaped(key))));
        if self.envelope.format != Envelope::default().format {
            options.push(format!("envelope={}", self.envelope.format));
        }
        if self.compression != Compression::None {
            options.push(format!("compression={}", self.compression.as_str()));
        }
        if self.tombstones {
            options.push("tombstones=true".to_owned());
        }
        if self.sasl != Sasl::Plain {
            options.push(format!("sasl={}", self.sasl.as_str()));
        }
        if self.login_in_clear {
            options.push("login_in_clear=true".to_owned());
        }
        if options.is_empty() { Ok(()) } else { write!(f, "?{}", options.join("&")) }
    }
}

impl Compression {
    const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The word for it, the same in config, URLs and Kafka.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == word).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid(format!("there is no compression `{}`: use one of {words}", word.escape_debug()))
        })
    }
}

fn checked_brokers(brokers: Vec<String>) -> Result<Vec<String>> {
    let is_wrong = |broker: &String| {
        broker.is_empty()
            || broker.contains(|c: char| c.is_control() || c.is_whitespace() || ",/@".contains(c))
    };
    if brokers.is_empty() || brokers.iter().any(is_wrong) {
        return Err(Error::invalid(
            "the brokers of a kafka sink are HOST or HOST:PORT each, and at least one",
        ));
    }
    Ok(brokers)
}

/// A topic that never changes is looked at now, any other for each event.
fn checked_topic(topic: Template) -> Result<Template> {
    match topic.as_constant() {
        Some("") => Err(Error::invalid("sink `kafka` needs a topic: write kafka://HOST/TOPIC")),
        Some(name) => match record::why_no_topic(name) {
            Some(reason) => {
                Err(Error::invalid(format!("`{}` is no topic of Kafka: {reason}", name.escape_debug())))
            }
            None => Ok(topic),
        },
        None => Ok(topic),
    }
}

fn brokers_from_config<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    checked_brokers(Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn topic_from_config<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Template, D::Error> {
    checked_topic(Template::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_a_url_and_shown_without_the_password() {
        let text = "kafka://me:canary@one,two:7/orders.{type}?key={key|none}&envelope=cloudevents&compression=zstd&tombstones=true";
        let options = KafkaOptions::from_text(text).unwrap();
        assert_eq!(options.brokers, ["one:9092", "two:7"]);
        assert_eq!(options.topic.to_string(), "orders.{type}");
        assert_eq!(options.password.as_ref().unwrap().read().unwrap().expose(), "canary");
        assert_eq!(options.compression, Compression::Zstd);
        assert_eq!(
            options.to_string(),
            "kafka://me:***@one:9092,two:7/orders.{type}?key={key|none}&envelope=cloudevents&compression=zstd&tombstones=true"
        );
        assert!(!format!("{options:?}").contains("canary"));
        #[cfg(feature = "kafka-tls")]
        {
            let safe = KafkaOptions::from_text("kafkas://me:canary@h/t?sasl=scram-sha-512").unwrap();
            assert_eq!((safe.tls, safe.sasl), (true, Sasl::ScramSha512));
            assert_eq!(safe.to_string(), "kafkas://me:***@h:9092/t?sasl=scram-sha-512");
        }
        let plain = KafkaOptions::from_text("kafka://h/t").unwrap();
        assert_eq!(KafkaOptions::from_text(&plain.to_string()).unwrap(), plain);
    }

    #[test]
    fn mistakes_are_refused_before_anything_is_opened() {
        for (bad, reason) in [
            ("kafka://h", "needs a topic"),
            ("kafka://h/a b", "is no topic of Kafka"),
            ("kafka://h/..", "is no topic of Kafka"),
            ("kafka://h/{oops}", "there is no placeholder"),
            ("kafka://h/t?compression=rar", "there is no compression `rar`"),
            ("kafka://h/t?tombstones=maybe", "tombstones=true"),
            ("kafka://h/t?sasl=gssapi", "there is no `sasl` `gssapi`"),
            ("kafka://h/t?acks=0", "no option `acks`"),
        ] {
            let error = KafkaOptions::from_text(bad).unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
        for (bad, reason) in [
            (r#"{"brokers": [], "topic": "t"}"#, "at least one"),
            (r#"{"brokers": ["a,b"], "topic": "t"}"#, "HOST:PORT each"),
            (r#"{"brokers": ["a"], "topic": "a/b"}"#, "is no topic of Kafka"),
            (r#"{"brokers": ["a"], "topic": "t", "timeout_ms": 0}"#, "nonzero"),
            (r#"{"brokers": ["a"], "topic": "t", "acks": 1}"#, "unknown field `acks`"),
        ] {
            let error = serde_json::from_str::<KafkaOptions>(bad).unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
        let table = serde_json::from_str::<KafkaOptions>(r#"{"brokers": ["h:9092"], "topic": "t"}"#).unwrap();
        assert_eq!(table, KafkaOptions::from_text("kafka://h/t").unwrap());
    }
}
