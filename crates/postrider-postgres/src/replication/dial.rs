//! From options to a socket, encrypted if it has to be: what the client library does for the other connections.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use postrider_core::{Error, ErrorKind, Result};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts, SslNegotiation};
use tokio_rustls::TlsConnector;

use super::binding;
use super::refusal::lost;
use super::wire::Wire;
use crate::server::connect::{tls_error, tls_failed, tls_missing};
use crate::server::pooler::random;

const PORT: u16 = 5432;

/// One of the places that a URL names, in which a server may listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// The name or address to connect to, and the name that the certificate has to have.
    Tcp {
        host: String,
        name: Option<String>,
        port: u16,
    },
    Unix(PathBuf),
}

/// A connection that nothing has been said on, and the hash of the certificate that the server has shown.
pub(super) struct Dialled {
    pub(super) wire: Wire,
    pub(super) end_point: Option<Vec<u8>>,
}

/// All places, in the order in which they are tried.
pub(super) fn places(config: &Config) -> Result<Vec<Place>> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    let are_as_many = |others: usize| others == count || others == 0;
    if count == 0 || !are_as_many(hosts.len()) || !are_as_many(addresses.len()) {
        return Err(Error::invalid("the store's URL has to name a host, and one hostaddr for each if any"));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(Error::invalid("the store's URL has to name one port, or one for each host"));
    }
    let mut places: Vec<Place> = (0..count)
        .map(|index| {
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(PORT);
            place(hosts.get(index), addresses.get(index).map(ToString::to_string), port)
        })
        .collect();
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        // Each of them has some chance to be the first, which is all that this connection needs.
        let turn = usize::from_str_radix(&random(), 16).unwrap_or(0) % count;
        places.rotate_left(turn);
    }
    Ok(places)
}

fn place(host: Option<&Host>, address: Option<String>, port: u16) -> Place {
    match (host, address) {
        (Some(Host::Unix(folder)), None) => Place::Unix(folder.join(format!(".s.PGSQL.{port}"))),
        (Some(Host::Tcp(name)), address) => {
            Place::Tcp { host: address.unwrap_or_else(|| name.clone()), name: Some(name.clone()), port }
        }
        (_, address) => Place::Tcp { host: address.unwrap_or_default(), name: None, port },
    }
}

/// Connects to one place. With `tls` it is encrypted or an error, but for sockets of this machine, as with libpq.
pub(super) async fn dial(
    place: &Place,
    config: &Config,
    tls: Option<Arc<ClientConfig>>,
    what: &str,
) -> Result<Dialled> {
    match place {
        Place::Unix(path) => {
            let socket = within(config, UnixStream::connect(path)).await;
            let wire = Wire::new(socket.map_err(|error| lost(error, what))?);
            Ok(Dialled { wire, end_point: None })
        }
        Place::Tcp { host, name, port } => {
            let socket = tcp(host, *port, config).await.map_err(|error| lost(error, what))?;
            match tls {
                Some(tls) => encrypted(socket, name.as_deref(), config, tls, what).await,
                None => Ok(Dialled { wire: Wire::new(socket), end_point: None }),
            }
        }
    }
}

/// The first of a host's addresses that answers.
async fn tcp(host: &str, port: u16, config: &Config) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host's name has no address");
    for address in lookup_host((host, port)).await? {
        match tcp_at(address, config).await {
            Ok(socket) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn tcp_at(address: SocketAddr, config: &Config) -> io::Result<TcpStream> {
    let socket = within(config, TcpStream::connect(address)).await?;
    socket.set_nodelay(true)?;
    let settings = SockRef::from(&socket);
    #[cfg(target_os = "linux")]
    settings.set_tcp_user_timeout(config.get_tcp_user_timeout().copied())?;
    if config.get_keepalives() {
        let mut keepalive = TcpKeepalive::new().with_time(config.get_keepalives_idle());
        if let Some(interval) = config.get_keepalives_interval() {
            keepalive = keepalive.with_interval(interval);
        }
        if let Some(retries) = config.get_keepalives_retries() {
            keepalive = keepalive.with_retries(retries);
        }
        settings.set_tcp_keepalive(&keepalive)?;
    }
    Ok(socket)
}

async fn within<T>(config: &Config, connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let max = config.get_connect_timeout().copied().unwrap_or(Duration::MAX);
    tokio::time::timeout(max, connecting).await.unwrap_or_else(|_| {
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("nobody has answered for {max:?}")))
    })
}

async fn encrypted(
    mut socket: TcpStream,
    name: Option<&str>,
    config: &Config,
    tls: Arc<ClientConfig>,
    what: &str,
) -> Result<Dialled> {
    if config.get_ssl_negotiation() == SslNegotiation::Postgres {
        let mut request = BytesMut::new();
        frontend::ssl_request(&mut request);
        socket.write_all(&request).await.map_err(|error| lost(error, what))?;
        if socket.read_u8().await.map_err(|error| lost(error, what))? != b'S' {
            return Err(tls_missing(what));
        }
    }
    let name = name.ok_or_else(|| {
        Error::invalid(format!("cannot {what}: TLS needs the host's name beside hostaddr in the store's URL"))
    })?;
    let name = ServerName::try_from(name.to_owned())
        .map_err(|error| Error::invalid(format!("cannot {what}: {name} is no name for TLS: {error}")))?;
    let socket =
        TlsConnector::from(tls).connect(name, socket).await.map_err(|error| match tls_error(&error) {
            Some(failed) => tls_failed(failed, what),
            None => lost(error, what),
        })?;
    let shown = socket.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let end_point = shown.and_then(|certificate| binding::end_point(certificate));
    Ok(Dialled { wire: Wire::new(socket), end_point })
}

/// None of the places would do; there is at least one.
pub(super) fn nowhere(what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot {what}: there is nowhere to connect to"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places_of(url: &str) -> Vec<Place> {
        places(&url.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_url_may_name_many_places() {
        let tcp = |host: &str, name: Option<&str>, port| Place::Tcp {
            host: host.to_owned(),
            name: name.map(str::to_owned),
            port,
        };
        for (url, expected) in [
            ("postgres://a/db", vec![tcp("a", Some("a"), 5432)]),
            ("postgres://a:1,b:2/db", vec![tcp("a", Some("a"), 1), tcp("b", Some("b"), 2)]),
            ("postgres://a:7/db?hostaddr=10.0.0.5", vec![tcp("10.0.0.5", Some("a"), 7)]),
            ("postgres://%2Fvar%2Frun:7/db", vec![Place::Unix("/var/run/.s.PGSQL.7".into())]),
        ] {
            assert_eq!(places_of(url), expected, "{url}");
        }
        let mut any = places_of("postgres://a,b,c/db?load_balance_hosts=random");
        any.sort_by_key(|place| format!("{place:?}"));
        assert_eq!(any, places_of("postgres://a,b,c/db"));
        assert!(places(&"postgres://a,b/db?hostaddr=10.0.0.5".parse().unwrap()).is_err());
        assert!(places(&Config::new()).is_err());
    }
}
