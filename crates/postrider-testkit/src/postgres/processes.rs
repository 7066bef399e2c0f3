//! Which processes are a server's, and are they gone?
//!
//! Backends make sessions of their own, so a signal to the postmaster's group reaches none of them:
//! they are found as its children.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// A process that is gone already has what the signal was to bring about.
pub(super) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("0 is no process");
    let _ = kill_process(pid, signal);
}

pub(super) fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc can be read").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| status(*pid).is_some_and(|status| status.parent == parent)).collect()
}

/// Until its parent has asked for its result.
pub(super) fn is_there(pid: u32) -> bool {
    status(pid).is_some()
}

/// A process that ended and whose parent has not asked for its result is not running.
pub(super) fn is_running(pid: u32) -> bool {
    status(pid).is_some_and(|status| status.state != 'Z')
}

#[derive(Debug, PartialEq, Eq)]
struct Status {
    state: char,
    parent: u32,
}

fn status(pid: u32) -> Option<Status> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `pid (name) state parent …`, where the name may contain anything.
fn parse(stat: &str) -> Option<Status> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some(Status { state, parent: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_do_not_confuse() {
        assert_eq!(parse("12 (a) S 1) b) Z 34 12 12"), Some(Status { state: 'Z', parent: 34 }));
        assert_eq!(parse("12 (a"), None);
    }

    #[test]
    fn this_process_runs_and_is_its_parents_child() {
        let pid = std::process::id();
        assert!(is_running(pid));
        assert!(children(std::os::unix::process::parent_id()).contains(&pid));
        assert!(!is_running(u32::MAX));
    }
}
