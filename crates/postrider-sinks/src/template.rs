//! Text with placeholders over an event: `orders.{type}`, `tenant/{header.tenant|none}`.
//!
//! | placeholder | what it stands for | may be absent |
//! |---|---|---|
//! | `{topic}`, `{type}`, `{id}` | of the event | no |
//! | `{key}` | the event's ordering key | yes |
//! | `{header.NAME}` | the value of a header of the event | yes |
//! | `{subscription}`, `{store_id}` | where the delivery comes from | no |
//!
//! What may be absent may have a default: `{key|none}`, `{key|}`. Without one, an event that lacks it cannot be
//! delivered by this template, ever, and becomes a dead letter. Braces that are meant as such are doubled.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use postrider_core::{Delivery, Error, Failure, Key, Result};
use serde::{Deserialize, Deserializer};

const ALLOWED: &str = "{topic}, {type}, {key}, {id}, {subscription}, {store_id} or {header.NAME}";

/// A text that is made for each event. Read from a string, shown as the same string.
///
/// ```
/// use postrider_sinks::Template;
/// let subject: Template = "orders.{type}.{key|none}".parse()?;
/// assert_eq!(subject.to_string(), "orders.{type}.{key|none}");
/// assert!(!subject.is_constant());
/// let error = "orders.{tpye}".parse::<Template>().unwrap_err().to_string();
/// assert!(error.contains("column 8") && error.contains("there is no placeholder {tpye}"), "{error}");
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// No two texts stand beside each other and none is empty, so that equal templates have equal pieces.
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Placeholder(Placeholder, Option<String>),
}

/// What a template may take from a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placeholder {
    /// The event's topic.
    Topic,
    /// The event's type.
    Type,
    /// The event's key, which may be absent.
    Key,
    /// The event's id.
    Id,
    /// The subscription's name.
    Subscription,
    /// The store's identity.
    StoreId,
    /// The header of this name, which may be absent.
    Header(String),
}

impl Template {
    /// A template that renders as `text` for every event, whatever `text` contains.
    pub fn constant(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { pieces: if text.is_empty() { Vec::new() } else { vec![Piece::Text(text)] } }
    }

    /// The text for one delivery. Plain text and a lone placeholder cost no allocation.
    ///
    /// An absent key or header without a default fails for good: no later attempt would find it.
    pub fn render<'a>(&'a self, delivery: &'a Delivery) -> Result<Cow<'a, str>, Failure> {
        match &self.pieces[..] {
            [] => Ok(Cow::Borrowed("")),
            [piece] => piece.render(delivery),
            pieces => {
                let mut text = String::new();
                for piece in pieces {
                    text.push_str(&piece.render(delivery)?);
                }
                Ok(Cow::Owned(text))
            }
        }
    }

    /// The same, with what stands for placeholders changed first, so that it cannot change what the text
    /// around it means.
    pub(crate) fn render_escaped(
        &self,
        delivery: &Delivery,
        escape: impl Fn(&Placeholder, &str) -> String,
    ) -> Result<String, Failure> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Placeholder(placeholder, _) => {
                    text.push_str(&escape(placeholder, &piece.render(delivery)?));
                }
            }
        }
        Ok(text)
    }

    /// The same for a name of which a dot parts the words, as subjects of NATS and routing keys of RabbitMQ
    /// are. A topic and a type are names too and bring their words with them; a key or a header is one word,
    /// whatever it holds.
    #[cfg(any(feature = "nats", feature = "rabbitmq"))]
    pub(crate) fn render_words(&self, delivery: &Delivery, wildcards: &str) -> Result<String, Failure> {
        self.render_escaped(delivery, |placeholder, value| match placeholder {
            Placeholder::Key | Placeholder::Header(_) => one_word(value, wildcards),
            _ => value.to_owned(),
        })
    }

    /// The placeholders in it, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Placeholder(placeholder, _) => Some(placeholder),
        })
    }

    /// Whether it renders the same for every event.
    pub fn is_constant(&self) -> bool {
        self.placeholders().next().is_none()
    }

    /// What it renders as for every event, if that is so: what can be checked or created before any event comes.
    pub fn as_constant(&self) -> Option<&str> {
        match &self.pieces[..] {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }
}

/// What would end a word, mean any word, or escape something is percent-encoded.
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
fn one_word(value: &str, wildcards: &str) -> String {
    let mut word = String::with_capacity(value.len());
    for c in value.chars() {
        if c == '.' || c == '%' || c.is_whitespace() || c.is_control() || wildcards.contains(c) {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                // Writing to a string cannot fail.
                let _ = fmt::Write::write_fmt(&mut word, format_args!("%{byte:02X}"));
            }
        } else {
            word.push(c);
        }
    }
    word
}

impl Piece {
    fn render<'a>(&'a self, delivery: &'a Delivery) -> Result<Cow<'a, str>, Failure> {
        match self {
            Self::Text(text) => Ok(Cow::Borrowed(text)),
            Self::Placeholder(placeholder, default) => {
                placeholder.of(delivery).or(default.as_deref().map(Cow::Borrowed)).ok_or_else(|| {
                    Failure::permanent(format!(
                        "the event has no {what}, which {{{placeholder}}} asks for: emit it with one, or give a \
                         default in the template as {{{placeholder}|none}}",
                        what = placeholder.described()
                    ))
                })
            }
        }
    }
}

impl Placeholder {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "topic" => Self::Topic,
            "type" => Self::Type,
            "key" => Self::Key,
            "id" => Self::Id,
            "subscription" => Self::Subscription,
            "store_id" => Self::StoreId,
            _ => Self::Header(name.strip_prefix("header.").filter(|name| !name.is_empty())?.to_owned()),
        })
    }

    /// Whether an event may lack it.
    pub fn may_be_absent(&self) -> bool {
        matches!(self, Self::Key | Self::Header(_))
    }

    fn of<'a>(&self, delivery: &'a Delivery) -> Option<Cow<'a, str>> {
        match self {
            Self::Topic => Some(Cow::Borrowed(delivery.topic.as_str())),
            Self::Type => Some(Cow::Borrowed(delivery.kind.as_str())),
            Self::Key => delivery.key.as_ref().map(Key::as_str).map(Cow::Borrowed),
            Self::Id => Some(Cow::Owned(delivery.id.to_string())),
            Self::Subscription => Some(Cow::Borrowed(&delivery.origin.subscription)),
            Self::StoreId => Some(Cow::Borrowed(&delivery.origin.store_id)),
            Self::Header(name) => delivery.headers.get(name).map(Cow::Borrowed),
        }
    }

    fn described(&self) -> String {
        match self {
            Self::Header(name) => format!("header `{name}`"),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic => f.write_str("topic"),
            Self::Type => f.write_str("type"),
            Self::Key => f.write_str("key"),
            Self::Id => f.write_str("id"),
            Self::Subscription => f.write_str("subscription"),
            Self::StoreId => f.write_str("store_id"),
            Self::Header(name) => write!(f, "header.{name}"),
        }
    }
}

impl FromStr for Template {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(brace) = rest.find(['{', '}']) {
            plain.push_str(&rest[..brace]);
            let at = text.len() - rest.len() + brace;
            let after = &rest[brace + 1..];
            let this = &rest[brace..=brace];
            rest = if let Some(rest) = after.strip_prefix(this) {
                plain.push_str(this);
                rest
            } else if this == "}" {
                return Err(wrong(text, at, "a } without a {: write }} for a brace"));
            } else {
                let Some((inner, rest)) = after.split_once('}') else {
                    return Err(wrong(text, at, "a { that no } ends: write {{ for a brace"));
                };
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(placeholder(inner).map_err(|reason| wrong(text, at, &reason))?);
                rest
            };
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self { pieces })
    }
}

/// What stands between two braces.
fn placeholder(inner: &str) -> Result<Piece, String> {
    let (name, default) = match inner.split_once('|') {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if inner.contains('{') {
        return Err("a { inside of a placeholder: end it with } first, and use no braces in a default".into());
    }
    let Some(placeholder) = Placeholder::parse(name) else {
        return Err(format!("there is no placeholder {{{}}}: use {ALLOWED}", name.escape_debug()));
    };
    if default.is_some() && !placeholder.may_be_absent() {
        return Err(format!(
            "{{{placeholder}}} is never absent and takes no default: write {{{placeholder}}}"
        ));
    }
    Ok(Piece::Placeholder(placeholder, default.map(str::to_owned)))
}

/// Columns are counted in characters from 1, as editors do.
fn wrong(text: &str, at: usize, reason: &str) -> Error {
    let column = text[..at].chars().count() + 1;
    Error::invalid(format!("template `{}`, column {column}: {reason}", text.escape_debug()))
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}"))?,
                Piece::Placeholder(placeholder, None) => write!(f, "{{{placeholder}}}")?,
                Piece::Placeholder(placeholder, Some(default)) => write!(f, "{{{placeholder}|{default}}}")?,
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Template {
    fn schema_name() -> Cow<'static, str> {
        "Template".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": format!("Text with placeholders over an event: {ALLOWED}. {{key|none}} gives a default."),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_core::FailureClass;
    use proptest::prelude::{Just, Strategy, prop_oneof, proptest};

    use super::*;
    use crate::sample::delivery;

    fn template(text: &str) -> Template {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut delivery = delivery(7, b"");
        Arc::make_mut(&mut delivery.event).headers.set("tenant", "ä");
        assert_eq!(template(text).render(&delivery).unwrap(), expected, "{text}");
    }

    #[test]
    fn placeholders_take_their_values_from_the_delivery() {
        check("", "");
        check("plain", "plain");
        check("{topic}", "order");
        check("{topic}/{type}/{key}/{id}", "order/order.created/42/7");
        check("{subscription}@{store_id}", "audit@s");
        check("{header.tenant}-{header.none|x y}-{header.none|}-{key|none}", "ä-x y--42");
        check("{{{topic}}} }}{{ {{topic}}", "{order} }{ {topic}");
    }

    #[cfg(any(feature = "nats", feature = "rabbitmq"))]
    #[test]
    fn a_key_and_a_header_bring_no_words_of_their_own() {
        let mut delivery = delivery(7, b"");
        let event = Arc::make_mut(&mut delivery.event);
        event.key = Some(Key::new("a.b>*#\n 100%ü"));
        event.headers.set("tenant", "x.y");
        let words = |text: &str| template(text).render_words(&delivery, "*>#").unwrap();
        assert_eq!(words("o.{type}.{key}"), "o.order.created.a%2Eb%3E%2A%23%0A%20100%25ü");
        assert_eq!(words("{topic}.{header.tenant}"), "order.x%2Ey");
    }

    #[test]
    fn plain_text_and_a_lone_placeholder_borrow() {
        let delivery = delivery(7, b"");
        for text in ["", "plain", "{{}}", "{topic}", "{key}", "{header.none|x}"] {
            let template = template(text);
            assert!(matches!(template.render(&delivery).unwrap(), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn what_is_absent_without_a_default_fails_for_good_and_says_what() {
        let mut delivery = delivery(7, b"");
        Arc::make_mut(&mut delivery.event).key = None;
        for (text, what) in [("a{key}", "no key"), ("{header.tenant}", "no header `tenant`")] {
            let failure = template(text).render(&delivery).unwrap_err();
            assert_eq!(failure.class(), FailureClass::Permanent);
            assert!(failure.message().contains(what), "{failure}");
        }
        assert_eq!(template("{key|}").render(&delivery).unwrap(), "");
    }

    #[test]
    fn mistakes_are_refused_with_their_column_and_what_is_allowed() {
        for (text, column, reason) in [
            ("a{b}", 2, "there is no placeholder {b}: use {topic}"),
            ("ää{}", 3, "there is no placeholder {}"),
            ("{header.}", 1, "{header.NAME}"),
            ("{header}", 1, "{header.NAME}"),
            ("{ topic}", 1, "there is no placeholder { topic}"),
            ("{topic|x}", 1, "never absent"),
            ("{key", 1, "no } ends"),
            ("a}", 2, "a } without a {"),
            ("{key}}", 6, "a } without a {"),
            ("{key|{topic}}", 1, "a { inside"),
        ] {
            let error = text.parse::<Template>().unwrap_err().to_string();
            assert!(error.contains(&format!("column {column}: ")), "{text}: {error}");
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_template_tells_what_it_uses() {
        let mixed = template("{topic}.{header.a|b}");
        let used: Vec<_> = mixed.placeholders().cloned().collect();
        assert_eq!(used, [Placeholder::Topic, Placeholder::Header("a".into())]);
        assert!(!mixed.is_constant() && mixed.as_constant().is_none());
        assert_eq!(template("a{{b").as_constant(), Some("a{b"));
        assert_eq!(Template::constant("{topic}").as_constant(), Some("{topic}"));
    }

    #[test]
    fn a_template_is_read_from_config() {
        assert_eq!(serde_json::from_str::<Template>(r#""{topic}""#).unwrap(), template("{topic}"));
        assert!(serde_json::from_str::<Template>(r#""{topc}""#).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_shown_as_it_was_written(text in any_template()) {
            if let Ok(template) = text.parse::<Template>() {
                assert_eq!(template.to_string(), text);
            }
        }

        #[test]
        fn any_constant_survives_its_written_form(text in ".*") {
            let constant = Template::constant(&*text);
            assert_eq!(constant.to_string().parse::<Template>().unwrap(), constant);
            assert_eq!(constant.render(&delivery(7, b"")).unwrap(), text);
        }
    }

    fn any_template() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("{topic}"),
            Just("{key}"),
            Just("{key|"),
            Just("{header.a"),
            Just("{"),
            Just("}"),
            Just("{{"),
            Just("}}"),
            Just("|"),
            Just("ä"),
            Just("id"),
            Just("{id}"),
            Just("a b"),
        ];
        proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }
}
