//! The process group of a program, so that what it has started ends with it, and so that a Ctrl-C for us is
//! none for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How long a program that is no longer wanted may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The group that a program leads. Asked to end when dropped, and ended when it has not done so in time.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    /// Its leader was waited for: its number may belong to others from now on.
    is_over: AtomicBool,
}

impl Group {
    /// Of a process that was started as the leader of a group.
    pub(super) fn of(leader: Option<u32>) -> Option<Self> {
        let leader = Pid::from_raw(leader?.cast_signed())?;
        Some(Self { leader, is_over: AtomicBool::new(false) })
    }

    /// Ends all of it at once.
    pub(super) fn kill(&self) {
        if !self.is_over.load(Ordering::Relaxed) {
            // It may have ended by itself.
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
    }

    /// Notes that the leader was waited for, after which nothing is sent any more.
    pub(super) fn note_over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.is_over.load(Ordering::Relaxed) || kill_process_group(self.leader, Signal::TERM).is_err() {
            return;
        }
        // Not a task: the runtime may be about to end. If the process is, too, the program has its signal and
        // the end of its input.
        let leader = self.leader;
        let _ = thread::Builder::new().name("exec-end".to_owned()).spawn(move || {
            let begin = Instant::now();
            while begin.elapsed() < GRACE {
                thread::sleep(LOOK_EVERY);
                if test_kill_process_group(leader).is_err() {
                    return;
                }
            }
            let _ = kill_process_group(leader, Signal::KILL);
        });
    }
}
