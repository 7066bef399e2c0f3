//! A server has to prove who it is before it is told anything; real servers, with certificates good and bad.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use postrider_core::{ErrorKind, Event, Result, Store};
use postrider_postgres::{PostgresOptions, PostgresStore};
use postrider_testkit::postgres::{Server, Settings, Version};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// The name in the server's certificate. No resolver looks it up, because the address is given beside it.
const NAME: &str = "db.postrider.test";
/// Plain connections are for the tests' own questions; everybody else has to come encrypted.
const HBA: &str = "\
host all postgres 127.0.0.1/32 trust
hostssl all app all trust
hostssl all scram all scram-sha-256
hostssl all certified all cert
host all clear all password
host all hashed all md5
";

/// An authority of a test's own.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn certificate(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a name, and its key.
    fn sign(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// A server with TLS, and files as a client has them.
struct Rig {
    server: Server,
    folder: PathBuf,
}

impl Rig {
    fn new(version: Version) -> Self {
        let authority = Authority::new("the authority");
        let (certificate, key) = authority.sign(NAME);
        let rig = Self::with(version, &authority.certificate(), &certificate, &key);
        let (certificate, key) = authority.sign("certified");
        rig.put("own.pem", &certificate);
        rig.put("own.key", &key);
        rig.put("stranger.pem", &Authority::new("a stranger").certificate());
        rig.put("impostor.pem", &Authority::new("the authority").certificate());
        rig
    }

    fn with(version: Version, authority: &str, certificate: &str, key: &str) -> Self {
        let settings = Settings::fast()
            .set("ssl", "on")
            .set("ssl_ca_file", "ca.pem")
            .set("password_encryption", "scram-sha-256")
            .file("server.crt", certificate)
            .file("server.key", key)
            .file("ca.pem", authority)
            .file("pg_hba.conf", HBA);
        let server = Server::start(version, settings);
        server.query(
            "postgres",
            "create role app login superuser; create role certified login superuser;
             create role scram login superuser password 'secret';
             create role clear login superuser password 'secret';
             set password_encryption = 'md5'; create role hashed login superuser password 'secret'",
        );
        let folder = server.folder().join("client");
        fs::create_dir(&folder).unwrap();
        let rig = Self { server, folder };
        rig.put("ca.pem", authority);
        rig
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).unwrap();
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// The server under a name that is never resolved, and more parameters.
    fn url(&self, user: &str, name: &str, parameters: &str) -> String {
        let port = self.server.address().port();
        format!("postgres://{user}@{name}:{port}/postgres?hostaddr=127.0.0.1&{parameters}")
    }

    /// What is trusted where this rig's authority is.
    fn trusting(&self) -> String {
        format!("sslmode=verify-full&sslrootcert={}", self.file("ca.pem"))
    }
}

async fn open(url: &str) -> Result<PostgresStore> {
    PostgresStore::open(PostgresOptions::from_url(url)?).await
}

/// Refused before anything else, for a reason that is told, with advice.
async fn refused(url: &str, reason: &str, advice: &str) {
    let error = open(url).await.expect_err(url);
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let told = error.to_string();
    assert!(told.contains(reason) && told.contains(advice), "{told}");
    assert!(!told.contains("secret"), "{told}");
}

/// One server a version for all of these tests: none of them changes it.
fn rig(version: Version) -> &'static Rig {
    static V15: OnceLock<Rig> = OnceLock::new();
    static V18: OnceLock<Rig> = OnceLock::new();
    let place = if version == Version::V15 { &V15 } else { &V18 };
    place.get_or_init(|| Rig::new(version))
}

/// Whether the connections that a store has made are encrypted.
fn encrypted(rig: &Rig, user: &str) -> Vec<Vec<Option<String>>> {
    let sql = "select distinct ssl, client_dn from pg_stat_ssl join pg_stat_activity using (pid)
        where application_name like 'postrider/%' and usename = ";
    rig.server.query("postgres", &format!("{sql} '{user}'"))
}

async fn a_server_that_proves_who_it_is_is_used(version: Version) {
    let rig = rig(version);
    let store = open(&rig.url("app", NAME, &rig.trusting())).await.unwrap();
    let ids = store.event_emit(vec![Event::new("order")]).await.unwrap();
    assert!(store.event_get(ids[0]).await.unwrap().is_some());
    assert_eq!(encrypted(rig, "app"), [[Some("t".to_owned()), None]]);
}

async fn another_name_is_refused_unless_any_will_do(version: Version) {
    let rig = rig(version);
    let reason = "not valid for name \"other.postrider.test\"";
    refused(&rig.url("app", "other.postrider.test", &rig.trusting()), reason, "sslmode=verify-ca").await;
    // An address is a name, too.
    refused(&rig.url("app", "127.0.0.1", &rig.trusting()), "not valid for name", "sslmode=verify-ca").await;
    for mode in ["verify-ca", "require"] {
        let parameters = format!("sslmode={mode}&sslrootcert={}", rig.file("ca.pem"));
        open(&rig.url("app", "other.postrider.test", &parameters)).await.unwrap();
    }
}

async fn an_unknown_authority_is_refused(version: Version) {
    let rig = rig(version);
    // The machine's own authorities have not signed it, and neither has the stranger.
    refused(&rig.url("app", NAME, "sslmode=verify-full"), "UnknownIssuer", "sslrootcert=FILE").await;
    refused(
        &rig.url("app", NAME, "sslmode=verify-full&sslrootcert=system"),
        "UnknownIssuer",
        "sslrootcert=FILE",
    )
    .await;
    for mode in ["verify-full", "verify-ca", "require"] {
        let parameters = format!("sslmode={mode}&sslrootcert={}", rig.file("stranger.pem"));
        refused(&rig.url("app", NAME, &parameters), "UnknownIssuer", "sslrootcert=FILE").await;
    }
    let impostor = format!("sslmode=verify-full&sslrootcert={}", rig.file("impostor.pem"));
    refused(&rig.url("app", NAME, &impostor), "BadSignature", "sslrootcert=FILE").await;
    // Encrypted, and any server will do.
    open(&rig.url("app", NAME, "sslmode=require")).await.unwrap();
}

async fn a_plain_connection_is_refused_with_the_way_out(version: Version) {
    let rig = rig(version);
    refused(&rig.url("app", NAME, "sslmode=disable"), "no encryption", "sslmode=verify-full").await;
    // Within a machine plain is the default.
    refused(&rig.url("app", "localhost", ""), "no encryption", "sslmode=verify-full").await;
}

async fn passwords_are_bound_to_the_channel(version: Version) {
    let rig = rig(version);
    let parameters = format!("{}&channel_binding=require", rig.trusting());
    open(&rig.url("scram:secret", NAME, &parameters)).await.unwrap();
    refused(
        &rig.url("scram:wrong", NAME, &parameters),
        "password authentication failed",
        "check user and password",
    )
    .await;
    // Without encryption there is no channel to bind to.
    let plain = open(&rig.url("scram:secret", NAME, "sslmode=disable&channel_binding=require")).await;
    plain.expect_err("refused");
}

async fn a_certificate_of_ours_opens_the_door(version: Version) {
    let rig = rig(version);
    let own = format!("{}&sslcert={}&sslkey={}", rig.trusting(), rig.file("own.pem"), rig.file("own.key"));
    let _store = open(&rig.url("certified", NAME, &own)).await.unwrap();
    assert_eq!(encrypted(rig, "certified"), [[Some("t".to_owned()), Some("/CN=certified".to_owned())]]);
    let without = open(&rig.url("certified", NAME, &rig.trusting())).await.expect_err("refused");
    assert!(without.to_string().contains("certificate"), "{without}");
    let mixed = format!("{}&sslcert={}&sslkey={}", rig.trusting(), rig.file("own.pem"), rig.file("ca.pem"));
    refused(&rig.url("certified", NAME, &mixed), "sslkey names", "no key").await;
}

async fn a_server_that_signed_for_itself_is_refused(version: Version) {
    let signed = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let certificate = signed.cert.pem();
    let rig = Rig::with(
        version,
        &Authority::new("the authority").certificate(),
        &certificate,
        &signed.signing_key.serialize_pem(),
    );
    refused(&rig.url("app", NAME, "sslmode=verify-full"), "UnknownIssuer", "sslrootcert=FILE").await;
    refused(&rig.url("app", NAME, &rig.trusting()), "UnknownIssuer", "sslrootcert=FILE").await;
}

async fn a_server_without_tls_is_told_apart(version: Version) {
    let server = postrider_testkit::postgres::shared(version);
    let url = format!("postgres://postgres@{NAME}:{}/postgres?hostaddr=127.0.0.1", server.address().port());
    refused(&format!("{url}&sslmode=verify-full"), "the server offers no TLS", "sslmode=disable").await;
}

/// Any server may ask for the password itself. Within a machine that is allowed, so the tests set the rule that
/// holds elsewhere.
async fn a_password_is_told_only_in_ways_that_are_allowed(version: Version) {
    let rig = rig(version);
    for mode in ["sslmode=disable", "sslmode=require"] {
        let elsewhere = format!("{mode}&require_auth=scram-sha-256,none");
        for (user, reason, way) in
            [("clear", "the password itself", "password"), ("hashed", "an MD5 hash", "md5")]
        {
            let login = format!("{user}:secret");
            refused(&rig.url(&login, NAME, &elsewhere), reason, "scram-sha-256").await;
            let allowed = format!("{mode}&require_auth={way}");
            open(&rig.url(&login, NAME, &allowed)).await.unwrap();
            open(&rig.url(&login, NAME, mode)).await.unwrap();
        }
    }
    let scram = rig.url("scram:secret", NAME, "sslmode=require&require_auth=scram-sha-256");
    open(&scram).await.unwrap();
    let trusted = rig.url("app", NAME, "sslmode=require&require_auth=scram-sha-256");
    refused(&trusted, "it asks for no password", "require_auth").await;
}

on_each_version!(
    a_server_that_proves_who_it_is_is_used,
    another_name_is_refused_unless_any_will_do,
    an_unknown_authority_is_refused,
    a_plain_connection_is_refused_with_the_way_out,
    passwords_are_bound_to_the_channel,
    a_certificate_of_ours_opens_the_door,
    a_server_that_signed_for_itself_is_refused,
    a_server_without_tls_is_told_apart,
    a_password_is_told_only_in_ways_that_are_allowed,
);
