//! Which processes are a server's, and are they gone?
//!
//! Backends make sessions of their own, so a signal to the postmaster's group reaches none of them:
//! they are found as its children.

use std::fs;

use rustix::process::{Pid, Signal};

/// A process that is gone already has what the signal was to bring about.
#[cfg(feature = "postgres")]
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("0 is no process");
    let _ = rustix::process::kill_process(pid, signal);
}

/// To all processes of a group.
#[cfg(feature = "brokers")]
pub(crate) fn signal_group(leader: u32, signal: Signal) {
    let leader = Pid::from_raw(leader as i32).expect("0 is no process");
    let _ = rustix::process::kill_process_group(leader, signal);
}

/// Those of a group that are running.
#[cfg(feature = "brokers")]
pub(crate) fn group_is_running(leader: u32) -> bool {
    let entries = fs::read_dir("/proc").expect("/proc can be read").flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.any(|pid| status(pid).is_some_and(|status| status.group == leader && status.state != 'Z'))
}

#[cfg(feature = "postgres")]
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc can be read").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| status(*pid).is_some_and(|status| status.parent == parent)).collect()
}

/// Until its parent has asked for its result.
#[cfg(feature = "postgres")]
pub(crate) fn is_there(pid: u32) -> bool {
    status(pid).is_some()
}

/// A process that ended and whose parent has not asked for its result is not running.
#[cfg(feature = "postgres")]
pub(crate) fn is_running(pid: u32) -> bool {
    status(pid).is_some_and(|status| status.state != 'Z')
}

/// All of its threads: each stops when it notices the signal.
#[cfg(feature = "brokers")]
pub(crate) fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    let is_stopped = |path: std::path::PathBuf| {
        fs::read_to_string(path.join("stat"))
            .is_ok_and(|stat| parse(&stat).is_some_and(|status| status.state == 'T'))
    };
    threads.flatten().all(|thread| is_stopped(thread.path()))
}

#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "brokers"), allow(dead_code, reason = "only brokers are groups"))]
struct Status {
    state: char,
    parent: u32,
    group: u32,
}

fn status(pid: u32) -> Option<Status> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `pid (name) state parent group …`, where the name may contain anything.
fn parse(stat: &str) -> Option<Status> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Status { state, parent, group: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_do_not_confuse() {
        assert_eq!(parse("12 (a) S 1) b) Z 34 12 12"), Some(Status { state: 'Z', parent: 34, group: 12 }));
        assert_eq!(parse("12 (a"), None);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn this_process_runs_and_is_its_parents_child() {
        let pid = std::process::id();
        assert!(is_running(pid));
        assert!(children(std::os::unix::process::parent_id()).contains(&pid));
        assert!(!is_running(u32::MAX));
    }
}
