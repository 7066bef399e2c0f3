//! Where a webhook's requests go: its URL, once it is known.

use std::fmt;

use hyper::Uri;
use postrider_core::{Delivery, Error, Failure, Result};

use super::answer::Reach;
use super::guard::Guard;
use crate::{Secret, Template};

/// The URL of a webhook as config gives it: itself, or where it is written, since many hold a token:
/// `env:NAME` or `file:/path`.
///
/// It is shown without its path and query. A URL with a login is refused at once, and no error repeats it.
#[derive(Clone, PartialEq, Eq)]
pub enum HttpUrl {
    /// The template itself.
    Here(Template),
    /// Where it is.
    Elsewhere(Secret),
}

impl HttpUrl {
    /// Reads what config says.
    pub fn parse(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some(("env" | "file", _)) => text.parse().map(Self::Elsewhere),
            _ => template(text).map(Self::Here),
        }
    }

    /// The URL as it is now.
    pub(super) fn read(&self) -> Result<Target> {
        Ok(Target(match self {
            Self::Here(template) => template.clone(),
            Self::Elsewhere(place) => template(place.read()?.expose())?,
        }))
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(template) => Target(template.clone()).fmt(f),
            Self::Elsewhere(place) => place.fmt(f),
        }
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpUrl({self})")
    }
}

impl<'de> serde::Deserialize<'de> for HttpUrl {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&std::borrow::Cow::<str>::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for HttpUrl {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HttpUrl".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A URL, with placeholders over an event where wanted, or where it is written: env:NAME or file:/path.",
        })
    }
}

/// A URL that was read. Shown by its scheme and host: people put tokens in paths and queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target(Template);

impl Target {
    /// Whether what is wrong with the URL is wrong for all events.
    pub(super) fn url_reach(&self) -> Reach {
        if self.0.is_constant() { Reach::All } else { Reach::Some }
    }

    /// The same of its host.
    pub(super) fn host_reach(&self) -> Reach {
        if self.authority().contains('{') { Reach::Some } else { Reach::All }
    }

    pub(super) fn as_constant(&self) -> Option<&str> {
        self.0.as_constant()
    }

    /// The host and port as they are written, placeholders and all.
    pub(super) fn authority(&self) -> String {
        authority(&self.0.to_string()).to_owned()
    }

    /// Without its path, which may hold placeholders, whose braces no URL may have.
    pub(super) fn host_url(&self) -> Result<Uri> {
        let text = self.0.to_string();
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        format!("{scheme}://{}/", self.authority()).parse().map_err(|_| no_url())
    }

    /// The URL of one event. What comes from the event stays one piece of it.
    pub(super) fn url_for(&self, delivery: &Delivery) -> Result<Uri, Failure> {
        let text = self.0.render_escaped(delivery, |_, value| escape(value))?;
        text.parse().map_err(|_| {
            Failure::permanent("what the sink's `url` becomes with this event is no URL: change it, or emit the event otherwise")
        })
    }

    pub(super) fn check(&self, guard: &Guard) -> Result<()> {
        let text = self.0.to_string();
        if text.contains('#') {
            return Err(Error::invalid(
                "the `url` of a webhook has a fragment, which is never sent: leave out the # and the rest",
            ));
        }
        if self.host_reach() == Reach::Some {
            let scheme = text.split_once("://").map(|(scheme, _)| scheme);
            return if matches!(scheme, Some("https" | "http")) { Ok(()) } else { Err(no_url()) };
        }
        let url = self.host_url()?;
        if let Some(constant) = self.as_constant() {
            constant.parse::<Uri>().map_err(|_| no_url())?;
        }
        guard
            .check_url(&url)
            .map_err(|refused| Error::invalid(format!("a webhook cannot be sent: {refused}")))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let (scheme, rest) = text.split_once("://").unwrap_or(("https", ""));
        let authority = authority(&text);
        let more = if rest.trim_start_matches(authority).len() > 1 { "/…" } else { "/" };
        write!(f, "{scheme}://{authority}{more}")
    }
}

/// What stands between the scheme and the path.
fn authority(text: &str) -> &str {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// Errors repeat nothing of it.
fn template(text: &str) -> Result<Template> {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    let head = rest.split(['/', '?']).next().unwrap_or_default();
    // A careless password may contain what ends a host; then what follows the colon is no port.
    let is_port = |text: &str| text.starts_with('{') || text.bytes().all(|byte| byte.is_ascii_digit());
    let is_cut_password =
        !head.starts_with('[') && head.split_once(':').is_some_and(|(_, port)| !is_port(port));
    if head.contains('@') || (is_cut_password && rest.contains('@')) {
        return Err(Error::invalid(
            "the URL of a webhook has a login: put it in `headers` as authorization, as env:NAME or file:/path",
        ));
    }
    text.parse().map_err(|error: Error| {
        let error = error.to_string();
        let reason = error.rsplit_once("`, column ").map_or("it is no template", |(_, reason)| reason);
        Error::invalid(format!("the URL of a webhook, column {reason}"))
    })
}

pub(super) fn no_url() -> Error {
    Error::invalid("the `url` of a webhook is no URL: write https://HOST/PATH")
}

/// Keeps what an event brings from becoming another part of the URL, a step up in its path among them.
fn escape(value: &str) -> String {
    if !value.is_empty() && value.bytes().all(|byte| byte == b'.') {
        return "%2E".repeat(value.len());
    }
    crate::envelope::uri_piece(value)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_core::Key;

    use super::*;
    use crate::sample::delivery;

    #[test]
    fn what_an_event_brings_stays_one_piece_of_the_url() {
        let with_key = |key: &str| {
            let mut delivery = delivery(1, b"");
            Arc::make_mut(&mut delivery.event).key = Some(Key::new(key));
            delivery
        };
        let url = |text: &str, key: &str| {
            Target(template(text).unwrap()).url_for(&with_key(key)).map(|url| url.to_string())
        };
        assert_eq!(url("https://h/a/{key}?k={key}", "1").unwrap(), "https://h/a/1?k=1");
        assert_eq!(
            url("https://h/a/{key}/b", "../x?y#z&ü").unwrap(),
            "https://h/a/..%2Fx%3Fy%23z%26%C3%BC/b"
        );
        assert_eq!(url("https://h/a/{key}", "..").unwrap(), "https://h/a/%2E%2E");
        assert_eq!(url("https://{key}.h/", "evil.example/x").ok(), None, "no part of a host holds an escape");
        assert_eq!(url("https://{key}/", "user@evil.example").ok(), None);
    }

    #[test]
    fn a_url_is_shown_by_its_host_alone() {
        for (text, shown) in [
            ("https://hooks.example.com/services/T0/canary", "https://hooks.example.com/…"),
            ("https://h:8443/x?token=canary", "https://h:8443/…"),
            ("https://h?token=canary", "https://h/…"),
            ("https://h/", "https://h/"),
            ("https://h", "https://h/"),
            ("https://{header.host}/canary", "https://{header.host}/…"),
            ("env:HOOK_URL", "env:HOOK_URL"),
            ("file:/run/secrets/hook", "file:/run/secrets/hook"),
        ] {
            let url = HttpUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), shown);
            assert!(!format!("{url:?}").contains("canary"));
        }
    }

    #[test]
    fn a_login_is_refused_before_anything_is_shown() {
        for bad in [
            "https://u:canary@h/x",
            "https://canary@h",
            "https://u:can/ary@h/x",
            "https://u:canary@{header.host}/",
        ] {
            let error = HttpUrl::parse(bad).unwrap_err().to_string();
            assert!(error.contains("has a login") && !error.contains("can"), "{error}");
        }
        for good in
            ["https://h/@user", "https://h/x?mail=a@b.c", "https://h:8443/users/a@b", "https://[::1]:1/a@b"]
        {
            HttpUrl::parse(good).unwrap();
        }
    }
}
