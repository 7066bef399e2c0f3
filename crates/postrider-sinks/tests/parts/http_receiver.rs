//! A receiver of webhooks on loopback that answers as it is told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Method and target, such as `POST /x`.
    pub(crate) line: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

/// What it does with a request. Whatever it answers, it notes the request first.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// A status, more header lines, a body.
    Status(u16, String),
    /// A status, and then bytes for ever.
    Endless(u16),
    /// Nothing, while the connection stays.
    Silence,
    /// The end of the connection.
    HangUp,
}

impl Reply {
    pub(crate) fn ok() -> Self {
        Self::Status(204, String::new())
    }
}

type Answers = Box<dyn FnMut(&Request) -> Reply + Send>;

pub(crate) struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    answers: Mutex<Answers>,
    requests: Mutex<Vec<Request>>,
    /// Requests that are being answered now, and the most there ever were.
    busy: watch::Sender<(usize, usize)>,
}

impl Receiver {
    pub(crate) async fn start(answers: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answers: Mutex::new(Box::new(answers)),
            requests: Mutex::default(),
            busy: watch::Sender::new((0, 0)),
        });
        let mut tasks = JoinSet::new();
        let for_task = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&for_task)));
            }
        });
        Self { address, shared, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn answer(&self, answers: impl FnMut(&Request) -> Reply + Send + 'static) {
        *self.shared.answers.lock().unwrap() = Box::new(answers);
    }

    pub(crate) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut *self.shared.requests.lock().unwrap())
    }

    pub(crate) fn busiest(&self) -> usize {
        self.shared.busy.borrow().1
    }

    /// The ids of all requests, in their order.
    pub(crate) fn ids(&self) -> Vec<String> {
        let requests = self.shared.requests.lock().unwrap();
        requests.iter().map(|request| request.header("webhook-id").unwrap().to_owned()).collect()
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        shared.busy.send_modify(|(now, most)| {
            *now += 1;
            *most = (*most).max(*now);
        });
        // Lets whatever else is on its way arrive, so that `busiest` sees it.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let reply = (shared.answers.lock().unwrap())(&request);
        shared.requests.lock().unwrap().push(request);
        shared.busy.send_modify(|(now, _)| *now -= 1);
        let goes_on = match reply {
            Reply::Status(status, more) => {
                let head = format!("HTTP/1.1 {status} X\r\n{more}content-length: 2\r\n\r\nok");
                let head = if status == 204 { format!("HTTP/1.1 204 X\r\n{more}\r\n") } else { head };
                stream.write_all(head.as_bytes()).await.is_ok()
            }
            Reply::Endless(status) => {
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 99999999999\r\n\r\n");
                let mut goes_on = stream.write_all(head.as_bytes()).await.is_ok();
                while goes_on {
                    goes_on = stream.write_all(&[b'x'; 4096]).await.is_ok();
                }
                false
            }
            Reply::Silence => std::future::pending().await,
            Reply::HangUp => false,
        };
        if !goes_on {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end_matches("\r\n").to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let line = lines.first()?.trim_end_matches(" HTTP/1.1").to_owned();
    let headers: Vec<_> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let by_name: HashMap<_, _> = headers.iter().cloned().collect();
    let length = by_name.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { line, headers, body })
}
