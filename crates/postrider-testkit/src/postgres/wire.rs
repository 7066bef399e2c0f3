//! Just enough of PostgreSQL's protocol to send statements and read rows as text.
//!
//! Blocking and with a bound on every wait. A client library would bring its own runtime and a dozen crates
//! to every test binary, for a start-up message and a query.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const WAIT_MAX: Duration = Duration::from_secs(30);
const FRAME_BYTES_MAX: usize = 16 << 20;
const PROTOCOL: i32 = 3 << 16;

#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The connection failed.
    Io(io::Error),
    /// The server said no: code and text.
    Server(String),
}

impl Client {
    pub(super) fn connect(address: SocketAddr, database: &str) -> Result<Self, Refusal> {
        let stream = TcpStream::connect_timeout(&address, WAIT_MAX)?;
        stream.set_read_timeout(Some(WAIT_MAX))?;
        stream.set_write_timeout(Some(WAIT_MAX))?;
        stream.set_nodelay(true)?;
        let mut client = Self { stream };
        let mut body = PROTOCOL.to_be_bytes().to_vec();
        for text in ["user", "postgres", "database", database, ""] {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
        client.send(None, &body)?;
        client.rows_until_ready()?;
        Ok(client)
    }

    /// The rows of all statements.
    pub(super) fn query(&mut self, statements: &str) -> Result<Vec<Vec<Option<String>>>, Refusal> {
        let mut body = statements.as_bytes().to_vec();
        body.push(0);
        self.send(Some(b'Q'), &body)?;
        self.rows_until_ready()
    }

    fn send(&mut self, kind: Option<u8>, body: &[u8]) -> io::Result<()> {
        let mut frame: Vec<u8> = kind.into_iter().collect();
        frame.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        frame.extend_from_slice(body);
        self.stream.write_all(&frame)
    }

    fn rows_until_ready(&mut self) -> Result<Vec<Vec<Option<String>>>, Refusal> {
        let mut rows = Vec::new();
        let mut refusal = None;
        loop {
            let (kind, body) =
                self.receive().map_err(|error| refusal.take().unwrap_or(Refusal::Io(error)))?;
            match kind {
                b'D' => rows.push(row(&body).ok_or_else(|| invalid("a row"))?),
                b'E' => refusal = Some(Refusal::Server(refusal_text(&body))),
                b'Z' => return refusal.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    fn receive(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if !(4..=FRAME_BYTES_MAX).contains(&length) {
            return Err(invalid("a length"));
        }
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body)?;
        Ok((head[0], body))
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Server(told) => f.write_str(told),
        }
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sent {what} that it must not send"))
}

/// A count of two bytes, then for each value its length, -1 for null, and its text.
fn row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut values = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = i32::from_be_bytes(*length);
        let (value, after) = after.split_at_checked(length.max(0) as usize)?;
        values.push((length >= 0).then(|| String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    Some(values)
}

/// Fields that begin with a letter and end with a zero byte; `C` is the code and `M` the text.
fn refusal_text(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0).filter_map(|field| field.split_first());
    let told = fields.filter(|(kind, _)| matches!(kind, b'C' | b'M'));
    told.map(|(_, text)| String::from_utf8_lossy(text).into_owned()).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_texts_and_nulls() {
        let body = b"\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0";
        assert_eq!(row(body), Some(vec![Some("ab".to_owned()), None, Some(String::new())]));
        assert_eq!(row(b"\0\x01\0\0\0\x09ab"), None);
    }

    #[test]
    fn refusals_have_a_code_and_a_text() {
        assert_eq!(refusal_text(b"SFATAL\0C57P03\0Mstarting up\0\0"), "57P03: starting up");
    }
}
