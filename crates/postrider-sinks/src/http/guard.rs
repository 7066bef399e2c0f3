//! Which addresses may be spoken to.
//!
//! A webhook's URL may come from a customer or, by a template, from an event. Such a URL must not make
//! Postrider speak to the machine's own services or to the metadata service of a cloud. So this connector
//! resolves names itself, refuses a name if any of its addresses is not public, and connects to the very
//! addresses that it has looked at. Everything that makes connections goes through it, so numbers for hosts,
//! in whatever notation, pass it like names.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_util::rt::TokioIo;
use postrider_core::{Error, Result};
use rustls::pki_types::ServerName;
use serde::{Deserialize, Deserializer};
use tokio::net::TcpStream;
use tower_service::Service;

/// One line of the allow-list: a host by its name, or a network such as `10.1.0.0/16`.
///
/// ```
/// use postrider_sinks::http::Allowed;
/// assert!("hooks.internal".parse::<Allowed>().is_ok() && "10.1.0.0/16".parse::<Allowed>().is_ok());
/// assert!("10.1.0.0/33".parse::<Allowed>().is_err() && "http://hooks".parse::<Allowed>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// A host as the URL names it; it may be spoken to without TLS, wherever it is.
    Host(String),
    /// Addresses, in so many leading bits.
    Network(IpAddr, u8),
}

impl FromStr for Allowed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let shown = text.escape_debug();
            Error::invalid(format!(
                "`{shown}` cannot be allowed: write a host's name, an address, or a network as 10.1.0.0/16"
            ))
        };
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| wrong())?;
            let bits: u8 = bits.parse().map_err(|_| wrong())?;
            let bits_max = if address.is_ipv4() { 32 } else { 128 };
            return if bits <= bits_max { Ok(Self::Network(address, bits)) } else { Err(wrong()) };
        }
        let host = canonical(text);
        let is_address = host.parse::<IpAddr>().is_ok();
        let bad = |c: char| !(c.is_alphanumeric() || "-_.".contains(c));
        if host.is_empty() || (!is_address && host.contains(bad)) {
            Err(wrong())
        } else {
            Ok(Self::Host(host))
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Network(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

impl<'de> Deserialize<'de> for Allowed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Allowed {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Allowed".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "description": "A host's name, an address, or a network as 10.1.0.0/16."})
    }
}

/// Where requests may go: a host by its name or address, or `*.example.com` for every host below that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern(String);

impl HostPattern {
    pub(super) fn matches(&self, host: &str) -> bool {
        let host = canonical(host);
        match self.0.strip_prefix('*') {
            Some(ending) => host.len() > ending.len() && host.ends_with(ending),
            None => host == self.0,
        }
    }
}

impl FromStr for HostPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let name = text.strip_prefix("*.").unwrap_or(text);
        match name.parse() {
            Ok(Allowed::Host(host)) if name.len() == text.len() => Ok(Self(host)),
            Ok(Allowed::Host(host)) => Ok(Self(format!("*.{host}"))),
            _ => Err(Error::invalid(format!(
                "`{}` cannot stand in `hosts`: write a host's name, or *.example.com for all below it",
                text.escape_debug()
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for HostPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for HostPattern {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HostPattern".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "description": "A host's name, or *.example.com for every host below it."})
    }
}

/// Lower case, no brackets, no dot at the end: names that mean the same are the same.
fn canonical(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Why nothing was sent. Found again in the chain of hyper's errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    told: String,
    /// The same without the host, for one that an event has named: what events hold belongs in no log.
    discreet: &'static str,
}

impl Refused {
    pub(super) fn discreet(&self) -> &'static str {
        self.discreet
    }

    /// Of a host that is not among those that are listed.
    pub(super) fn not_listed(host: &str) -> Self {
        Self { told: format!("`{host}` is not among `hosts`"), discreet: "its host is not among `hosts`" }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told)
    }
}

impl std::error::Error for Refused {}

/// Makes connections, to allowed addresses alone.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    allow: Arc<[Allowed]>,
}

impl Guard {
    pub(super) fn new(allow: &[Allowed]) -> Self {
        Self { allow: allow.into() }
    }

    fn allows_host(&self, host: &str) -> bool {
        self.allow.iter().any(|allowed| matches!(allowed, Allowed::Host(name) if *name == canonical(host)))
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        let listed = |allowed: &Allowed| matches!(allowed, Allowed::Network(network, bits) if within(address, *network, *bits));
        is_public(address) || self.allow.iter().any(listed)
    }

    /// What can be said of a URL before its name is resolved.
    pub(super) fn check_url(&self, url: &Uri) -> Result<(), Refused> {
        let refused = |told: String, discreet| Err(Refused { told, discreet });
        let plain = |told: &'static str| Err(Refused { told: told.to_owned(), discreet: told });
        let Some(host) = url.host().filter(|host| !host.is_empty()) else {
            return plain("the URL has no host");
        };
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return plain("the URL has a login: put it in `headers` as authorization");
        }
        match url.scheme_str() {
            // A host that is neither a name nor an address in the usual notation has no certificate either.
            Some("https") if ServerName::try_from(canonical(host)).is_err() => refused(
                format!("`{host}` is neither a host's name nor an address: correct the URL"),
                "its host is neither a name nor an address",
            ),
            Some("https") => Ok(()),
            Some("http") if self.allows_host(host) => Ok(()),
            Some("http") => refused(
                format!(
                    "`{host}` would be spoken to without encryption: use https, or put `{host}` in `allow`, a key of the sink's table in a config file"
                ),
                "its host would be spoken to without encryption",
            ),
            _ => plain("the URL is neither https nor http"),
        }
    }

    /// All addresses of a name, if every one of them may be spoken to.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let addresses: Vec<_> = tokio::net::lookup_host((canonical(host), port)).await?.collect();
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        if !self.allows_host(host)
            && let Some(bad) = addresses.iter().find(|address| !self.allows_address(address.ip()))
        {
            let ip = bad.ip();
            return Err(io::Error::other(Refused {
                told: format!(
                    "`{host}` leads to {ip}, which is no public address: put `{host}` in `allow`, a key of the sink's table in a config file, if that is meant"
                ),
                discreet: "its host leads to an address that is not public",
            }));
        }
        Ok(addresses)
    }

    async fn connect(self, url: Uri) -> io::Result<TokioIo<TcpStream>> {
        self.check_url(&url).map_err(io::Error::other)?;
        let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
        let addresses = self.resolve(url.host().unwrap_or_default(), port).await?;
        // In turn, within the time limit of the request.
        let stream = TcpStream::connect(&addresses[..]).await?;
        stream.set_nodelay(true)?;
        Ok(TokioIo::new(stream))
    }
}

impl Service<Uri> for Guard {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        Box::pin(self.clone().connect(url))
    }
}

fn within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            address.to_bits() & mask == network.to_bits() & mask
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            address.to_bits() & mask == network.to_bits() & mask
        }
        // An address of IPv4 in the clothes of IPv6 is what it is.
        (IpAddr::V6(address), IpAddr::V4(_)) => {
            address.to_ipv4_mapped().is_some_and(|address| within(address.into(), network, bits))
        }
        (IpAddr::V4(_), IpAddr::V6(_)) => false,
    }
}

/// Addresses without an owner, of this machine or of a private network, by the registries of such addresses.
const NOT_PUBLIC_V4: &[(Ipv4Addr, u8)] = &[
    (Ipv4Addr::UNSPECIFIED, 8),           // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),      // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),   // behind a carrier's translation; also metadata of one cloud
    (Ipv4Addr::new(127, 0, 0, 0), 8),     // loopback
    (Ipv4Addr::new(169, 254, 0, 0), 16),  // link-local, metadata of clouds
    (Ipv4Addr::new(172, 16, 0, 0), 12),   // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),    // protocols; metadata of one cloud
    (Ipv4Addr::new(192, 0, 2, 0), 24),    // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),  // relays of 6to4
    (Ipv4Addr::new(192, 168, 0, 0), 16),  // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),   // measurements
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),  // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),     // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),     // reserved, broadcast
];

/// Within 2000::/3, outside of which nothing is public.
const NOT_PUBLIC_V6: &[(Ipv6Addr, u8)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocols, Teredo among them
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4, which may hold any address of IPv4
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => {
            !NOT_PUBLIC_V4.iter().any(|(network, bits)| within(address, IpAddr::V4(*network), *bits))
        }
        // Mapped addresses of IPv4 and the prefix of NAT64 lie outside of it.
        IpAddr::V6(_) => {
            let global = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0);
            within(address, IpAddr::V6(global), 3)
                && !NOT_PUBLIC_V6.iter().any(|(network, bits)| within(address, IpAddr::V6(*network), *bits))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allow: &[&str]) -> Guard {
        Guard::new(&allow.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn hosts_are_listed_by_name_or_all_below_one() {
        let matches = |pattern: &str, host: &str| pattern.parse::<HostPattern>().unwrap().matches(host);
        assert!(matches("a.example.com", "A.example.com.") && matches("*.example.com", "a.b.example.com"));
        assert!(!matches("*.example.com", "example.com") && !matches("*.example.com", "evilexample.com"));
        assert!(!matches("example.com", "a.example.com"));
        for bad in ["", "*", "*.", "https://h", "h/x", "10.0.0.0/8", "a*.b"] {
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_public_addresses_are_public() {
        for address in
            ["1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.1", "100.63.0.1", "192.0.1.1", "2606:4700::1"]
        {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "169.254.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:7f00:1",
            "::ffff:8.8.8.8",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[tokio::test]
    async fn hosts_in_whatever_notation_are_refused_by_the_address_that_they_lead_to() {
        let guard = guard(&[]);
        for host in [
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "017700000001",
            "0",
            "0.0.0.0",
            "127.0.0.1.",
            "localhost",
            "LOCALHOST",
            "localhost.",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[0:0:0:0:0:ffff:7f00:0001]",
            "10.0.0.1",
            "10.1",
            "167772161",
            "0xa9fea9fe",
            "169.254.169.254",
            "2852039166",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "192.168.1.1",
            "3232235777",
            "0300.0250.1.1",
            "172.16.0.1",
            "100.64.0.1",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:7f00:1::]",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            let error = guard.resolve(host, 443).await.unwrap_err();
            // A notation that this system does not read at all leads nowhere, which is as well.
            let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()).is_some();
            let unknown = error.to_string().contains("lookup");
            assert!(refused || unknown, "{host}: {error:?}");
        }
        let error = guard.resolve("127.0.0.1", 443).await.unwrap_err();
        assert!(error.to_string().contains("put `127.0.0.1` in `allow`"), "{error}");
        let error = guard.resolve("2130706433", 443).await.unwrap_err();
        assert!(error.to_string().contains("leads to 127.0.0.1"), "{error}");
    }

    #[tokio::test]
    async fn an_allow_list_names_hosts_and_networks() {
        let by_name = guard(&["LocalHost", "[::1]"]);
        assert!(
            by_name.resolve("localhost", 1).await.is_ok() && by_name.resolve("localhost.", 1).await.is_ok()
        );
        assert!(by_name.resolve("127.0.0.1", 1).await.is_err());
        let by_network = guard(&["127.0.0.0/8", "fd00::/8"]);
        assert!(by_network.resolve("127.5.5.5", 1).await.is_ok());
        assert!(by_network.resolve("[::ffff:127.0.0.1]", 1).await.is_ok());
        assert!(by_network.resolve("[fd12::1]", 1).await.is_ok());
        assert!(
            by_network.resolve("10.0.0.1", 1).await.is_err() && by_network.resolve("[::1]", 1).await.is_err()
        );
        assert!(guard(&["0.0.0.0/0"]).resolve("10.0.0.1", 1).await.is_ok());
    }

    #[test]
    fn encryption_is_asked_for_unless_the_host_is_allowed_by_name() {
        let check = |allow: &[&str], url: &str| guard(allow).check_url(&url.parse().unwrap()).is_ok();
        assert!(check(&[], "https://example.com/x"));
        assert!(!check(&[], "http://example.com/x"));
        assert!(check(&["example.com"], "http://EXAMPLE.com:8080/x"));
        assert!(check(&["::1"], "http://[::1]/x") && check(&["127.0.0.1"], "http://127.0.0.1:1/"));
        assert!(!check(&["127.0.0.0/8"], "http://127.0.0.1/"));
        assert!(!check(&[], "https://user:password@example.com/") && !check(&[], "ftp://example.com/"));
        for odd in [
            "https://2130706433/",
            "https://127.1/",
            "https://0x7f.1/",
            "https://0177.0.0.1/",
            "https://a_b.1/",
        ] {
            assert!(!check(&[], odd), "{odd}");
        }
        assert!(
            check(&[], "https://[::1]/")
                && check(&[], "https://127.0.0.1:8443/")
                && check(&[], "https://a.example./")
        );
    }

    #[test]
    fn mistakes_in_the_list_are_refused() {
        for bad in
            ["", "a b", "http://x", "x:80", "10.0.0.0/33", "10.0.0.0/", "x/8", "fd00::/129", "*.internal"]
        {
            assert!(bad.parse::<Allowed>().is_err(), "{bad}");
        }
    }
}
