//! Signals: the first one drains, the second one ends at once.

use postrider_core::{Error, ErrorKind, Result};

use crate::exit;

/// Listens from now on; the returned future resolves with the first signal. A second one ends the
/// process without waiting for anything: whatever was not settled is delivered again later.
pub(crate) fn shutdown() -> Result<impl Future<Output = ()> + Send> {
    let mut signals = Signals::listen()
        .map_err(|error| Error::new(ErrorKind::Internal, "cannot listen for signals").with_source(error))?;
    Ok(async move {
        let name = signals.next().await;
        tracing::info!(signal = name, "draining; a second signal ends at once");
        tokio::spawn(async move {
            let name = signals.next().await;
            tracing::warn!(signal = name, "cut off; what was not settled will be delivered again");
            std::process::exit(i32::from(exit::CUT_OFF));
        });
    })
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    #[expect(clippy::unnecessary_wraps, reason = "the same shape as on Unix")]
    fn listen() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        // Without a way to be told of signals there is none to wait for.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        "Ctrl-C"
    }
}
