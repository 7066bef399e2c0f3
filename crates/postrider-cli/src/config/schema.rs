//! The JSON schema of config files, for editors and checkers.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::keys::FileKeys;

/// The schema, as it is committed in `docs/postrider.schema.json`.
pub(crate) fn schema() -> String {
    let schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<FileKeys>();
    let value = Value::from(schema);
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run with POSTRIDER_RENEW_SCHEMA=1 to write it again.
    #[test]
    fn the_committed_schema_is_that_of_the_keys() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/postrider.schema.json");
        if std::env::var_os("POSTRIDER_RENEW_SCHEMA").is_some() {
            std::fs::write(path, schema()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == schema(),
            "docs/postrider.schema.json is not that of the keys: run this test with POSTRIDER_RENEW_SCHEMA=1"
        );
    }
}
