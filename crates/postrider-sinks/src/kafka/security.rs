//! How connections to Kafka are encrypted, and how we log in.
//!
//! | | no login | a login |
//! |---|---|---|
//! | plain | `plaintext` | `sasl_plaintext` |
//! | TLS | `ssl` | `sasl_ssl` |
//!
//! librdkafka has TLS and SCRAM from OpenSSL alone, which only builds with the feature `kafka-tls` link. The
//! options are the same in every build, so that one schema fits all; a build without it refuses to do as they
//! say.

use std::fs::File;
use std::path::Path;
use std::str::FromStr;

use postrider_core::{Error, Result};
use rdkafka::ClientConfig;
use serde::{Deserialize, Deserializer};

use super::KafkaOptions;
use crate::connect::login::Login;

const HAS_TLS: bool = cfg!(feature = "kafka-tls");

/// How a password is shown to a broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Sasl {
    /// As it is.
    #[default]
    Plain,
    /// By a proof that one knows it, with SHA-256.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// By a proof that one knows it, with SHA-512.
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

impl Sasl {
    const ALL: [Self; 3] = [Self::Plain, Self::ScramSha256, Self::ScramSha512];

    /// The word for it in config and URLs; Kafka has the same in capitals.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::ScramSha256 => "scram-sha-256",
            Self::ScramSha512 => "scram-sha-512",
        }
    }
}

impl FromStr for Sasl {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == word).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid(format!("there is no `sasl` `{}`: use one of {words}", word.escape_debug()))
        })
    }
}

/// Tells the client how to connect. Reads the password.
pub(super) fn apply(config: &mut ClientConfig, options: &KafkaOptions) -> Result<()> {
    let files = [&options.ca_file, &options.cert_file, &options.key_file];
    let has_files = files.iter().any(|file| file.is_some());
    refuse_unless(HAS_TLS, options.tls || has_files || options.sasl != Sasl::Plain)?;
    let login = match (&options.user, &options.password) {
        (Some(user), Some(password)) => Some((user, password.read()?)),
        (None, None) if options.sasl == Sasl::Plain => None,
        (None, None) => {
            return Err(Error::invalid(
                "sink `kafka` has `sasl` and nobody who logs in: give `user` and `password`",
            ));
        }
        _ => return Err(Error::invalid("sink `kafka` has a user or a password: give both, or neither")),
    };
    Login {
        sink: "kafka",
        servers: &options.brokers,
        is_given: login.is_some(),
        tls: options.tls,
        may_be_clear: options.login_in_clear,
    }
    .check()?;
    config.set(
        "security.protocol",
        match (options.tls, &login) {
            (false, None) => "plaintext",
            (false, Some(_)) => "sasl_plaintext",
            (true, None) => "ssl",
            (true, Some(_)) => "sasl_ssl",
        },
    );
    if let Some((user, password)) = login {
        config.set("sasl.mechanism", options.sasl.as_str().to_uppercase());
        config.set("sasl.username", user).set("sasl.password", password.expose());
    }
    match (options.tls, has_files) {
        (true, _) => apply_tls(config, options),
        (false, false) => Ok(()),
        (false, true) => Err(Error::invalid(
            "sink `kafka` has files for TLS and does not speak it: write tls = true, or kafkas://… as its URL",
        )),
    }
}

fn apply_tls(config: &mut ClientConfig, options: &KafkaOptions) -> Result<()> {
    if options.cert_file.is_some() != options.key_file.is_some() {
        return Err(Error::invalid("sink `kafka` has a `cert_file` or a `key_file`: give both, or neither"));
    }
    // The client's defaults, and not to be anything else: a broker proves that it is the one we meant.
    config.set("enable.ssl.certificate.verification", "true");
    config.set("ssl.endpoint.identification.algorithm", "https");
    for (option, setting, file) in [
        ("ca_file", "ssl.ca.location", &options.ca_file),
        ("cert_file", "ssl.certificate.location", &options.cert_file),
        ("key_file", "ssl.key.location", &options.key_file),
    ] {
        if let Some(path) = file {
            config.set(setting, readable(option, path)?);
        }
    }
    Ok(())
}

/// The client would tell of a file that is not there in words of OpenSSL.
fn readable<'a>(option: &str, path: &'a Path) -> Result<&'a str> {
    let wrong = |reason: &str| {
        Error::invalid(format!("the `{option}` of sink `kafka`, `{}`, {reason}", path.display()))
    };
    File::open(path).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    path.to_str().ok_or_else(|| wrong("has a name that is not UTF-8: rename it"))
}

/// Refuses what a URL asks for if this build cannot do it.
pub(super) fn of_this_build<T: Default + PartialEq>(asked: T) -> Result<T> {
    refuse_unless(HAS_TLS, asked != T::default())?;
    Ok(asked)
}

/// Likewise in config, where the refusal is told with its line.
pub(super) fn from_config<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default + PartialEq,
{
    of_this_build(T::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn refuse_unless(has_tls: bool, is_asked: bool) -> Result<()> {
    if has_tls || !is_asked {
        return Ok(());
    }
    Err(Error::invalid(
        "this build speaks neither TLS nor SCRAM with Kafka: build Postrider with the feature `kafka-tls`, which links OpenSSL",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    #[test]
    fn a_build_without_openssl_says_which_feature_it_lacks() {
        let refused = refuse_unless(false, true).unwrap_err().to_string();
        assert!(refused.contains("the feature `kafka-tls`"), "{refused}");
        assert!(refuse_unless(false, false).is_ok() && refuse_unless(true, true).is_ok());
        assert_eq!(of_this_build(true).is_ok(), HAS_TLS);
        assert_eq!(of_this_build("scram-sha-256".parse::<Sasl>().unwrap()).is_ok(), HAS_TLS);
        assert!(of_this_build(Sasl::Plain).is_ok() && of_this_build(false).is_ok());
    }

    #[test]
    fn a_login_without_tls_stays_on_this_machine_unless_config_says_otherwise() {
        let mut options = KafkaOptions::new("h", "t".parse().unwrap()).unwrap();
        (options.user, options.password) = (Some("me".to_owned()), Some(Secret::here("canary")));
        let mut config = ClientConfig::new();
        let refused = apply(&mut config, &options).unwrap_err().to_string();
        assert!(
            refused.contains("login_in_clear = true") && config.get("sasl.password").is_none(),
            "{refused}"
        );
        options.login_in_clear = true;
        apply(&mut config, &options).unwrap();
        assert_eq!(config.get("security.protocol"), Some("sasl_plaintext"));
        assert_eq!(config.get("sasl.mechanism"), Some("PLAIN"));
        assert_eq!(config.get("sasl.password"), Some("canary"));
    }

    #[cfg(feature = "kafka-tls")]
    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pem");
        std::fs::write(&file, "x").unwrap();
        let there = serde_json::to_string(&file).unwrap();
        for (more, reason) in [
            (r#""sasl": "scram-sha-512""#.to_owned(), "nobody who logs in"),
            (r#""user": "me", "sasl": "scram-sha-512""#.to_owned(), "give both, or neither"),
            (format!(r#""ca_file": {there}"#), "does not speak it"),
            (format!(r#""tls": true, "cert_file": {there}"#), "give both, or neither"),
            (
                r#""tls": true, "ca_file": "/no/such""#.to_owned(),
                "the `ca_file` of sink `kafka`, `/no/such`, cannot be read",
            ),
        ] {
            let json = format!(r#"{{"brokers": ["h"], "topic": "t", {more}}}"#);
            let options: KafkaOptions = serde_json::from_str(&json).unwrap();
            let error = apply(&mut ClientConfig::new(), &options).unwrap_err().to_string();
            assert!(error.contains(reason), "{json}: {error}");
        }
    }
}
