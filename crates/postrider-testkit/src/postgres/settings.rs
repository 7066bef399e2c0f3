//! How a server is set up.

use std::path::PathBuf;

use super::Server;

/// Whether a cluster may be a copy of one that was made before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Identity {
    /// A copy, with the system identifier of all copies.
    Copied,
    /// A new cluster, with its own system identifier.
    Own,
    /// A copy of another server's data, with all that is in it.
    Of(PathBuf),
}

/// Where a cluster's folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Where temporary files are.
    Disk,
    /// In memory, if the machine has plenty.
    Memory,
}

/// How a server is set up: `postgresql.conf`, other files, and what the cluster is made from.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(super) identity: Identity,
    pub(super) place: Place,
    values: Vec<(String, String)>,
    files: Vec<(String, String)>,
}

impl Settings {
    /// Flushes as a server in production does.
    pub fn honest() -> Self {
        let settings =
            Self { identity: Identity::Copied, place: Place::Disk, values: Vec::new(), files: Vec::new() };
        settings
            .set("listen_addresses", "127.0.0.1")
            .set("max_connections", "200")
            .set("max_prepared_transactions", "20")
            .set("shared_buffers", "64MB")
            .set("wal_level", "replica")
            .set("max_wal_size", "256MB")
            .set("log_min_messages", "warning")
            // Recovery flushes a thousand files that were just copied: at once, in about a second,
            // instead of one by one, in up to five.
            .set("recovery_init_sync_method", "syncfs")
            // In files of the data folder: a server killed with -9 leaves nothing behind in /dev/shm.
            .set("dynamic_shared_memory_type", "mmap")
    }

    /// Never flushes, and keeps its files in memory where there is room. Commits survive any end of the server's
    /// processes, but not a loss of power.
    pub fn fast() -> Self {
        let settings = Self { place: Place::Memory, ..Self::honest() };
        settings.set("fsync", "off").set("full_page_writes", "off").set("max_wal_size", "64MB")
    }

    /// One line of `postgresql.conf`; the last one for a name holds.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.values.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A file in the data folder, for the server's user alone: `pg_hba.conf`, or a certificate.
    #[must_use]
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Makes a new cluster, which takes a second longer, so that its system identifier differs from that of
    /// every other server.
    #[must_use]
    pub fn own_identity(mut self) -> Self {
        self.identity = Identity::Own;
        self
    }

    /// Begins with a copy of the data of another server, which must be stopped. With a file `standby.signal` or
    /// `recovery.signal` it becomes its standby, or goes on in a timeline of its own.
    #[must_use]
    pub fn copy_of(mut self, server: &Server) -> Self {
        assert!(server.pid().is_none(), "a running server's files are no whole");
        self.identity = Identity::Of(server.cluster.data());
        self
    }

    /// A copy of another server, which must be stopped, that follows it as the standby `standby` once both run.
    #[must_use]
    pub(super) fn standby_of(self, server: &Server) -> Self {
        let primary = server.address();
        let (host, port) = (primary.ip(), primary.port());
        let told = format!("host={host} port={port} user=postgres dbname=postgres application_name=standby");
        self.copy_of(server)
            .file("standby.signal", "")
            .set("primary_conninfo", &told)
            .set("wal_retrieve_retry_interval", "50ms")
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}
