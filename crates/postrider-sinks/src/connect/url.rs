//! The URL of a broker, as `--sink` and config give it.
//!
//! ```text
//!   kafka://user:password@one:9092,two:9092/orders.{type}?acks=all
//!   ^scheme ^login        ^hosts             ^path          ^options
//! ```
//!
//! Brokers are clusters, so there may be several hosts, which the URLs of browsers do not allow.

use std::fmt;

use postrider_core::{Error, Result};

use crate::Secret;

/// A URL in its parts, percent-decoded. Shown without its password.
///
/// ```
/// use postrider_sinks::SinkUrl;
/// let url = SinkUrl::parse("kafka://me:s%40fe@one:9092,[::1]/orders.{type}")?;
/// assert_eq!(url.hosts, [("one".to_owned(), Some(9092)), ("::1".to_owned(), None)]);
/// assert_eq!(url.path, "orders.{type}");
/// assert_eq!(url.password.as_ref().unwrap().read()?.expose(), "s@fe");
/// assert_eq!(url.to_string(), "kafka://me:***@one:9092,[::1]/orders.{type}");
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkUrl {
    /// What stands before `://`.
    pub scheme: String,
    /// Who logs in.
    pub user: Option<String>,
    /// The password itself.
    pub password: Option<Secret>,
    /// Hosts with their ports, at least one. Addresses of IPv6 have no brackets here.
    pub hosts: Vec<(String, Option<u16>)>,
    /// What follows the hosts, without its first `/`.
    pub path: String,
    /// What follows the `?`.
    pub options: Vec<(String, String)>,
}

impl SinkUrl {
    /// Takes a text apart. Errors repeat the scheme alone, since the rest may hold a password.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |reason: &str| Error::invalid(format!("sink `{}`: {reason}", scheme_only(text)));
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("it needs `//` and a host: write SCHEME://HOST/PATH"))?;
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // The last @ ends the login: a careless password may contain one.
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let decoded = |part: &str, what: &str| {
            percent_decoded(part)
                .ok_or_else(|| wrong(&format!("{what} is no UTF-8 once its %XX are decoded")))
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None => (None, None),
            Some((user, password)) => (
                Some(decoded(user, "the user")?).filter(|user| !user.is_empty()),
                Some(decoded(password, "the password")?).filter(|text| !text.is_empty()).map(Secret::here),
            ),
        };
        let hosts = hosts.split(',').map(|host| host_and_port(host).map_err(wrong)).collect::<Result<_>>()?;
        let mut options = Vec::new();
        for pair in query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            options.push((decoded(name, "an option")?, decoded(value, "an option")?));
        }
        let path = decoded(path, "the path")?;
        Ok(Self { scheme: scheme.to_owned(), user, password, hosts, path, options })
    }

    /// Takes an option out, so that what is left at the end is unknown: see [`SinkUrl::no_more_options`].
    pub fn take_option(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(option, _)| option == name)?;
        Some(self.options.remove(at).1)
    }

    /// Takes out an option that is true or false; absent it is false.
    pub fn take_flag(&mut self, name: &str) -> Result<bool> {
        let Some(word) = self.take_option(name) else { return Ok(false) };
        word.parse().map_err(|_| {
            let scheme = &self.scheme;
            Error::invalid(format!("option `{name}` of sink `{scheme}:…`: write {name}=true or {name}=false"))
        })
    }

    /// Refuses options that the sink has not taken out.
    pub fn no_more_options(&self, known: &str) -> Result<()> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => Err(Error::invalid(format!(
                "sink `{}:…` has no option `{}` in its URL: use {known}, or the config file for all options",
                self.scheme,
                name.escape_debug()
            ))),
        }
    }

    /// The hosts as `HOST:PORT`, with the protocol's usual port where none was given.
    pub fn addresses(&self, usual_port: u16) -> Vec<String> {
        self.hosts.iter().map(|(host, port)| address(host, port.unwrap_or(usual_port))).collect()
    }
}

/// What may be repeated in an error: a broker's URL can hold a password.
pub(crate) fn scheme_only(text: &str) -> String {
    match text.split_once(':') {
        Some((scheme, _)) => format!("{}:…", scheme.escape_default()),
        None => text.escape_default().to_string(),
    }
}

fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn host_and_port(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("an address of IPv6 lacks its ]")?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or(BAD_HOST)?) })
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err("it lacks a host: write SCHEME://HOST/PATH");
    }
    if host.contains(|c: char| c.is_control() || c.is_whitespace() || "@/\\[]%".contains(c)) {
        return Err(BAD_HOST);
    }
    let port = port.map(|port| port.parse().map_err(|_| "a port is not a number from 0 to 65535"));
    Ok((host.to_owned(), port.transpose()?))
}

const BAD_HOST: &str =
    "a host contains what no host's name can: write %40 for an @ in a password, [::1] for IPv6";

fn percent_decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            plain.push(byte);
            at += 3;
        } else {
            plain.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(plain).ok()
}

impl fmt::Display for SinkUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if let Some(user) = &self.user {
            let password = if self.password.is_some() { ":***" } else { "" };
            write!(f, "{user}{password}@")?;
        }
        for (index, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match port {
                Some(port) => write!(f, "{comma}{}", address(host, *port))?,
                None if host.contains(':') => write!(f, "{comma}[{host}]")?,
                None => write!(f, "{comma}{host}")?,
            }
        }
        if !self.path.is_empty() {
            write!(f, "/{}", self.path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = SinkUrl::parse("amqps://u%3A:p@ss@h:1/a/b%20{key|x}?x=1&y&z=%26").unwrap();
        assert_eq!((&*url.scheme, url.user.as_deref()), ("amqps", Some("u:")));
        assert_eq!(url.password.as_ref().unwrap().read().unwrap().expose(), "p@ss");
        assert_eq!((url.addresses(5672), &*url.path), (vec!["h:1".to_owned()], "a/b {key|x}"));
        let options: Vec<_> = url.options.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(options, [("x", "1"), ("y", ""), ("z", "&")]);
        assert!(!format!("{url} {url:?}").contains("p@ss"));

        let plain = SinkUrl::parse("nats://a,[::1],b:7").unwrap();
        assert_eq!(plain.addresses(4222), ["a:4222", "[::1]:4222", "b:7"]);
        assert_eq!((plain.user, plain.password, &*plain.path), (None, None, ""));
    }

    #[test]
    fn options_are_taken_once_and_strangers_are_refused() {
        let mut url = SinkUrl::parse("redis://h/s?maxlen=10&oops=1").unwrap();
        assert_eq!(url.take_option("maxlen").as_deref(), Some("10"));
        assert_eq!(url.take_option("maxlen"), None);
        assert!(url.no_more_options("maxlen").unwrap_err().to_string().contains("no option `oops`"));
        url.take_option("oops");
        url.no_more_options("maxlen").unwrap();
    }

    #[test]
    fn mistakes_are_refused_and_no_password_is_repeated() {
        for bad in [
            "kafka:host",
            "kafka://",
            "kafka://u:secret@",
            "kafka://u:secret@a,,b",
            "kafka://u:secret@h:x",
            "kafka://u:secret@h:70000",
            "kafka://u:secret@[::1",
            "kafka://u:secret@[::1]x",
            "kafka://u:%FFsecret@h",
            "kafka://u:secret@a b",
        ] {
            let error = SinkUrl::parse(bad).unwrap_err().to_string();
            assert!(error.starts_with("sink `kafka:…`: ") && !error.contains("secret"), "{bad}: {error}");
        }
    }
}
