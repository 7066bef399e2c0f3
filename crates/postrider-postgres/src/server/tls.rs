//! How a connection is protected, in libpq's words.
//!
//! | `sslmode` | encrypted | the server shows a certificate of a trusted authority | and for its name |
//! |---|---|---|---|
//! | `verify-full` | yes | yes | yes |
//! | `verify-ca` | yes | yes | |
//! | `require` | yes | only with `sslrootcert` | |
//! | `disable` | | | |
//!
//! The default is `verify-full`, unless all hosts are this machine itself: then no bytes leave it, and the default is
//! `disable`. libpq's `allow` and `prefer` are refused, because an attacker on the way can turn their encryption off.
//!
//! `sslrootcert` is a file with the certificates of trusted authorities; without it, or with the word `system`, those
//! of this machine are trusted. `sslcert` and `sslkey` are files with our certificate and its key, for servers that
//! want one. All are PEM. Each connection reads them again, so it takes up renewed ones.

mod verifier;

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postrider_core::{Error, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres_rustls::MakeRustlsConnect;
use tracing::warn;

use verifier::{AnyCertificate, AnyName};

use crate::options::login_ways::LoginWays;

/// libpq's word for the authorities that the machine trusts.
const SYSTEM: &str = "system";
/// What PostgreSQL calls its protocol within TLS.
const PROTOCOL: &[u8] = b"postgresql";

/// What is asked of the server, from nothing to everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SslMode {
    Disable,
    Require,
    VerifyCa,
    VerifyFull,
}

/// What a URL says about TLS.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tls {
    mode: Option<SslMode>,
    authorities: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    /// As `require_auth` says.
    ways: Option<LoginWays>,
}

impl Tls {
    /// Takes a parameter of the URL if it is one about TLS that the client library does not know, or knows less of.
    pub(crate) fn take(&mut self, name: &str, value: &str) -> Result<bool> {
        let file = || (!value.is_empty()).then(|| PathBuf::from(value));
        match name {
            "sslmode" => self.mode = Some(mode_read(value)?),
            "sslrootcert" => self.authorities = file().filter(|_| value != SYSTEM),
            "sslcert" => self.certificate = file(),
            "sslkey" => self.key = file(),
            "require_auth" => self.ways = Some(LoginWays::parse(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses what contradicts itself.
    pub(crate) fn check(&self) -> Result<()> {
        if self.certificate.is_some() != self.key.is_some() {
            return Err(Error::invalid("the store's URL has only one of sslcert and sslkey: give both"));
        }
        Ok(())
    }

    /// The mode that holds for some hosts. As with libpq, a socket of this machine is never encrypted.
    pub(crate) fn mode(&self, config: &Config) -> SslMode {
        let hosts = config.get_hosts();
        let is_socket = |host: &Host| matches!(host, Host::Unix(_));
        if !hosts.is_empty() && hosts.iter().all(is_socket) {
            return SslMode::Disable;
        }
        match self.mode {
            // libpq does so too: a URL that names an authority wants it to count.
            Some(SslMode::Require) if self.authorities.is_some() => SslMode::VerifyCa,
            Some(mode) => mode,
            None if is_local(config) => SslMode::Disable,
            None => SslMode::VerifyFull,
        }
    }

    /// The ways by which we may prove the password to the server that answers. Sockets of this machine have no
    /// stranger behind them.
    pub(crate) fn ways(&self, config: &Config) -> LoginWays {
        let hosts = config.get_hosts();
        if !hosts.is_empty() && hosts.iter().all(|host| matches!(host, Host::Unix(_))) {
            return LoginWays::ALL;
        }
        self.ways.unwrap_or(match self.mode(config) {
            _ if is_local(config) => LoginWays::ALL,
            SslMode::Disable | SslMode::Require => LoginWays::UNPROVED,
            SslMode::VerifyCa | SslMode::VerifyFull => LoginWays::ALL,
        })
    }

    /// A warning about this mode for hosts other than this machine, if it needs one.
    pub(crate) fn warning(&self, config: &Config) -> Option<&'static str> {
        match self.mode(config) {
            _ if is_local(config) => None,
            SslMode::Disable => Some(
                "connections are not encrypted: everybody on the way can read and change what is sent. \
                 Write sslmode=verify-full",
            ),
            SslMode::Require => Some(
                "connections are encrypted, but nobody checks who answers. Write sslmode=verify-full, with \
                 sslrootcert=FILE if the server's authority is one of your own",
            ),
            SslMode::VerifyCa | SslMode::VerifyFull => None,
        }
    }

    /// Reads the files and makes what encrypts the client library's connections.
    pub(crate) fn connector(&self, mode: SslMode) -> Result<MakeRustlsConnect> {
        self.client(mode).map(MakeRustlsConnect::new)
    }

    /// The same for connections of our own.
    pub(crate) fn client(&self, mode: SslMode) -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = self.verifier(mode, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::invalid(format!("cannot set up TLS: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) if mode != SslMode::Disable => builder
                .with_client_auth_cert(certificates_read(certificate, "sslcert")?, key_read(key)?)
                .map_err(|error| {
                    let files = format!("{} and {}", certificate.display(), key.display());
                    Error::invalid(format!("sslcert and sslkey do not go together ({files}): {error}"))
                })?,
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }

    fn verifier(&self, mode: SslMode, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>> {
        if mode <= SslMode::Require {
            return Ok(Arc::new(AnyCertificate::new(provider)));
        }
        let authorities = Arc::new(self.authorities()?);
        let verifier = WebPkiServerVerifier::builder_with_provider(authorities, Arc::clone(provider))
            .build()
            .map_err(|error| Error::invalid(format!("cannot set up TLS: {error}")))?;
        Ok(if mode == SslMode::VerifyCa { Arc::new(AnyName::new(verifier)) } else { verifier })
    }

    fn authorities(&self) -> Result<RootCertStore> {
        let mut authorities = RootCertStore::empty();
        if let Some(file) = &self.authorities {
            for certificate in certificates_read(file, "sslrootcert")? {
                authorities.add(certificate).map_err(|error| {
                    let file = file.display();
                    Error::invalid(format!("sslrootcert names {file}, which has a bad certificate: {error}"))
                })?;
            }
            return Ok(authorities);
        }
        // Some machines trust certificates that cannot be parsed; the others count.
        authorities.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if authorities.is_empty() {
            return Err(Error::invalid(
                "this machine trusts no authority, so that no server can prove who it is: install its \
                 ca-certificates, or name the server's authority with sslrootcert=FILE",
            ));
        }
        Ok(authorities)
    }
}

fn mode_read(text: &str) -> Result<SslMode> {
    match text {
        "disable" => Ok(SslMode::Disable),
        "require" => Ok(SslMode::Require),
        "verify-ca" => Ok(SslMode::VerifyCa),
        "verify-full" => Ok(SslMode::VerifyFull),
        "allow" | "prefer" => Err(Error::invalid(format!(
            "sslmode={text} protects from nobody, since whoever is on the way can turn it off: write \
             sslmode=verify-full, or sslmode=disable to go without"
        ))),
        _ => Err(Error::invalid("sslmode is one of verify-full, verify-ca, require and disable")),
    }
}

/// Whether every host is this machine itself.
fn is_local(config: &Config) -> bool {
    // An address goes before the name that belongs to it.
    let addresses = config.get_hostaddrs();
    if !addresses.is_empty() {
        return addresses.iter().all(IpAddr::is_loopback);
    }
    config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        }
    })
}

fn certificates_read(file: &Path, parameter: &str) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => {
            Err(Error::invalid(format!("{parameter} names {}, which has no certificate", file.display())))
        }
        Err(error) => Err(Error::invalid(format!(
            "{parameter} names {}, which cannot be read: {error}",
            file.display()
        ))),
    }
}

fn key_read(file: &Path) -> Result<PrivateKeyDer<'static>> {
    warn_if_open(file);
    PrivateKeyDer::from_pem_file(file).map_err(|error| {
        Error::invalid(format!(
            "sslkey names {}, which is no key without a passphrase: {error}",
            file.display()
        ))
    })
}

/// People are told once of a key that everybody on this machine may read.
fn warn_if_open(file: &Path) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let is_open = std::fs::metadata(file).is_ok_and(|found| found.mode() & 0o007 != 0);
    if is_open && !TOLD.swap(true, Ordering::Relaxed) {
        warn!(path = %file.display(), "the key that sslkey names may be read by everybody on this machine: chmod 0600");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(url: &str) -> SslMode {
        let options = crate::PostgresOptions::from_url(url).unwrap();
        options.tls.mode(&options.config)
    }

    #[test]
    fn hosts_elsewhere_have_to_prove_who_they_are() {
        for url in [
            "postgres://app@db.example.com/shop",
            "postgres://app@10.0.0.5/shop",
            "postgres://app@localhost.example.com/shop",
            "postgres://app@localhost,db.example.com/shop",
            "postgres://app@[2001:db8::1]/shop",
            "postgres://app@localhost/shop?hostaddr=10.0.0.5",
        ] {
            assert_eq!(mode_of(url), SslMode::VerifyFull, "{url}");
        }
        for url in [
            "postgres://app@localhost/shop",
            "postgres://app@127.8.9.1:5433/shop",
            "postgres://app@[::1]/shop",
            "postgres://app@%2Fvar%2Frun%2Fpostgresql/shop",
            "postgres://app@%2Fvar%2Frun%2Fpostgresql/shop?sslmode=verify-full",
            "postgres://app@db.example.com/shop?sslmode=disable",
        ] {
            assert_eq!(mode_of(url), SslMode::Disable, "{url}");
        }
        assert_eq!(mode_of("postgres://app@h/shop?sslmode=require"), SslMode::Require);
        assert_eq!(mode_of("postgres://app@h/shop?sslmode=require&sslrootcert=ca.pem"), SslMode::VerifyCa);
        assert_eq!(mode_of("postgres://app@localhost/shop?sslmode=verify-ca"), SslMode::VerifyCa);
    }

    #[test]
    fn whoever_goes_without_is_warned_unless_it_stays_on_the_machine() {
        let warning = |url: &str| {
            let options = crate::PostgresOptions::from_url(url).unwrap();
            options.tls.warning(&options.config)
        };
        assert!(warning("postgres://app@h/shop?sslmode=disable").unwrap().contains("not encrypted"));
        assert!(warning("postgres://app@h/shop?sslmode=require").unwrap().contains("who answers"));
        assert_eq!(warning("postgres://app@h/shop"), None);
        assert_eq!(warning("postgres://app@h/shop?sslmode=verify-ca"), None);
        assert_eq!(warning("postgres://app@localhost/shop?sslmode=disable"), None);
    }

    #[test]
    fn a_password_is_told_to_nobody_who_has_not_proved_who_he_is() {
        let ways = |url: &str| {
            let options = crate::PostgresOptions::from_url(url).unwrap();
            options.tls.ways(&options.config)
        };
        for url in ["postgres://app@h/shop?sslmode=disable", "postgres://app@h/shop?sslmode=require"] {
            assert_eq!(ways(url), LoginWays::UNPROVED, "{url}");
            let asked = format!("{url}&require_auth=password,md5,scram-sha-256,none");
            assert_eq!(ways(&asked), LoginWays::ALL, "{url}");
        }
        for url in
            ["postgres://app@h/shop", "postgres://app@localhost/shop", "postgres://app@%2Fvar%2Frun/shop"]
        {
            assert_eq!(ways(url), LoginWays::ALL, "{url}");
        }
        assert_ne!(ways("postgres://app@h/shop?require_auth=scram-sha-256"), LoginWays::ALL);
    }

    #[test]
    fn modes_that_protect_from_nobody_are_refused() {
        for (url, says) in [
            ("postgres://app@h/shop?sslmode=prefer", "write sslmode=verify-full"),
            ("postgres://app@h/shop?sslmode=allow", "write sslmode=verify-full"),
            ("postgres://app@h/shop?sslmode=yes", "one of verify-full"),
            ("postgres://app@h/shop?sslcert=a.pem", "give both"),
        ] {
            let message = crate::PostgresOptions::from_url(url).unwrap_err().to_string();
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn files_that_are_missing_or_empty_are_named() {
        let tls = |name: &str, value: &str| {
            let mut tls = Tls::default();
            assert!(tls.take(name, value).unwrap());
            tls.connector(SslMode::VerifyFull).err().expect("refused").to_string()
        };
        let missing = tls("sslrootcert", "/no/such/ca.pem");
        assert!(missing.contains("sslrootcert names /no/such/ca.pem, which cannot be read"), "{missing}");
        let empty = tls("sslrootcert", "/dev/null");
        assert!(empty.contains("which has no certificate"), "{empty}");
    }
}
