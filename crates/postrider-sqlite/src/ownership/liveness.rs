//! Is a member's process still there?
//!
//! A lease that runs out always ends ownership, so that a process that hangs loses its shards. But after a
//! crash no member should have to wait for that, and on one machine there is proof: the process is gone, or
//! its number belongs to another process now, or the machine has been restarted. Proof of death frees
//! the shards at once; everything else is left to the lease.
//!
//! What a member writes down about itself when it joins:
//!
//! - *boot id*: differs after every start of the machine. A member of an earlier start is dead.
//! - *pid namespace*: containers count their processes separately, so a number means something only to
//!   members of the same namespace. Across namespaces only the beat decides.
//! - *pid and start time*: numbers are used again, but not with the same start time.
//!
//! Being wrong about any of this can cost a change of owner and duplicates, never order or events: the
//! epochs fence a member that was taken for dead.

use std::time::Duration;

use rusqlite::Row;

/// What identifies a process beyond its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Empty where there is no such thing.
    pub(crate) pid_namespace: String,
    /// Empty where there is no such thing.
    pub(crate) boot_id: String,
    /// In the system's ticks since its start; 0 if unknown.
    pub(crate) started: u64,
}

impl Process {
    /// The one that this code runs in.
    pub(crate) fn current() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            pid_namespace: std::fs::read_link("/proc/self/ns/pid")
                .map(|link| link.to_string_lossy().into_owned())
                .unwrap_or_default(),
            boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .map(|id| id.trim().to_owned())
                .unwrap_or_default(),
            started: match look(pid) {
                ProcessState::Running { started } => started,
                ProcessState::Gone | ProcessState::Unknown => 0,
            },
        }
    }
}

/// A member as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signs {
    pub(crate) process: Process,
    /// The machine's uptime at the last beat.
    pub(crate) beat_at: Duration,
}

/// By what a member is judged: the observer's own process, the time and the lease.
#[derive(Debug, Clone)]
pub(crate) struct Observer {
    pub(crate) process: Process,
    pub(crate) uptime: Duration,
    pub(crate) lease: Duration,
}

impl Observer {
    /// Whether the shards of this member may be taken.
    pub(crate) fn is_dead(&self, signs: &Signs) -> bool {
        if signs.process.boot_id != self.process.boot_id {
            return true;
        }
        // A beat from the future is as good as none: its clock is not ours.
        if self.uptime.abs_diff(signs.beat_at) > self.lease {
            return true;
        }
        let same_numbers = !self.process.pid_namespace.is_empty()
            && signs.process.pid_namespace == self.process.pid_namespace;
        same_numbers
            && match look(signs.process.pid) {
                ProcessState::Gone => true,
                ProcessState::Running { started } => started != signs.process.started,
                ProcessState::Unknown => false,
            }
    }
}

/// Reads signs from the columns pid, pid_namespace, boot_id, started and beat_at, beginning at `first`;
/// none if the member has been forgotten.
pub(crate) fn signs_read(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<Signs>> {
    let Some(pid) = row.get(first)? else { return Ok(None) };
    Ok(Some(Signs {
        process: Process {
            pid,
            pid_namespace: row.get(first + 1)?,
            boot_id: row.get(first + 2)?,
            started: row.get::<_, i64>(first + 3)? as u64,
        },
        beat_at: Duration::from_micros(row.get::<_, i64>(first + 4)?.max(0) as u64),
    }))
}

enum ProcessState {
    Running { started: u64 },
    Gone,
    Unknown,
}

fn look(pid: u32) -> ProcessState {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse(&stat),
        // Only with the list of processes at hand does a missing entry mean anything.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && proc_is_there() => ProcessState::Gone,
        Err(_) => ProcessState::Unknown,
    }
}

fn proc_is_there() -> bool {
    std::path::Path::new("/proc/self/stat").exists()
}

/// The fields behind the process's name, which stands in parentheses and may itself contain some: state
/// (field 3), number of threads (20) and start time (22). A process that has ended but was not collected
/// by its parent is gone, unless only its first thread has ended.
fn parse(stat: &str) -> ProcessState {
    let Some((_, rest)) = stat.rsplit_once(')') else { return ProcessState::Unknown };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok());
    let ended = matches!(fields.first(), Some(&("Z" | "X" | "x")));
    match (number(20), number(22)) {
        (Some(threads), Some(_)) if ended && threads <= 1 => ProcessState::Gone,
        (Some(_), Some(started)) => ProcessState::Running { started },
        _ => ProcessState::Unknown,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn observer(uptime_s: u64) -> Observer {
        Observer { process: Process::current(), uptime: Duration::from_secs(uptime_s), lease: LEASE }
    }

    fn beaten_at(seconds: u64) -> Signs {
        Signs { process: Process::current(), beat_at: Duration::from_secs(seconds) }
    }

    #[test]
    fn a_running_process_lives_as_long_as_its_lease() {
        assert!(!observer(110).is_dead(&beaten_at(100)));
        assert!(observer(111).is_dead(&beaten_at(100)));
        assert!(observer(100).is_dead(&beaten_at(111)), "a beat from the future proves nothing");
    }

    #[test]
    fn another_start_of_the_machine_or_of_the_process_is_death() {
        let mut signs = beaten_at(100);
        signs.process.boot_id = "another".to_owned();
        assert!(observer(100).is_dead(&signs));
        let mut signs = beaten_at(100);
        signs.process.started += 1;
        assert!(observer(100).is_dead(&signs));
    }

    #[test]
    fn a_number_of_another_namespace_proves_nothing() {
        let mut signs = beaten_at(100);
        signs.process.pid_namespace = "pid:[1]".to_owned();
        signs.process.pid = u32::MAX;
        assert!(!observer(100).is_dead(&signs));
        assert!(observer(111).is_dead(&signs));
    }

    #[test]
    fn a_process_that_was_not_collected_is_gone_and_names_do_not_confuse() {
        let stat = |state: &str, threads: u32| {
            format!("7 (a) b (c) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 {threads} 0 4711 0 0")
        };
        assert!(matches!(parse(&stat("S", 1)), ProcessState::Running { started: 4711 }));
        assert!(matches!(parse(&stat("Z", 1)), ProcessState::Gone));
        assert!(matches!(parse(&stat("Z", 2)), ProcessState::Running { started: 4711 }));
        assert!(matches!(parse("nonsense"), ProcessState::Unknown));
    }
}
