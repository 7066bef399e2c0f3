//! Values of a config that mean more than their text or number does.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use postrider_core::time::parse_duration;
use postrider_core::{Error, Result};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::args;

/// A text that says a `T`, as on the command line. Numbers and times without quotes are taken for their texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said<T>(pub(super) T);

impl<'de, T: FromStr<Err = Error>> Deserialize<'de> for Said<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(SaidVisitor(PhantomData)).map(Said)
    }
}

struct SaidVisitor<T>(PhantomData<T>);

impl<'de, T: FromStr<Err = Error>> Visitor<'de> for SaidVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in quotes")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> std::result::Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<T, A::Error> {
        let time = toml::value::Datetime::deserialize(MapAccessDeserializer::new(map));
        let time = time.map_err(|_| A::Error::custom("it is a table, and should be a text in quotes"))?;
        self.visit_str(&time.to_string())
    }
}

impl<T> JsonSchema for Said<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Text".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"] })
    }
}

/// How long an attempt or a lease may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Length(pub(super) Duration);

impl FromStr for Length {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse_duration(text).map(Self)
    }
}

/// How long a drain may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DrainWithin(pub(super) Duration);

impl FromStr for DrainWithin {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        args::drain_within(text).map(Self)
    }
}

/// How long delivered events are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Retention(pub(super) Duration);

impl FromStr for Retention {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        args::retention(text).map(Self)
    }
}

/// How much of its write-ahead log a server may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WalBudget(pub(super) u64);

impl FromStr for WalBudget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        args::wal_budget(text).map(Self)
    }
}

/// A whole number from 1 to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UpTo<const MAX: u32>(pub(super) u32);

impl<'de, const MAX: u32> Deserialize<'de> for UpTo<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        match u32::try_from(number) {
            Ok(number) if (1..=MAX).contains(&number) => Ok(Self(number)),
            _ => Err(D::Error::custom(format!("{number} is out of bounds: use 1 to {MAX}"))),
        }
    }
}

impl<const MAX: u32> JsonSchema for UpTo<MAX> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("From1To{MAX}").into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": MAX })
    }
}

/// One or several: `"order"` or `["order", "invoice.*"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Several<T>(pub(super) Vec<T>);

impl<T> Default for Several<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: FromStr<Err = Error>> Deserialize<'de> for Several<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct SeveralVisitor<T>(PhantomData<T>);

        impl<'de, T: FromStr<Err = Error>> Visitor<'de> for SeveralVisitor<T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes, or a list of them")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Vec<T>, E> {
                Ok(vec![text.parse().map_err(E::custom)?])
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> std::result::Result<Vec<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(Said(one)) = list.next_element()? {
                    all.push(one);
                }
                Ok(all)
            }
        }
        deserializer.deserialize_any(SeveralVisitor(PhantomData)).map(Self)
    }
}

impl<T> JsonSchema for Several<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TextOrTexts".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "array"], "items": { "type": "string" } })
    }
}
