//! What the server is told about our sessions before they do anything.
//!
//! | way | when it is told | because |
//! |---|---|---|
//! | direct | once, in the startup packet | a `set` behind it would have to be sent before it is known whose session it is |
//! | through a pooler | by `set local`, in every transaction | a `set` would stay with the server's session when the pooler lends it to the application |
//!
//! # The search path
//!
//! A name without a schema is looked for in the schemas of the path, and the best match by types wins, in
//! whichever of them it is: `unnest(bigint[])` that some role has planted in `public` would be called instead
//! of the server's own, with our rights. So the path of all sessions of ours is [`PATH_OPTION`], in which
//! only the server's own names are found. The exception is the session of transactional handlers, whose SQL
//! is theirs: what runs there of ours, as in sessions of applications and of inboxes, leaves no choice by
//! name or type. `tests/planted` plants some thousand functions and operators and runs everything.

use std::fmt::Write;

use crate::server::session::Role;

/// Where names are looked for that are written without a schema, as an option of a startup packet. Temporary
/// objects come last.
pub(crate) const PATH_OPTION: &str = "-c search_path=pg_catalog,pg_temp";
/// The same for one transaction.
pub(crate) const PATH_LOCAL: &str = "set local search_path = pg_catalog,pg_temp; ";

/// A name and its value, of letters, digits and `_` only.
type Setting = (&'static str, &'static str);

/// A transaction that waits for a lock in vain does not hold others up for long.
const LOCK_TIMEOUT: Setting = ("lock_timeout", "5s");
/// A process that was stopped in the middle of a transaction frees what it has locked.
const IDLE_TIMEOUT: Setting = ("idle_in_transaction_session_timeout", "60s");
const STATEMENT_TIMEOUT: Setting = ("statement_timeout", "60s");
/// None of our statements is worth compiling, and a forced plan's estimate always says that it were.
const JIT: Setting = ("jit", "off");

impl Role {
    /// Plans of those who read the log are forced to the index, since the planner knows neither how selective
    /// a snapshot is nor, in a leaf that was never analysed, how many rows there are.
    fn settings(self) -> &'static [Setting] {
        match self {
            Self::Reader => &[
                ("enable_seqscan", "off"),
                ("enable_sort", "off"),
                ("enable_bitmapscan", "off"),
                JIT,
                STATEMENT_TIMEOUT,
            ],
            // Plans are kept from when the tables of exceptions were empty. Of two ways to join them with a
            // list, the one by a heap of all their rows, looked through for each of the list, then seems as
            // good as any: with 50,000 rows and 1,000 keys it took more than half a minute.
            Self::Writer | Self::Settler | Self::Keeper => &[
                ("synchronous_commit", "off"),
                ("enable_seqscan", "off"),
                ("enable_bitmapscan", "off"),
                ("enable_material", "off"),
                LOCK_TIMEOUT,
                JIT,
                IDLE_TIMEOUT,
                STATEMENT_TIMEOUT,
            ],
            // The planner knows little of a table whose rows live for moments.
            Self::Claimer => &[
                ("enable_seqscan", "off"),
                ("enable_bitmapscan", "off"),
                LOCK_TIMEOUT,
                JIT,
                IDLE_TIMEOUT,
                STATEMENT_TIMEOUT,
            ],
            // The rest is its handler's affair.
            Self::Worker => &[LOCK_TIMEOUT],
            Self::Operator => {
                &[("enable_seqscan", "off"), ("enable_bitmapscan", "off"), JIT, LOCK_TIMEOUT, IDLE_TIMEOUT]
            }
            // It reads whole leaves, so that it may take the shortest way through them.
            Self::Retention => &[JIT, LOCK_TIMEOUT, IDLE_TIMEOUT, ("statement_timeout", "10min")],
        }
    }

    /// What handlers look for is their affair.
    fn has_pinned_path(self) -> bool {
        self != Self::Worker
    }

    pub(crate) fn is_read_only(self) -> bool {
        self == Self::Reader
    }

    /// For the startup packet. Isolation is set, since under a database's default of `serializable` our reads
    /// could make producers fail.
    pub(crate) fn startup(self) -> String {
        let read_only = if self.is_read_only() { "on" } else { "off" };
        let mut options = format!(
            r"-c default_transaction_isolation=read\ committed -c default_transaction_read_only={read_only}"
        );
        if self.has_pinned_path() {
            options.push(' ');
            options.push_str(PATH_OPTION);
        }
        for (name, value) in self.settings() {
            // Writing to a string cannot fail.
            let _ = write!(options, " -c {name}={value}");
        }
        options
    }

    /// For the beginning of a transaction. Its isolation and whether it may write are told by what begins it.
    pub(crate) fn prologue(self) -> String {
        let mut script = String::new();
        if self.has_pinned_path() {
            script.push_str(PATH_LOCAL);
        }
        for (name, value) in self.settings() {
            let _ = write!(script, "set local {name} = '{value}'; ");
        }
        if let Some(flush) = self.flush(Scope::Transaction) {
            script.push_str(&flush);
        }
        script
    }

    /// What people do and what is claimed is flushed when it is done, whatever the database's default; one
    /// that asks for more stays.
    pub(crate) fn flush(self, scope: Scope) -> Option<String> {
        let local = scope == Scope::Transaction;
        matches!(self, Self::Operator | Self::Claimer).then(|| {
            format!(
                "select pg_catalog.set_config('synchronous_commit', 'on', {local}) \
                 where pg_catalog.current_setting('synchronous_commit') = 'off'; "
            )
        })
    }
}

/// How long a setting holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Session,
    Transaction,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outlives_a_transaction_that_a_pooler_may_lend_the_session_behind_it() {
        for role in [
            Role::Reader,
            Role::Writer,
            Role::Keeper,
            Role::Settler,
            Role::Claimer,
            Role::Worker,
            Role::Operator,
            Role::Retention,
        ] {
            let statements = role.prologue();
            for statement in statements.split("; ").filter(|statement| !statement.is_empty()) {
                let is_local = statement.starts_with("set local ") || statement.contains("'on', true)");
                assert!(is_local, "{role:?}: {statement}");
            }
            let told = role.startup().matches("-c ").count();
            let pinned = usize::from(role != Role::Worker);
            assert_eq!(told, role.settings().len() + 2 + pinned, "{role:?}: the same by both ways");
            assert_eq!(role.startup().matches(PATH_OPTION).count(), pinned, "{role:?}");
            assert_eq!(statements.matches(PATH_LOCAL).count(), pinned, "{role:?}");
        }
    }
}
