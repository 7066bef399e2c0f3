//! Signals: the first one drains, the second one ends at once; SIGHUP asks for a reload.

use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};

use crate::exit;

/// Signals this close together are one: a terminal or supervisor may signal the process and its group.
const SAME_SIGNAL_WITHIN: Duration = Duration::from_millis(250);

/// Listens from now on; the returned future resolves with the first signal. A second one ends the
/// process without waiting for anything: whatever was not settled is delivered again later.
pub(crate) fn shutdown() -> Result<impl Future<Output = ()> + Send> {
    let mut signals = Signals::listen()
        .map_err(|error| Error::new(ErrorKind::Internal, "cannot listen for signals").with_source(error))?;
    Ok(async move {
        let name = signals.next().await;
        tracing::info!(signal = name, "will end once drained; a second signal ends at once");
        tokio::spawn(async move {
            tokio::time::sleep(SAME_SIGNAL_WITHIN).await;
            signals.forget();
            let name = signals.next().await;
            tracing::warn!(signal = name, "cut off; what was not settled will be delivered again");
            std::process::exit(i32::from(exit::CUT_OFF));
        });
    })
}

/// Requests to read the config again.
pub(crate) struct Hangups(tokio::signal::unix::Signal);

impl Hangups {
    /// Listens from now on; without that SIGHUP ends the process.
    pub(crate) fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::hangup())
            .map(Self)
            .map_err(|error| Error::new(ErrorKind::Internal, "cannot listen for SIGHUP").with_source(error))
    }

    /// Resolves with the next request; never if `hangups` is `None`. Cancel safe.
    pub(crate) async fn next(hangups: &mut Option<Self>) {
        if let Some(hangups) = hangups
            && hangups.0.recv().await.is_some()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Drops what has come in since the last call to `next`.
    fn forget(&mut self) {
        use std::task::{Context, Poll, Waker};
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(())) = self.interrupt.poll_recv(&mut context) {}
        while let Poll::Ready(Some(())) = self.terminate.poll_recv(&mut context) {}
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
