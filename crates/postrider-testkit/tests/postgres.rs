//! Real servers start, crash, recover and leave nothing behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use postrider_testkit::postgres::{Database, Server, Settings, Version, shared};

/// Set for the child process that `a_killed_test_process_leaves_nothing` kills.
const VICTIM: &str = "POSTRIDER_TEST_VICTIM";

fn one(database: &Database, statement: &str) -> String {
    let rows = database.query(statement);
    rows[0][0].clone().unwrap_or_else(|| panic!("`{statement}` is null"))
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        // tidy: sleep because other processes can only be looked at
        thread::sleep(Duration::from_millis(5));
    }
}

fn answers_as_its_version(version: Version) {
    let database = shared(version).create_database();
    let told = one(&database, "select current_setting('server_version_num')");
    assert_eq!(told[..2], version.major().to_string());
    assert!(one(&database, "select version()").starts_with(&format!("PostgreSQL {}.", version.major())));
    assert_eq!(one(&database, "select current_database()"), database.name);
}

#[test]
fn release_15_answers() {
    answers_as_its_version(Version::V15);
}

#[test]
fn release_18_answers() {
    answers_as_its_version(Version::V18);
}

#[test]
fn databases_are_separate() {
    let [first, second] = [(); 2].map(|()| shared(Version::V15).create_database());
    assert_ne!(first.url, second.url);
    first.query("create table t (a int)");
    second.query("create table t (a text)");
    first.query("insert into t values (1)");
    assert_eq!(one(&second, "select count(*) from t"), "0");
}

#[test]
fn a_refused_statement_says_why() {
    let database = shared(Version::V15).create_database();
    let told = database.try_query("select 1; select nothing").unwrap_err();
    assert!(told.contains("42703"), "{told}");
}

#[test]
fn a_committed_row_survives_every_crash() {
    Version::ALL.into_iter().for_each(a_committed_row_survives);
}

fn a_committed_row_survives(version: Version) {
    let mut server = Server::start(version, Settings::honest());
    let database = server.create_database();
    database.query("create table t (a int)");
    let ends: [fn(&mut Server); 3] = [Server::kill_immediate, Server::kill_9, Server::stop];
    for (index, end) in ends.into_iter().enumerate() {
        database.query("insert into t values (1)");
        end(&mut server);
        assert_eq!(server.pid(), None);
        assert!(database.try_query("select 1").is_err());
        server.start_again();
        assert_eq!(one(&database, "select count(*) from t"), (index + 1).to_string());
    }
}

#[test]
fn a_killed_backend_takes_the_others_along() {
    let mut server = Server::start(Version::V15, Settings::fast());
    let database = server.create_database();
    database.query("create table t (a int); insert into t values (1)");
    let slow = thread::spawn({
        let database = database.clone();
        move || database.try_query("select pg_sleep(60)")
    });
    let backend = "select pid from pg_stat_activity where query = 'select pg_sleep(60)'";
    wait_until("the backend is seen", || !database.query(backend).is_empty());
    server.kill_backend_9(one(&database, backend).parse().unwrap());
    assert!(slow.join().unwrap().is_err());
    server.wait_until_it_answers();
    assert_eq!(one(&database, "select count(*) from t"), "1");
}

#[test]
fn a_frozen_server_answers_when_it_is_thawed() {
    let mut server = Server::start(Version::V15, Settings::fast());
    let database = server.create_database();
    server.freeze();
    let late = thread::spawn(move || database.query("select 7"));
    let state = |pid| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ");
    wait_until("the server has stopped", || state(server.pid().unwrap()));
    assert!(!late.is_finished());
    server.thaw();
    assert_eq!(late.join().unwrap(), [[Some("7".to_owned())]]);
}

#[test]
fn clusters_are_alike_unless_asked_otherwise() {
    let identity = |settings| {
        let server = Server::start(Version::V15, settings);
        server.query("postgres", "select system_identifier from pg_control_system()")
    };
    assert_eq!(identity(Settings::fast()), identity(Settings::fast()));
    assert_ne!(identity(Settings::fast()), identity(Settings::fast().own_identity()));
}

#[test]
fn programs_reach_their_server() {
    let server = shared(Version::V15);
    let database = server.create_database();
    database.query("create table here (a int)");
    let output = server.command("pg_dump").args(["--schema-only", &database.name]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("CREATE TABLE public.here"), "{output:?}");
    for version in Version::ALL {
        let output = shared(version).command("psql").args(["-Atc", "show server_version"]).output().unwrap();
        assert!(output.stdout.starts_with(version.major().to_string().as_bytes()), "{output:?}");
    }
}

#[test]
fn a_dropped_server_leaves_nothing() {
    for end in [None, Some(Server::freeze as fn(&mut Server)), Some(Server::kill_9)] {
        let mut server = Server::start(Version::V15, Settings::fast());
        let folder = server.folder().to_owned();
        let postmaster = server.pid().unwrap();
        assert!(processes_in(&folder).len() > 3);
        if let Some(end) = end {
            end(&mut server);
        }
        drop(server);
        assert!(!fs::exists(format!("/proc/{postmaster}")).unwrap());
        assert!(processes_in(&folder).is_empty());
        assert!(!folder.exists());
    }
}

#[test]
fn a_killed_test_process_leaves_nothing() {
    if let Some(file) = env::var_os(VICTIM) {
        let folder = shared(Version::V15).folder().to_str().unwrap();
        let whole = PathBuf::from(file);
        let part = whole.with_extension("part");
        fs::write(&part, folder).unwrap();
        fs::rename(part, whole).unwrap();
        loop {
            thread::park();
        }
    }
    let file = env::temp_dir().join(format!("postrider-victim-{}", std::process::id()));
    let mut victim = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_killed_test_process_leaves_nothing"])
        .env(VICTIM, &file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the victim's server runs", || file.exists());
    let folder = PathBuf::from(fs::read_to_string(&file).unwrap());
    fs::remove_file(&file).unwrap();
    assert!(processes_in(&folder).len() > 3);
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until("its folder is gone", || !folder.exists());
    assert!(processes_in(&folder).is_empty());
}

/// The processes that work in a folder, as all of a server's do. One that has ended and waits for a parent to
/// ask for its result works nowhere.
fn processes_in(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc can be read").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let place = fs::read_link(format!("/proc/{pid}/cwd"));
        place.is_ok_and(|place| place.starts_with(folder))
    })
    .collect()
}
