//! Which sink a text or a table of config names.
//!
//! A new kind of sink is one file, such as `kafka.rs`, and four lines elsewhere. The file holds
//! 1. its options: a struct with a comment on each field, `#[derive(Debug, Clone, PartialEq, Eq,
//!    Deserialize)]`, `#[serde(deny_unknown_fields)]` and `#[cfg_attr(feature = "schema",
//!    derive(schemars::JsonSchema))]`;
//! 2. `impl SinkOptions` for them: the text form, `open`, `check`; `SinkUrl` reads what is in a URL;
//! 3. the sink: `impl Sink`, which wraps by its [`Envelope`](crate::Envelope) and renders its
//!    [`Template`](crate::Template)s.
//!
//! The lines: its module in `lib.rs`, its kind in the list `kinds!` below, its dependencies under its feature
//! in the manifest, and a row of README. Its tests use `postrider_testkit::receiver`.

use std::fmt;
use std::str::FromStr;

use postrider_core::{Delivery, Error, Outcome, Result, Sink};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::connect::secret::Secret;
use crate::connect::url::scheme_only;
#[cfg(feature = "exec")]
use crate::exec::ExecOptions;
use crate::file::FileOptions;
#[cfg(feature = "http")]
use crate::http::HttpOptions;
#[cfg(feature = "inbox")]
use crate::inbox::InboxOptions;
#[cfg(feature = "kafka")]
use crate::kafka::KafkaOptions;
#[cfg(feature = "nats")]
use crate::nats::NatsOptions;
use crate::null::NullOptions;
use crate::options::SinkOptions;
#[cfg(feature = "rabbitmq")]
use crate::rabbitmq::RabbitMqOptions;
#[cfg(feature = "redis")]
use crate::redis::RedisOptions;
use crate::stdout::StdoutOptions;

/// From one list of kinds: the enum of options, the enum of sinks, and every match over them.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident($options:ty) = $word:literal $(if $feature:literal)?;)+) => {
        /// A sink as it is written in the CLI and in config. Reading it touches nothing, so that a whole
        /// config can be checked before anything starts; [`open`](SinkSpec::open) then makes the sink.
        ///
        /// In config it is the same text as in the CLI, or a table named after the kind, with its options:
        ///
        /// ```
        /// use postrider_sinks::SinkSpec;
        /// let spec: SinkSpec = "file:events.jsonl".parse()?;
        /// assert_eq!(spec.to_string(), "file:events.jsonl");
        /// assert!("fax:+41".parse::<SinkSpec>().is_err());
        ///
        /// let text = serde_json::from_str::<SinkSpec>(r#""file:events.jsonl""#).unwrap();
        /// let table = serde_json::from_str::<SinkSpec>(r#"{"file": {"path": "events.jsonl"}}"#).unwrap();
        /// assert!(text == spec && table == spec);
        /// # Ok::<(), postrider_core::Error>(())
        /// ```
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum SinkSpec {
            $($(#[doc = $doc])+ $(#[cfg(feature = $feature)])? $kind($options),)+
        }

        /// Any of this crate's sinks.
        #[derive(Debug, Clone)]
        pub enum AnySink {
            $($(#[doc = $doc])+ $(#[cfg(feature = $feature)])? $kind(<$options as SinkOptions>::Sink),)+
        }

        impl SinkSpec {
            /// Makes the sink: opens the file, takes standard output, connects.
            pub async fn open(&self) -> Result<AnySink> {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$kind(options) => options.open().await.map(AnySink::$kind),)+
                }
            }

            /// Looks whether the sink could be opened and used, and changes nothing: sentences of what was found and of
            /// what would be created.
            pub async fn check(&self) -> Result<Vec<String>> {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$kind(options) => options.check().await,)+
                }
            }

            /// Whether a sink that this opened has to be opened again to work as it would now.
            pub fn is_stale(&self, sink: &AnySink) -> bool {
                match (self, sink) {
                    $($(#[cfg(feature = $feature)])?
                    (Self::$kind(options), AnySink::$kind(sink)) => options.is_stale(sink),)+
                    _ => false,
                }
            }

            /// The word for its kind.
            pub fn kind(&self) -> &'static str {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$kind(_) => $word,)+
                }
            }

            fn of_scheme(scheme: &str, text: &str) -> Option<Result<Self>> {
                $($(#[cfg(feature = $feature)])?
                if <$options>::SCHEMES.contains(&scheme) {
                    return Some(<$options>::from_text(text).map(Self::$kind));
                })+
                None
            }

            /// Reads the options that stand in config under the word for a kind.
            fn of_table<'de, A: MapAccess<'de>>(word: &str, map: &mut A) -> Result<Self, A::Error> {
                match word {
                    $($(#[cfg(feature = $feature)])? $word => map.next_value().map(Self::$kind),)+
                    _ => Err(serde::de::Error::custom(unknown(word))),
                }
            }
        }

        impl fmt::Display for SinkSpec {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$kind(options) => options.fmt(f),)+
                }
            }
        }

        impl Sink for AnySink {
            async fn send(&self, batch: Vec<Delivery>) -> Vec<Outcome> {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$kind(sink) => sink.send(batch).await,)+
                }
            }

            fn keeps_order(&self) -> bool {
                match self {
                    $($(#[cfg(feature = $feature)])? Self::$kind(sink) => sink.keeps_order(),)+
                }
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for SinkSpec {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                "Sink".into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut shapes = vec![serde_json::json!({"type": "string", "description": "As after --sink."})];
                $($(#[cfg(feature = $feature)])?
                shapes.push(serde_json::json!({
                    "type": "object",
                    "properties": {$word: generator.subschema_for::<$options>()},
                    "required": [$word],
                    "additionalProperties": false,
                }));)+
                schemars::json_schema!({"description": "Where events are sent.", "anyOf": shapes})
            }
        }
    };
}

kinds! {
    /// Standard output, one JSON object a line.
    Stdout(StdoutOptions) = "stdout";
    /// Takes everything, keeps nothing.
    Null(NullOptions) = "null";
    /// A file, one JSON object a line.
    File(FileOptions) = "file";
    /// Topics of Kafka.
    Kafka(KafkaOptions) = "kafka" if "kafka";
    /// Exchanges of RabbitMQ.
    RabbitMq(RabbitMqOptions) = "rabbitmq" if "rabbitmq";
    /// NATS JetStream.
    Nats(NatsOptions) = "nats" if "nats";
    /// Redis Streams.
    Redis(RedisOptions) = "redis" if "redis";
    /// Webhooks.
    Http(HttpOptions) = "http" if "http";
    /// A program of the user's own.
    Exec(ExecOptions) = "exec" if "exec";
    /// A table of another database.
    Inbox(InboxOptions) = "inbox" if "inbox";
}

/// Every kind that Postrider has, whether this build has it or not: its feature, how it is written, and the schemes and
/// words by which people name it.
const KINDS: &[(&str, &str, &[&str])] = &[
    ("", "stdout", &["stdout"]),
    ("", "null", &["null"]),
    ("", "file:PATH", &["file"]),
    ("kafka", "kafka://HOST/TOPIC", &["kafka", "kafkas"]),
    ("nats", "nats://HOST/SUBJECT", &["nats", "tls"]),
    ("rabbitmq", "amqp://HOST/EXCHANGE", &["amqp", "amqps", "rabbitmq"]),
    ("redis", "redis://HOST/STREAM", &["redis", "rediss"]),
    ("http", "https://HOST/PATH", &["http", "https"]),
    ("exec", "exec:COMMAND", &["exec"]),
    ("inbox", "inbox:DATABASE-URL", &["inbox"]),
];

impl SinkSpec {
    /// Standard output.
    pub fn stdout() -> Self {
        Self::Stdout(StdoutOptions {})
    }

    /// Reads an argument of a command line, which every process of the machine can see: the sink itself, or
    /// where its text is written, `env:NAME` or `@PATH`. An error repeats nothing of what was read.
    pub fn from_argument(text: &str) -> Result<Self> {
        let place = match (text.strip_prefix('@'), text.strip_prefix("env:")) {
            (Some(path), _) => format!("file:{path}"),
            (None, Some(_)) => text.to_owned(),
            (None, None) => return text.parse(),
        };
        let read = place.parse::<Secret>()?.read()?;
        let sink = read.expose().trim();
        let scheme = sink.split_once(':').map_or(sink, |(scheme, _)| scheme);
        Self::of_scheme(scheme, sink)
            .unwrap_or_else(|| Err(Error::invalid(format!("`{text}` names no sink: use {}", Self::forms()))))
    }

    /// Whether events go to standard output, where then nothing else should go.
    pub fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout(_))
    }

    /// How the sinks of this build are written, for help texts and errors.
    pub fn forms() -> String {
        let here = |schemes: &[&str]| schemes.iter().any(|scheme| Self::of_scheme(scheme, scheme).is_some());
        let forms: Vec<_> =
            KINDS.iter().filter(|(_, _, schemes)| here(schemes)).map(|(_, form, _)| *form).collect();
        match &forms[..] {
            [] => String::new(),
            [one] => (*one).to_owned(),
            [most @ .., last] => format!("{} or {last}", most.join(", ")),
        }
    }
}

impl FromStr for SinkSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let scheme = text.split_once(':').map_or(text, |(scheme, _)| scheme);
        Self::of_scheme(scheme, text).unwrap_or_else(|| Err(Error::invalid(unknown(&scheme_only(text)))))
    }
}

/// What to say of a kind that is not there, or not in this build.
fn unknown(named: &str) -> String {
    let scheme = named.trim_end_matches(":…");
    let known = KINDS.iter().find(|(_, _, schemes)| schemes.contains(&scheme));
    match known {
        Some((feature, _, _)) if !feature.is_empty() => format!(
            "this build has no sink `{named}`: build Postrider with the feature `{feature}`, or use {}",
            SinkSpec::forms()
        ),
        _ => format!("there is no sink `{named}`: use {}", SinkSpec::forms()),
    }
}

impl<'de> Deserialize<'de> for SinkSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;

        impl<'de> Visitor<'de> for TextOrTable {
            type Value = SinkSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sink as after --sink, or a table with the options of one kind")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SinkSpec, E> {
                text.parse().map_err(E::custom)
            }

            // Not an enum that serde derives: a second kind in the table would be passed over in silence, and errors
            // inside of a tagged one would lose their line and column.
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SinkSpec, A::Error> {
                let Some(word) = map.next_key::<String>()? else {
                    return Err(serde::de::Error::custom("a sink's table is empty: name one kind in it"));
                };
                let spec = SinkSpec::of_table(&word, &mut map)?;
                match map.next_key::<String>()? {
                    None => Ok(spec),
                    Some(second) => Err(serde::de::Error::custom(format!(
                        "a sink is of one kind, this one is `{word}` and `{second}`: make two sinks of it"
                    ))),
                }
            }
        }

        deserializer.deserialize_any(TextOrTable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::delivery;

    fn file(path: &str) -> SinkSpec {
        SinkSpec::File(FileOptions { path: path.into(), mode: crate::file::FileMode::default() })
    }

    #[track_caller]
    fn check(text: &str, spec: &SinkSpec) {
        assert_eq!(text.parse::<SinkSpec>().unwrap(), *spec, "{text}");
        assert_eq!(spec.to_string().parse::<SinkSpec>().unwrap(), *spec, "{text}");
        assert_eq!(serde_json::from_value::<SinkSpec>(text.into()).unwrap(), *spec, "{text}");
    }

    #[test]
    fn sinks_are_read_as_people_write_them() {
        check("stdout", &SinkSpec::stdout());
        check("null", &SinkSpec::Null(NullOptions {}));
        check("file:out/events.jsonl", &file("out/events.jsonl"));
        check("file:/tmp/with space:colon", &file("/tmp/with space:colon"));
        check("file:///tmp/a", &file("/tmp/a"));
    }

    #[test]
    fn a_sink_that_does_not_exist_is_refused_with_those_that_do() {
        for bad in ["", "std", "STDOUT", "fax:+41", "gopher://user:secret@host"] {
            let error = bad.parse::<SinkSpec>().unwrap_err().to_string();
            assert!(error.starts_with("there is no sink `"), "{bad}: {error}");
            assert!(error.contains("use stdout, null"), "{bad}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        for bad in ["stdout:", "null:x", "file", "file:", "file://", "file://host/x", "file:a\0b"] {
            assert!(bad.parse::<SinkSpec>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_kind_that_this_build_lacks_is_told_with_its_feature() {
        for (feature, _, schemes) in KINDS.iter().filter(|(feature, _, _)| !feature.is_empty()) {
            for scheme in *schemes {
                let text = format!("{scheme}://user:secret@host/x");
                let Err(error) = text.parse::<SinkSpec>() else { continue };
                let error = error.to_string();
                assert!(!error.contains("secret"), "{error}");
                if SinkSpec::of_scheme(scheme, &text).is_none() {
                    let expected = format!(
                        "this build has no sink `{scheme}:…`: build Postrider with the feature `{feature}`"
                    );
                    assert!(error.starts_with(&expected), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_table_names_one_kind_and_its_options() {
        let read = |json: &str| serde_json::from_str::<SinkSpec>(json);
        assert_eq!(read(r#"{"file": {"path": "a"}}"#).unwrap(), file("a"));
        assert_eq!(read(r#"{"stdout": {}}"#).unwrap().kind(), "stdout");
        for (bad, reason) in [
            (r#"{"file": {"path": "a"}, "null": {}}"#, "this one is `file` and `null`"),
            (r#"{"file": {"path": "a", "pth": "b"}}"#, "unknown field `pth`"),
            (r#"{"file": {}}"#, "missing field `path`"),
            (r#"{"file": {"path": ""}}"#, "needs a path"),
            (r#"{"stdout": {"x": 1}}"#, "unknown field `x`"),
            (r#"{"fax": {}}"#, "there is no sink `fax`"),
            ("{}", "name one kind"),
            ("7", "a sink as after --sink"),
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }

    #[tokio::test]
    async fn an_opened_spec_sends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        let sink = file(path.to_str().unwrap()).open().await.unwrap();
        assert!(sink.keeps_order());
        assert_eq!(sink.send(vec![delivery(1, b"1")]).await, [Outcome::Ack]);
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 1);
        assert!(file(directory.path().join("no/x").to_str().unwrap()).open().await.is_err());
        assert!("null".parse::<SinkSpec>().unwrap().open().await.is_ok());
    }

    #[tokio::test]
    async fn a_check_tells_what_would_be_created_and_creates_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        let spec = file(path.to_str().unwrap());
        assert_eq!(spec.check().await.unwrap(), [format!("would create the file `{}`", path.display())]);
        assert!(!path.exists());
        spec.open().await.unwrap();
        assert_eq!(spec.check().await.unwrap(), [format!("appends to the file `{}`", path.display())]);
        assert!(file(directory.path().to_str().unwrap()).check().await.is_err());
        assert!(file(directory.path().join("no/x").to_str().unwrap()).check().await.is_err());
        assert_eq!(SinkSpec::stdout().check().await.unwrap(), ["writes to standard output"]);
    }

    #[cfg(feature = "schema")]
    #[test]
    fn the_schema_describes_every_kind_and_field() {
        let schema = serde_json::to_value(schemars::schema_for!(SinkSpec)).unwrap();
        let text = schema.to_string();
        for word in ["\"stdout\"", "\"file\"", "\"null\"", "\"path\"", "Where the file is"] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }
}
