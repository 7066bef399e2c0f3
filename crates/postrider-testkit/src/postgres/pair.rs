//! Two servers, of which one can take the place of the other without losing what was committed.

use std::time::Instant;

use super::{POLL_EVERY, START_MAX, Server, Settings, Version};

/// A primary that writes all that replication slots need, and a standby that its commits wait for. From
/// release 17 on the standby takes over the slots that are made for that, and the primary sends no follower
/// of such a slot more than the standby has.
#[derive(Debug)]
pub struct Pair {
    /// None any more once the standby has taken over.
    pub primary: Server,
    /// Read only until then.
    pub standby: Server,
}

impl Pair {
    /// Starts both, and waits until commits wait for the standby.
    pub fn start(version: Version) -> Self {
        let settings = || Settings::fast().set("wal_level", "logical");
        let following = settings().set("primary_slot_name", "standby").set("hot_standby_feedback", "on");
        let (leading, following) = match version {
            Version::V15 => (settings(), following),
            Version::V18 => (
                settings().set("synchronized_standby_slots", "standby"),
                following.set("sync_replication_slots", "on"),
            ),
        };
        let mut primary = Server::start(version, leading);
        let standby = primary.start_standby(following);
        primary.query("postgres", "select pg_create_physical_replication_slot('standby')");
        primary.query("postgres", "alter system set synchronous_standby_names = 'standby'");
        primary.query("postgres", "select pg_reload_conf()");
        let pair = Self { primary, standby };
        pair.until("commits wait for the standby", |pair| {
            pair.primary.counts("pg_stat_replication where sync_state = 'sync'") == "1"
        });
        pair
    }

    /// Waits until the standby can take over so many slots. They have to be moved on meanwhile by those who
    /// follow them: a standby takes one over only from a place that it has.
    pub fn until_taken_over(&self, slots: usize) {
        self.until("the standby has the slots", |pair| {
            // A place from which a slot can be read again, which a server otherwise writes four times a minute.
            pair.primary.query("postgres", "select pg_log_standby_snapshot()");
            pair.standby.counts("pg_replication_slots where synced and not temporary") == slots.to_string()
        });
    }

    /// The primary ends as a machine does, and the standby takes its place.
    pub fn fail_over(&mut self) {
        self.primary.kill_9();
        self.standby.query("postgres", "select pg_promote()");
    }

    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !holds(self) {
            let (here, there) = (self.primary.log_tail(), self.standby.log_tail());
            assert!(started.elapsed() < START_MAX, "never true: {what}\n{here}\n{there}");
            // tidy: sleep because servers have no other sign than their answers
            std::thread::sleep(POLL_EVERY * 4);
        }
    }
}

impl Server {
    /// How many rows there are of something.
    fn counts(&self, of: &str) -> String {
        self.query("postgres", &format!("select count(*) from {of}"))[0][0].clone().unwrap_or_default()
    }
}
