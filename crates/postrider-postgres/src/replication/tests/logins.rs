//! Who may connect, and to whom.

use std::fs;

use postrider_testkit::postgres::{Pooler, PoolerSettings, Startup};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::*;

/// What the certificate of the server is for. It is never resolved: the address is given beside it.
const NAME_OF_SERVER: &str = "db.postrider.test";
const HBA: &str = "\
local all postgres trust
host all postgres 127.0.0.1/32 trust
hostssl all bound all scram-sha-256
hostnossl all bound all reject
host all scram all scram-sha-256
host all hashed all md5
host all plain all password
";

struct Rig {
    server: Server,
    authority: String,
}

impl Rig {
    fn new(version: Version) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let signed = CertificateParams::new(vec![NAME_OF_SERVER.to_owned()]).unwrap();
        let certificate = signed.signed_by(&key, &authority).unwrap();
        let settings = settings()
            .set("ssl", "on")
            .set("password_encryption", "scram-sha-256")
            .file("server.crt", &certificate.pem())
            .file("server.key", &key.serialize_pem())
            .file("pg_hba.conf", HBA);
        let server = Server::start(version, settings);
        server.query(
            "postgres",
            "create role scram login replication password 'sécret \\ ''';
             create role bound login replication password 'secret';
             create role plain login replication password 'secret';
             set password_encryption = 'md5';
             create role hashed login replication password 'secret'",
        );
        let folder = server.folder().join("client");
        fs::create_dir(&folder).unwrap();
        let file = folder.join("ca.pem");
        fs::write(&file, authority.pem()).unwrap();
        Self { server, authority: file.display().to_string() }
    }

    async fn connect(&self, user: &str, parameters: &str) -> Result<System> {
        let port = self.server.address().port();
        let url =
            format!("postgres://{user}@{NAME_OF_SERVER}:{port}/postgres?hostaddr=127.0.0.1&{parameters}");
        Replication::connect(&PostgresOptions::from_url(&url)?).await?.identify().await
    }

    async fn refused(&self, user: &str, parameters: &str, says: &str) {
        let error = self.connect(user, parameters).await.expect_err(says);
        assert!(error.to_string().contains(says) && !error.is_retryable(), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

async fn passwords_are_proved_in_each_way(version: Version) {
    let rig = Rig::new(version);
    let plain = "sslmode=disable";
    rig.connect("scram:s%C3%A9cret%20%5C%20%27", plain).await.unwrap();
    rig.connect("hashed:secret", plain).await.unwrap();
    rig.connect("plain:secret", plain).await.unwrap();
    for user in ["scram", "hashed", "plain"] {
        rig.refused(&format!("{user}:wrong"), plain, "check user and password").await;
        rig.refused(user, plain, "asks for a password").await;
    }
    rig.refused("bound:secret", plain, "write sslmode=verify-full").await;
    rig.refused("scram:secret", &format!("{plain}&channel_binding=require"), "channel_binding=require").await;

    let trusting = format!("sslmode=verify-full&sslrootcert={}", rig.authority);
    rig.connect("bound:secret", &trusting).await.unwrap();
    rig.connect("bound:secret", &format!("{trusting}&channel_binding=require")).await.unwrap();
    rig.connect("bound:secret", &format!("{trusting}&channel_binding=disable")).await.unwrap();
    rig.refused("bound:wrong", &trusting, "check user and password").await;
    rig.refused("hashed:secret", &format!("{trusting}&channel_binding=require"), "channel_binding=require")
        .await;
}

async fn a_server_has_to_prove_who_it_is(version: Version) {
    let rig = Rig::new(version);
    let with = |mode: &str| format!("sslmode={mode}&sslrootcert={}", rig.authority);
    rig.refused("bound:secret", "sslmode=verify-full", "UnknownIssuer").await;
    rig.connect("bound:secret", &with("verify-ca")).await.unwrap();
    rig.connect("bound:secret", "sslmode=require").await.unwrap();
    let port = rig.server.address().port();
    let elsewhere = |name: &str, mode: &str| {
        let url = format!("postgres://bound:secret@{name}:{port}/postgres?hostaddr=127.0.0.1&{}", with(mode));
        PostgresOptions::from_url(&url).unwrap()
    };
    let error = Replication::connect(&elsewhere("other.postrider.test", "verify-full")).await.err().unwrap();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    Replication::connect(&elsewhere("other.postrider.test", "verify-ca")).await.unwrap();

    let plain = server(version).address().port();
    let url =
        format!("postgres://postgres@{NAME_OF_SERVER}:{plain}/postgres?hostaddr=127.0.0.1&sslmode=require");
    let error = Replication::connect(&PostgresOptions::from_url(&url).unwrap()).await.err().unwrap();
    assert!(error.to_string().contains("offers no TLS"), "{error}");
}

async fn a_stream_comes_encrypted_too(version: Version) {
    let rig = Rig::new(version);
    let scene = Scene::without_slot(&rig.server).await;
    scene.connect().await.slot_create(&scene.slot, false).await.unwrap();
    scene.emit(200, 5_000);
    let port = rig.server.address().port();
    let url = format!(
        "postgres://bound:secret@{NAME_OF_SERVER}:{port}/{}?hostaddr=127.0.0.1&sslmode=verify-full&sslrootcert={}",
        scene.database.name, rig.authority
    );
    let connected = Replication::connect(&PostgresOptions::from_url(&url).unwrap()).await.unwrap();
    let seen = "select ssl, application_name from pg_stat_ssl join pg_stat_activity using (pid) where usename = 'bound'";
    assert_eq!(scene.database.query(seen), [[Some("t".to_owned()), Some("postrider/wal".to_owned())]]);
    let mut stream = connected.start(&scene.slot, PUBLICATION, Lsn(0)).await.unwrap();
    assert_eq!(events(&mut stream, 200).await.len(), 200);
    stream.confirm(stream.position());
    let done = stream.position();
    stream.end().await.unwrap();
    assert_eq!(scene.confirmed(), done);
}

async fn hosts_are_tried_one_after_the_other_and_sockets_too(version: Version) {
    let server = server(version);
    let (port, folder) = (server.address().port(), server.folder().display().to_string().replace('/', "%2F"));
    for url in [
        format!("postgres://postgres@127.0.0.1:1,127.0.0.1:{port}/postgres?sslmode=disable"),
        format!("postgres://postgres@{folder}:{port}/postgres"),
        format!("postgres://postgres@127.0.0.1:{port}/postgres?target_session_attrs=read-write"),
    ] {
        Replication::connect(&PostgresOptions::from_url(&url).unwrap()).await.unwrap();
    }
    let nobody = PostgresOptions::from_url("postgres://postgres@127.0.0.1:1/postgres").unwrap();
    let error = Replication::connect(&nobody).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let other = format!("postgres://postgres@127.0.0.1:{port}/postgres?target_session_attrs=read-only");
    let error = Replication::connect(&PostgresOptions::from_url(&other).unwrap()).await.err().unwrap();
    assert!(error.to_string().contains("target_session_attrs"), "{error}");
}

async fn a_pooler_on_the_way_is_named(version: Version) {
    let server = server(version);
    let pooler = Pooler::start(server, PoolerSettings { sessions: 1, startup: Startup::Refuses });
    let url = pooler.database(&server.create_database()).url;
    let error = Replication::connect(&PostgresOptions::from_url(&url).unwrap()).await.err().unwrap();
    assert_eq!((refusal(&error), error.kind()), (Some(Refusal::Pooled), ErrorKind::Invalid), "{error}");
}

on_each_version!(
    passwords_are_proved_in_each_way,
    a_server_has_to_prove_who_it_is,
    a_stream_comes_encrypted_too,
    hosts_are_tried_one_after_the_other_and_sockets_too,
    a_pooler_on_the_way_is_named,
);
