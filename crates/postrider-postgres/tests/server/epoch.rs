//! Transaction numbers cross 2 to the power of 32.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::chown;

use postrider_testkit::postgres::{Server, Settings, Version};

use crate::stage::{Owner, Stage, emit, open};

/// Each within reach of what was frozen before.
const STEPS: [u32; 3] = [2_000_000_000, 4_000_000_000, 4_294_966_000];

/// Transactions whose state one file of the server holds.
const XIDS_OF_A_FILE: u32 = 1 << 20;

/// Moves a server's next xid, as if it had worked for years.
fn age(server: &mut Server) {
    server.query("postgres", "update pg_database set datallowconn = true");
    for xid in STEPS {
        let frozen = server.command("vacuumdb").args(["--all", "--freeze", "--quiet"]).output().unwrap();
        assert!(frozen.status.success(), "{}", String::from_utf8_lossy(&frozen.stderr));
        server.query("postgres", "checkpoint"); // tidy: foreign because it is PostgreSQL's statement
        server.stop();
        let mut reset = server.command("pg_resetwal");
        let data = reset.get_envs().find(|(name, _)| *name == "PGDATA").unwrap().1.unwrap().to_owned();
        let reset = reset.args(["-x", &xid.to_string()]).arg(&data).output().unwrap();
        assert!(reset.status.success(), "{}", String::from_utf8_lossy(&reset.stderr));
        // Where the states of transactions around it would be: nothing of them is left.
        let folder = std::path::Path::new(&data).join("pg_xact");
        let file = folder.join(format!("{:04X}", xid / XIDS_OF_A_FILE));
        fs::write(&file, vec![0; 256 << 10]).unwrap();
        let owner = fs::metadata(&folder).unwrap();
        chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
        server.start_again();
    }
}

/// Only of the release whose package has the programs.
#[tokio::test]
async fn events_cross_the_epoch_once_and_in_order() {
    let mut server = Server::start(Version::V15, Settings::fast().set("autovacuum", "off"));
    age(&mut server);
    let stage = Stage::in_database(server.create_database()).await;
    let mut owner = stage.owner("orders").await;
    let (p, long) = (stage.session().await, stage.session().await);
    let next = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    let before = stage.number(next);
    assert!(before < 1 << 32, "{before} is behind the crossing already");
    crate::stage::run(&long, "begin").await;
    emit(&long, "long", "late").await;
    let (mut read, mut emitted) = (Vec::new(), Vec::new());
    for n in 0..60 {
        let note = format!("{n}");
        emit(&p, "k", &note).await;
        emitted.push(note);
        crate::stage::run(
            &p,
            "do $$ begin for n in 1..40 loop begin perform pg_current_xact_id(); create temporary table t (n int);
             raise 'undone'; exception when others then null; end; end loop; end $$",
        )
        .await;
        read.extend(owner.read().await);
        owner.settle().await.unwrap();
        if n % 20 == 10 {
            owner.leave().await;
            owner = Owner::of(&open(&stage.db).await, "orders").await;
        }
    }
    assert!(stage.number(next) > (1 << 32) + 100, "{} never crosses", stage.number(next));
    assert_eq!(read, emitted);
    crate::stage::run(&long, "commit").await;
    assert_eq!(owner.read().await, ["late"], "from before the crossing");
    assert_eq!(owner.read().await, [""; 0]);
}
