//! Where a login may travel without encryption: within this machine, and where config says so.

use std::net::IpAddr;
use std::sync::Once;

use postrider_core::{Error, Result};

use crate::SinkUrl;

/// How a sink would log in.
pub(crate) struct Login<'a> {
    /// The word for the kind of sink.
    pub(crate) sink: &'static str,
    /// Where it logs in, each `HOST` or `HOST:PORT`.
    pub(crate) servers: &'a [String],
    pub(crate) is_given: bool,
    pub(crate) tls: bool,
    /// What config says of it: `login_in_clear`.
    pub(crate) may_be_clear: bool,
}

impl Login<'_> {
    /// Refuses a login that everybody on the way could read. The servers are not repeated: some write a whole
    /// URL there.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_given || self.tls || self.servers.iter().all(|server| is_local(server)) {
            return Ok(());
        }
        let sink = self.sink;
        if self.may_be_clear {
            // Once: some sinks come by for each connection.
            static TOLD: Once = Once::new();
            TOLD.call_once(|| {
                tracing::warn!(
                    sink,
                    "connections are not encrypted: everybody on the way can read and change what is sent, the login among it. \
                     Write tls = true"
                );
            });
            return Ok(());
        }
        Err(Error::invalid(format!(
            "sink `{sink}` would log in without encryption: everybody on the way can read and change what is sent. Write \
             tls = true, or login_in_clear = true to go without"
        )))
    }
}

/// Whether this is the machine itself.
fn is_local(server: &str) -> bool {
    let Ok(url) = SinkUrl::parse(&format!("x://{server}")) else { return false };
    url.hosts.iter().all(|(host, _)| {
        host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(server: &str, is_given: bool, tls: bool, may_be_clear: bool) -> Result<()> {
        Login { sink: "nats", servers: &[server.to_owned()], is_given, tls, may_be_clear }.check()
    }

    #[test]
    fn a_login_leaves_the_machine_encrypted_or_by_express_wish() {
        for local in ["localhost", "localhost:4222", "127.0.0.1:1", "127.8.9.1", "[::1]:4222"] {
            check(local, true, false, false).unwrap();
        }
        for elsewhere in
            ["broker", "broker:4222", "10.0.0.1", "[fe80::1]:1", "localhost.example.com", "u:canary@h"]
        {
            let refused = check(elsewhere, true, false, false).unwrap_err().to_string();
            assert!(refused.contains("tls = true") && !refused.contains("canary"), "{refused}");
            check(elsewhere, true, true, false).unwrap();
            check(elsewhere, true, false, true).unwrap();
            check(elsewhere, false, false, false).unwrap();
        }
    }
}
