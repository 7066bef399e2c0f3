//! A table `[sinks.NAME]`: `type = "file"` with the options of that kind, or `url = "file:events.jsonl"`.

use postrider_sinks::SinkSpec;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{Document, Table};
use super::problem::did_you_mean;

/// Reads a sink; none, with its mistakes noted, if it is none.
pub(super) fn read<'t>(document: &mut Document<'t>, table: &Table<'t>) -> Option<SinkSpec> {
    let mut options = table.get_ref().clone();
    let (kind, url) = (options.remove("type"), options.get("url").cloned());
    match (kind, url) {
        (Some(kind), _) => {
            let Some(word) = kind.get_ref().as_str().map(str::to_owned) else {
                document.problem(kind.span(), "`type` is a text, such as \"file\"", None);
                return None;
            };
            of_kind(document, Spanned::new(kind.span(), word), &Spanned::new(table.span(), options))
        }
        (None, Some(url)) => {
            let Some(text) = url.get_ref().as_str() else {
                document.problem(url.span(), "`url` is a text, such as \"file:events.jsonl\"", None);
                return None;
            };
            for key in options.keys().filter(|key| key.get_ref() != "url") {
                let hint = "write type = \"…\" instead of url, with the options of that kind".to_owned();
                document.problem(key.span(), format!("`{}` stands beside `url`", key.get_ref()), Some(hint));
            }
            SinkSpec::from_argument(text)
                .map_err(|error| document.problem(url.span(), error.to_string(), None))
                .ok()
        }
        (None, None) => {
            let hint =
                format!("write type = \"file\" and its options, or url = \"…\": {}", SinkSpec::forms());
            document.problem(table.span(), "it does not say what kind of sink it is", Some(hint));
            None
        }
    }
}

/// The options of a kind, which a sink's own reader expects below the word for it.
fn of_kind<'t>(document: &mut Document<'t>, kind: Spanned<String>, options: &Table<'t>) -> Option<SinkSpec> {
    let (kind_span, word, table_span) = (kind.span(), kind.into_inner(), options.span());
    if is_unknown(&word) {
        let kinds = kinds();
        let known = kinds.iter().map(String::as_str);
        let meant = if word == "webhook" {
            Some("did you mean `http`?".to_owned())
        } else {
            did_you_mean(&word, known)
        };
        let hint = meant.unwrap_or_else(|| format!("use {}", kinds.join(", ")));
        document.problem(kind_span, format!("there is no type of sink `{word}`"), Some(hint));
        return None;
    }
    document.read_as(options, |options| {
        let below = Spanned::new(table_span.clone(), DeValue::Table(options));
        let key = Spanned::new(kind_span.clone(), word.clone().into());
        let table: DeTable<'_> = [(key, below)].into_iter().collect();
        SinkSpec::deserialize(toml::de::Deserializer::from(Spanned::new(table_span.clone(), table)))
    })
}

/// Whether a sink's own reader does not know a kind.
fn is_unknown(word: &str) -> bool {
    let refused = serde_json::from_value::<SinkSpec>(json!({ word: {} })).err();
    refused.is_some_and(|refused| refused.to_string().contains(&format!(" no sink `{word}`")))
}

/// What can be written as `type`.
pub(super) fn kinds() -> Vec<String> {
    let by_kind = SinkSpec::json_schema(&mut SchemaGenerator::default());
    let shapes = by_kind.get("anyOf").and_then(Value::as_array).cloned().unwrap_or_default();
    let named = |shape: &Value| shape.get("properties").and_then(Value::as_object).cloned();
    shapes.iter().filter_map(named).flat_map(|kinds| kinds.into_iter().map(|(kind, _)| kind)).collect()
}

/// What can be written in `[sinks.NAME]`, for the schema.
pub(super) struct SinkKeys;

impl JsonSchema for SinkKeys {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SinkTable".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let by_kind = SinkSpec::json_schema(generator);
        let shapes = by_kind.get("anyOf").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut tables = vec![json!({
            "type": "object",
            "properties": { "url": { "type": "string", "description": "The sink as after --sink" } },
            "required": ["url"],
            "additionalProperties": false,
        })];
        for shape in shapes {
            let Some(properties) = shape.get("properties").and_then(Value::as_object) else { continue };
            for (kind, options) in properties {
                tables.push(with_type(kind, options, generator));
            }
        }
        json_schema!({ "description": "Where events go", "anyOf": tables })
    }
}

/// The options of a kind together with the key `type`.
fn with_type(kind: &str, options: &Value, generator: &SchemaGenerator) -> Value {
    let named = options.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    let mut table = named.and_then(|name| generator.definitions().get(name)).unwrap_or(options).clone();
    if let Some(table) = table.as_object_mut() {
        let properties = table.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert("type".to_owned(), json!({ "const": kind }));
        }
        let required = table.entry("required").or_insert_with(|| json!([]));
        if let Some(required) = required.as_array_mut() {
            required.insert(0, json!("type"));
        }
    }
    table
}
