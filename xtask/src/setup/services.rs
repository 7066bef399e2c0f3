//! Packages want their servers started with the machine. Tests start servers of their own, and nothing else
//! is to run.

use anyhow::Result;

use super::{as_root, on_path};

pub(super) struct Service {
    program: &'static str,
    /// As init scripts and systemd's units call it.
    names: &'static [&'static str],
}

const SERVICES: &[Service] = &[
    Service { program: "/usr/sbin/pgbouncer", names: &["pgbouncer"] },
    Service { program: "/usr/sbin/nats-server", names: &["nats-server"] },
    Service { program: "/usr/bin/redis-server", names: &["redis-server"] },
    Service { program: "/usr/lib/rabbitmq/bin/rabbitmq-server", names: &["rabbitmq-server"] },
    // Comes along with RabbitMQ.
    Service { program: "/usr/bin/epmd", names: &["epmd.service", "epmd.socket"] },
];

/// Without systemd only init scripts start anything, and without a script only systemd does.
const DISABLE: &str = r#"
if [ -e "/etc/init.d/$1" ]; then update-rc.d "$1" disable; fi
if command -v systemctl > /dev/null; then systemctl --quiet disable "$1"; fi
"#;

/// Those that this machine does not have yet.
pub(super) fn absent() -> Vec<&'static Service> {
    SERVICES.iter().filter(|service| !on_path(service.program)).collect()
}

/// Disables the services that came since. A service that was there before stays as it was.
pub(super) fn disable(absent: &[&Service]) -> Result<()> {
    let new = absent.iter().filter(|service| on_path(service.program));
    new.flat_map(|service| service.names).try_for_each(|name| as_root(&["sh", "-ec", DISABLE, "sh", name]))
}
