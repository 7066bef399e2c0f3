//! Memory is the same whatever lies in the log.

use std::fs;
use std::future::pending;
use std::process::Command;

use postrider_core::{Delivery, Failure, NewSubscription};
use postrider_runtime::{Relay, Worker};
use postrider_testkit::postgres::Version;

use crate::stage::Stage;

/// Where a child of this test finds its store.
const URL: &str = "POSTRIDER_TEST_MEMORY_URL";
const ROWS: u64 = 200_000;
/// A third of what the transaction holds: a relay that took it whole would need more.
const MEMORY_KIB_MAX: u64 = 100 << 10;

/// Delivers everything, and fails if that took too much memory.
async fn drain(url: &str) {
    let options = postrider_postgres::PostgresOptions::from_url(url).unwrap();
    let store = postrider_postgres::PostgresStore::open(options).await.unwrap();
    let handler = |_: Delivery| async { Ok::<(), Failure>(()) };
    let worker = Worker::new(NewSubscription::new("orders")).each(handler);
    let done = Relay::new(store).worker(worker).run_until_idle(pending()).await.unwrap();
    assert_eq!(done.delivered, ROWS);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < MEMORY_KIB_MAX, "{peak} KiB");
}

#[tokio::test]
async fn a_large_transaction_is_delivered_in_bounded_memory() {
    if let Ok(url) = std::env::var(URL) {
        return drain(&url).await;
    }
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.run(&format!(
            "insert into postrider.event (topic, type, key, payload_bytes)
             select 'order', 'order', 'k' || n % 100, convert_to(repeat('x', 1500), 'utf8')
             from generate_series(1, {ROWS}) as n"
        ));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "memory::a_large_transaction_is_delivered_in_bounded_memory"])
            .env(URL, &stage.db.url)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && told.contains("1 passed"), "{version:?}: {told}");
    }
}
