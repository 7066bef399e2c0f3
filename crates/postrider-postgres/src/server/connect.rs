//! The one place that connects to a server.

use std::error::Error as StdError;
use std::io;

use postrider_core::{Error, ErrorKind, Result};
use rustls::CertificateError;
use tokio_postgres::config::{SslMode as ClientSslMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Socket};

use crate::error::from_postgres;
use crate::options::PostgresOptions;
use crate::options::login_ways::{Connector, LoginWays, Refused, Watched, refused};
use crate::server::tls::SslMode;

/// Moves the bytes of a client, encrypted or not. The caller has to run it.
pub(crate) type Connection = tokio_postgres::Connection<Socket, Watched>;

/// Connects as the options say; people see the connection under `name`.
pub(crate) async fn connect(options: &PostgresOptions, name: &str) -> Result<(Client, Connection)> {
    let mut config = options.config.clone();
    config.application_name(name);
    let (mode, attempt) = attempt(options, config).await?;
    attempt.map_err(|error| explained(error, options, mode))
}

/// The same with settings in the startup packet, behind those of the URL; none if the server or pooler that
/// answers takes no settings there.
pub(crate) async fn connect_told(
    options: &PostgresOptions,
    name: &str,
    settings: &str,
) -> Result<Option<(Client, Connection)>> {
    let mut config = options.config.clone();
    config.application_name(name);
    config.options(match options.config.get_options() {
        Some(theirs) => format!("{theirs} {settings}"),
        None => settings.to_owned(),
    });
    match attempt(options, config).await? {
        (_, Ok(connected)) => Ok(Some(connected)),
        // PgBouncer calls it a violation of the protocol; a server takes all of ours.
        (_, Err(error)) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => Ok(None),
        (mode, Err(error)) => Err(explained(error, options, mode)),
    }
}

type Attempt = Result<(Client, Connection), tokio_postgres::Error>;

async fn attempt(options: &PostgresOptions, mut config: Config) -> Result<(SslMode, Attempt)> {
    let mode = options.tls.mode(&options.config);
    // A mode with encryption never goes without it; the client library's default would.
    config.ssl_mode(match mode {
        SslMode::Disable => ClientSslMode::Disable,
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => ClientSslMode::Require,
    });
    let ways = options.tls.ways(&options.config);
    let tls = match mode {
        SslMode::Disable if ways != LoginWays::ALL => {
            if options.config.get_hosts().is_empty() {
                return Err(Error::invalid("name the host beside hostaddr in the store's URL"));
            }
            // As TLS that needs no negotiation, and adds nothing: so that the stream is one of ours.
            config.ssl_mode(ClientSslMode::Require).ssl_negotiation(SslNegotiation::Direct);
            None
        }
        mode => Some(options.tls.connector(mode)?),
    };
    Ok((mode, config.connect(Connector { tls, ways }).await))
}

/// Says what to do about it where it has to do with TLS.
fn explained(error: tokio_postgres::Error, options: &PostgresOptions, mode: SslMode) -> Error {
    let what = format!("connect to {options}");
    if let Some(failed) = tls_error(&error) {
        return tls_failed(failed, &what);
    }
    if has_no_tls(&error) {
        return tls_missing(&what);
    }
    if let Some(refused) = refused(&error) {
        return way_refused(*refused, &what);
    }
    if options.config.get_password().is_none() && wants_password(&error) {
        return Error::invalid(format!(
            "cannot {what}: the server wants a password and the store's URL has none: set PGPASSWORD, add a line to ~/.pgpass, \
             or name the whole URL by --store env:NAME or --store file:PATH"
        ));
    }
    let is_refused = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
    let error = from_postgres(error, &what);
    if is_refused && mode == SslMode::Disable {
        return Error::new(error.kind(), format!("{error}. Or: {PLAIN_ADVICE}"));
    }
    error
}

/// For a connection that was refused and is not encrypted.
pub(crate) const PLAIN_ADVICE: &str =
    "this connection is not encrypted; if the server demands that, write sslmode=verify-full";

/// The server has not proved who it is, or wants us to.
pub(crate) fn tls_failed(failed: &rustls::Error, what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("cannot {what}: {failed}{}", advice(failed)))
}

/// The server asks for the password in a way that is not allowed.
pub(crate) fn way_refused(refused: Refused, what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("cannot {what}: {refused}"))
}

/// The server has no TLS.
pub(crate) fn tls_missing(what: &str) -> Error {
    let advice = "turn it on there (ssl = on), or write sslmode=disable if the way to it is safe";
    Error::new(ErrorKind::Invalid, format!("cannot {what}: the server offers no TLS: {advice}"))
}

/// The error of rustls among the causes of another. An I/O error hides what it was made from.
pub(crate) fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let hidden = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = hidden.and_then(|hidden| hidden.downcast_ref()).or_else(|| error.downcast_ref());
        if found.is_some() {
            return found;
        }
        cause = error.source();
    }
    None
}

fn has_no_tls(error: &tokio_postgres::Error) -> bool {
    error.source().is_some_and(|cause| cause.to_string() == "server does not support TLS")
}

/// The client library has been asked for a password that it does not have.
fn wants_password(error: &tokio_postgres::Error) -> bool {
    error.source().is_some_and(|cause| cause.to_string() == "password missing")
}

fn advice(failed: &rustls::Error) -> &'static str {
    let rustls::Error::InvalidCertificate(bad) = failed else {
        return if matches!(failed, rustls::Error::AlertReceived(_)) {
            ": the server has ended the handshake; if it wants a certificate of ours, give one it trusts with \
             sslcert=FILE and sslkey=FILE"
        } else {
            ""
        };
    };
    match bad {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            ": somebody else may be answering. Connect by a name that the server's certificate has, or write \
             sslmode=verify-ca if every server of its authority will do"
        }
        // The second is an authority of the same name as a trusted one, with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            ": somebody else may be answering. If the server's authority is one of your own, name its certificate \
             with sslrootcert=FILE"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ": renew the server's certificate"
        }
        CertificateError::Other(_) => {
            ": the server shows a certificate that is not one for servers; let an authority sign one for it"
        }
        _ => "",
    }
}
