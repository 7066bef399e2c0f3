//! A network between a client and a server that fails on request.
//!
//! ```no_run
//! use postrider_testkit::tcp_proxy::{Counting, Proxy, Side};
//!
//! # let server = std::net::SocketAddr::from(([127, 0, 0, 1], 5432));
//! let proxy = Proxy::start(server);
//! // … connect to proxy.address() …
//! proxy.count_from_now();
//! // … one settle without trouble …
//! for bytes in 0..proxy.passed().client {
//!     proxy.cut_after(Side::Client, bytes, Counting::FromNow);
//!     // … the same settle: it fails, or has happened …
//! }
//! ```
//!
//! It runs on a thread of its own, so that a test which blocks does not block its own network. Each
//! direction of each connection has one buffer and reads on when that is written. What can go wrong is
//! in `script`, which is pure.

mod script;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::script::{Counting, Passed, Side};

use self::script::{Admission, Fault, Flow, Script};

const BUFFER_BYTES: usize = 16 << 10;
const CONNECTIONS_MAX: usize = 1_000;

/// A proxy on the loopback interface. Dropping it resets every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    script: Arc<watch::Sender<Script>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port and forwards to `target`.
    pub fn start(target: SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        listener.set_nonblocking(true).expect("a listener can be polled");
        let script = Arc::new(watch::Sender::new(Script::new(target)));
        let thread = thread::spawn({
            let script = Arc::clone(&script);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime can be made").block_on(serve(listener, script));
            }
        });
        Self { address, script, thread: Some(thread) }
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where connections lead to that are made from now on.
    pub fn set_target(&self, target: SocketAddr) {
        self.script.send_modify(|script| script.target = target);
    }

    /// Sets the counts to zero that [`Proxy::passed`] tells.
    pub fn count_from_now(&self) {
        self.script.send_modify(|script| script.passed = Passed::default());
    }

    /// How many bytes were forwarded since the counts were last set to zero, which arming a fault does too.
    pub fn passed(&self) -> Passed {
        self.script.borrow().passed
    }

    /// How many connections were reset by a fault since it was armed.
    pub fn cuts(&self) -> u64 {
        self.script.borrow().cuts
    }

    /// Forwards exactly so many bytes from one side, and then resets the connection (RST, both ways). After
    /// `0` bytes means: when the first byte arrives, which is not forwarded.
    ///
    /// [`Counting::FromNow`] counts over all connections, strikes the one that reaches the number, and
    /// forwards again afterwards. [`Counting::EachConnection`] strikes each until [`Proxy::heal`].
    pub fn cut_after(&self, side: Side, bytes: u64, counting: Counting) {
        self.arm(Fault { side, bytes, counting, swallows: false });
    }

    /// Forwards exactly so many of the server's bytes, counted from now over all connections; waits for
    /// the next one, loses what has come, and resets the connection. So the server has answered, and the client does
    /// not know. Strikes once.
    pub fn swallow_server_bytes_from(&self, bytes: u64) {
        self.arm(Fault { side: Side::Server, bytes, counting: Counting::FromNow, swallows: true });
    }

    /// Forwards nothing, both ways, not even the end of a connection; new connections are accepted. What the
    /// kernel takes meanwhile is forwarded after [`Proxy::heal`], as after a network's partition.
    pub fn black_hole(&self) {
        self.script.send_modify(|script| script.flow = Flow::Held);
    }

    /// Lets everything take so long from one side to the other. Each direction of a connection has one buffer, so that
    /// little gets through at a time.
    pub fn slow_down(&self, delay: Duration) {
        self.script.send_modify(|script| script.delay = delay);
    }

    /// Resets every connection that there is, also those in a black hole.
    pub fn reset_all(&self) {
        self.script.send_modify(|script| script.resets += 1);
    }

    /// Forwards everything from now on.
    pub fn heal(&self) {
        self.script.send_modify(|script| {
            script.flow = Flow::Open;
            script.fault = None;
            script.delay = Duration::ZERO;
        });
    }

    /// Returns when a fault has struck since it was armed and the connection is gone.
    pub async fn wait_for_cut(&self) {
        let mut script = self.script.subscribe();
        script.wait_for(|script| script.cuts > 0).await.expect("the proxy holds the sender");
    }

    fn arm(&self, fault: Fault) {
        self.script.send_modify(|script| {
            script.passed = Passed::default();
            script.cuts = 0;
            script.fault = Some(fault);
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.script.send_modify(|script| script.flow = Flow::Ended);
        if let Some(thread) = self.thread.take() {
            // Its panic was printed; the test has failed for want of a network or needed none any more.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: std::net::TcpListener, script: Arc<watch::Sender<Script>>) {
    let listener = TcpListener::from_std(listener).expect("the listener is fit for the runtime");
    let mut connections = JoinSet::new();
    let mut changes = script.subscribe();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                while connections.try_join_next().is_some() {}
                assert!(connections.len() < CONNECTIONS_MAX, "a test opens too many connections");
                // An accept fails when the client has gone again.
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(Connection::new(client, Arc::clone(&script)).run());
            }
            _ = changes.wait_for(|script| script.flow == Flow::Ended) => break,
        }
    }
    while connections.join_next().await.is_some() {}
}

struct Connection {
    client: TcpStream,
    script: Arc<watch::Sender<Script>>,
    changes: watch::Receiver<Script>,
    /// How many resets of all connections came before this one.
    resets: u64,
}

/// Why a connection is reset.
enum Reset {
    /// The script says so.
    Scripted,
    /// One side has done it, or cannot be reached.
    Passed,
}

impl From<io::Error> for Reset {
    fn from(_: io::Error) -> Self {
        Self::Passed
    }
}

impl Connection {
    fn new(client: TcpStream, script: Arc<watch::Sender<Script>>) -> Self {
        let changes = script.subscribe();
        let resets = changes.borrow().resets;
        Self { client, script, changes, resets }
    }

    async fn run(mut self) {
        let mut server = None;
        let resets = self.resets;
        let mut changes = self.changes.clone();
        let end = tokio::select! {
            end = self.forward(&mut server) => end,
            _ = changes.wait_for(|now| now.resets != resets || now.flow == Flow::Ended) => Err(Reset::Passed),
        };
        let Err(reset) = end else { return };
        for stream in [Some(self.client), server].into_iter().flatten() {
            // Without lingering, closing sends a reset.
            let _ = stream.set_zero_linger();
        }
        if matches!(reset, Reset::Scripted) {
            self.script.send_modify(|script| script.cuts += 1);
        }
    }

    async fn forward(&mut self, server: &mut Option<TcpStream>) -> Result<(), Reset> {
        open(&mut self.changes.clone()).await;
        let target = self.script.borrow().target;
        let server = server.insert(TcpStream::connect(target).await?);
        // As it comes, it goes: the proxy is not to batch what the sides did not.
        self.client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = self.client.split();
        let (from_server, to_server) = server.split();
        let to_server = pump(&self.script, Side::Client, from_client, to_server);
        let to_client = pump(&self.script, Side::Server, from_server, to_client);
        tokio::try_join!(to_server, to_client).map(|_| ())
    }
}

/// One direction, until its end.
async fn pump(
    script: &watch::Sender<Script>,
    side: Side,
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
) -> Result<(), Reset> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut changes = script.subscribe();
    let mut passed = 0;
    loop {
        let bytes = from.read(&mut buffer).await?;
        let delay = script.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let (bytes, cut) = loop {
            match admit(script, side, passed, bytes) {
                Admission::Later => open(&mut changes).await,
                Admission::Now { bytes, cut } => break (bytes, cut),
            }
        };
        to.write_all(&buffer[..bytes]).await?;
        passed += bytes as u64;
        if cut {
            return Err(Reset::Scripted);
        }
        if bytes == 0 {
            to.shutdown().await?;
            return Ok(());
        }
    }
}

/// Wakes no task, because counts are looked at and never waited for.
fn admit(script: &watch::Sender<Script>, side: Side, passed: u64, bytes: usize) -> Admission {
    let mut admission = Admission::Later;
    script.send_if_modified(|script| {
        admission = script.admit(side, passed, bytes);
        false
    });
    admission
}

/// Waits out a black hole.
async fn open(changes: &mut watch::Receiver<Script>) {
    changes.wait_for(|script| script.flow == Flow::Open).await.expect("the connection holds the sender");
}
