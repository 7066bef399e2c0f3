//! Between a client and the server: lets what the client asks for pass one by one.
//!
//! A client that sends several requests in one go is held up between them all the same, so that what others do can come
//! in between at each.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What passes through is that of one connection at a time.
pub(crate) struct Turnstile {
    pub(crate) address: SocketAddr,
    state: Arc<watch::Sender<State>>,
}

#[derive(Debug, Default)]
struct State {
    holds: bool,
    /// Requests that may pass.
    permits: usize,
    /// One waits to pass.
    waits: bool,
    /// Those that have been answered.
    answered: usize,
    /// The work that sends them has ended.
    ended: bool,
}

impl Turnstile {
    /// Before the server at `target`. At first everything passes.
    pub(crate) async fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(watch::Sender::new(State::default()));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(target).await.unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let started = Arc::new(watch::Sender::new(false));
                tokio::spawn(ask(from_client, to_server, Arc::clone(&shared), started.subscribe()));
                tokio::spawn(answer(from_server, to_client, Arc::clone(&shared), started));
            }
        });
        Self { address, state }
    }

    /// Runs `work`, whose requests wait to be let through from now on.
    pub(crate) fn hold<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.state.send_replace(State { holds: true, ..State::default() });
        let state = Arc::clone(&self.state);
        tokio::spawn(async move {
            let done = work.await;
            state.send_modify(|state| (state.holds, state.ended) = (false, true));
            done
        })
    }

    /// Waits until a request waits to pass, or all is over. Whether one waits.
    pub(crate) async fn arrived(&self) -> bool {
        self.state.subscribe().wait_for(|state| state.waits || state.ended).await.unwrap().waits
    }

    /// Lets one pass.
    pub(crate) fn let_pass(&self) {
        self.state.send_modify(|state| {
            state.permits += 1;
            state.waits = false;
        });
    }

    /// How many have been answered.
    pub(crate) fn answered(&self) -> usize {
        self.state.borrow().answered
    }
}

async fn ask(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: Arc<watch::Sender<State>>,
    started: watch::Receiver<bool>,
) {
    let mut unsent = Vec::new();
    while from.read_buf(&mut unsent).await.is_ok_and(|read| read > 0) {
        // What comes before the first answer is of another form, and of no interest.
        if !*started.borrow() {
            to.write_all(&unsent).await.unwrap();
            unsent.clear();
        }
        while let Some(length) = request(&unsent) {
            state.send_modify(|state| state.waits = state.holds && state.permits == 0);
            let _ = state.subscribe().wait_for(|state| !state.holds || state.permits > 0).await.unwrap();
            state.send_modify(|state| state.permits = state.permits.saturating_sub(1));
            if to.write_all(&unsent[..length]).await.is_err() {
                return;
            }
            unsent.drain(..length);
        }
    }
}

async fn answer(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: Arc<watch::Sender<State>>,
    started: Arc<watch::Sender<bool>>,
) {
    let mut unread = Vec::new();
    while from.read_buf(&mut unread).await.is_ok_and(|read| read > 0) {
        let mut whole = 0;
        let mut ready = 0;
        while let Some(length) = message(&unread[whole..]) {
            ready += usize::from(unread[whole] == b'Z');
            whole += length;
        }
        if ready > 0 {
            started.send_replace(true);
        }
        if to.write_all(&unread[..whole]).await.is_err() {
            return;
        }
        unread.drain(..whole);
        state.send_modify(|state| state.answered += ready);
    }
}

/// The length of the first message, if all of it is there.
fn message(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(1..5)?;
    let length = 1 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
    (bytes.len() >= length).then_some(length)
}

/// The length of the messages up to the first that asks for an answer, if all of them are there.
fn request(bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        let kind = bytes.get(length)?;
        length += message(&bytes[length..])?;
        if matches!(kind, b'S' | b'Q' | b'X') {
            return Some(length);
        }
    }
}
