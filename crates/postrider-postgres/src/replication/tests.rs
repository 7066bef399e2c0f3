//! Real servers, and what they tell.

/// Each promise on each release.
macro_rules! on_each_version {
    ($($name:ident,)*) => {
        mod postgresql_15 {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(postrider_testkit::postgres::Version::V15).await;
                }
            )*
        }

        mod postgresql_18 {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(postrider_testkit::postgres::Version::V18).await;
                }
            )*
        }
    };
}

mod life;
mod logins;
mod refusals;
mod rows;
mod slots;

use std::sync::OnceLock;
use std::time::Duration;

use postrider_testkit::postgres::{Database, Server, Settings, Version};
use tokio::time::timeout;

use super::pgoutput::Value;
use super::refusal::sqlstate;
use super::*;
use crate::PostgresStore;
use crate::wal::event::EventReader;

/// Long enough for a busy machine, and short enough to be no hang.
const WAIT_MAX: Duration = Duration::from_secs(30);
const PUBLICATION: &str = "the \"log\", it's";

fn settings() -> Settings {
    let settings = Settings::fast().set("wal_level", "logical");
    settings.set("max_wal_senders", "60").set("max_replication_slots", "60")
}

/// One a release for all tests that leave it as it is.
fn server(version: Version) -> &'static Server {
    static V15: OnceLock<Server> = OnceLock::new();
    static V18: OnceLock<Server> = OnceLock::new();
    let place = if version == Version::V15 { &V15 } else { &V18 };
    place.get_or_init(|| Server::start(version, settings()))
}

/// A store with its log published, and a slot of its own.
struct Scene {
    store: PostgresStore,
    database: Database,
    options: PostgresOptions,
    slot: String,
}

impl Scene {
    async fn new(version: Version) -> Self {
        let scene = Self::without_slot(server(version)).await;
        scene.connect().await.slot_create(&scene.slot, false).await.unwrap();
        scene
    }

    async fn without_slot(server: &Server) -> Self {
        let database = server.create_database();
        let options = PostgresOptions::from_url(&database.url).unwrap();
        let store = PostgresStore::open(options.clone()).await.unwrap();
        let publication = escape_identifier(PUBLICATION);
        database.query(&format!(
            "create publication {publication} for table postrider.event
             with (publish = 'insert', publish_via_partition_root = true)"
        ));
        let slot = format!("of_{}", database.name);
        Self { store, database, options, slot }
    }

    async fn connect(&self) -> Replication {
        Replication::connect(&self.options).await.unwrap()
    }

    async fn start(&self) -> Stream {
        self.connect().await.start(&self.slot, PUBLICATION, Lsn(0)).await.unwrap()
    }

    /// Emits by plain SQL, each in a transaction of its own.
    fn emit(&self, count: usize, payload_bytes: usize) {
        Self::emit_in(&self.database, count, payload_bytes);
    }

    fn emit_in(database: &Database, count: usize, payload_bytes: usize) {
        database.query(&format!(
            "do $$ begin for i in 1..{count} loop
                 insert into postrider.event (topic, type, payload_bytes) values ('t', 't', repeat('x', {payload_bytes})::bytea);
                 commit;
             end loop; end $$"
        ));
    }

    /// How far the server believes that we are done.
    fn confirmed(&self) -> Lsn {
        let rows = self.database.query(&format!(
            "select confirmed_flush_lsn from pg_replication_slots where slot_name = '{}'",
            self.slot
        ));
        lsn_read(rows[0][0].as_deref().unwrap()).unwrap()
    }
}

/// The next thing that is no position.
async fn next(stream: &mut Stream) -> Said {
    loop {
        match timeout(WAIT_MAX, stream.next()).await.expect("the server says something").unwrap() {
            Said::Position(_) => {}
            said => return said,
        }
    }
}

/// The error with which a stream ends.
async fn failure(stream: &mut Stream) -> Error {
    let failing = async {
        loop {
            if let Err(error) = stream.next().await {
                return error;
            }
        }
    };
    timeout(WAIT_MAX, failing).await.expect("it fails, and does not hang")
}

/// The events of so many transactions.
async fn events(stream: &mut Stream, commits: usize) -> Vec<postrider_core::log::LogRow> {
    let (mut reader, mut rows, mut seen) = (EventReader::default(), Vec::new(), 0);
    while seen < commits {
        match next(stream).await {
            Said::Insert(row) => rows.push(reader.read(&row).unwrap()),
            Said::Commit { .. } => seen += 1,
            _ => {}
        }
    }
    rows
}

#[test]
fn positions_are_written_as_the_server_does() {
    for (lsn, text) in [(0, "0/0"), (0x16_B374_D848, "16/B374D848"), (u64::MAX, "FFFFFFFF/FFFFFFFF")] {
        assert_eq!(lsn_text(Lsn(lsn)), text);
        assert_eq!(lsn_read(text), Some(Lsn(lsn)));
    }
    for bad in ["", "1", "1/", "/1", "1/100000000", "x/1", "1/2/3"] {
        assert_eq!(lsn_read(bad), None);
    }
}

#[test]
fn names_are_quoted_within_quotes() {
    let command = start_command("a\"b", "c\"d'e", Lsn(1), Large::Whole);
    assert!(command.starts_with("START_REPLICATION SLOT \"a\"\"b\" LOGICAL 0/1 ("), "{command}");
    assert!(command.contains("publication_names '\"c\"\"d''e\"'"), "{command}");
}
