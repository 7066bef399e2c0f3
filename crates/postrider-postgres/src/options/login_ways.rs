//! By which ways a password may be proved, and to whom.
//!
//! Who answers on a connection decides how the password is asked for, and may ask for the password itself, or
//! for a hash of it that can be tried against a dictionary. To a server that has proved who it is that may be
//! told; so may it within this machine. To any other the password is only proved by SCRAM, which tells
//! nothing about it, unless `require_auth` in the URL, which has libpq's words, says otherwise.
//!
//! The client library answers whatever it is asked. So its stream is watched: it fails before the question
//! reaches the library. A connection without TLS has a stream of the library's own; one that has to be
//! watched is therefore made as if it were TLS without a negotiation, by a connector that adds nothing.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use postrider_core::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What an `AuthenticationRequest` can ask for.
const OK: i32 = 0;
const CLEARTEXT: i32 = 3;
const MD5: i32 = 5;
const SASL: i32 = 10;

/// The ways that are allowed, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoginWays(u8);

impl LoginWays {
    /// To a server that has proved who it is.
    pub(crate) const ALL: Self = Self(Self::NONE | Self::CLEARTEXT | Self::MD5 | Self::SCRAM);
    /// To any other.
    pub(crate) const UNPROVED: Self = Self(Self::NONE | Self::SCRAM);

    const NONE: u8 = 1;
    const CLEARTEXT: u8 = 2;
    const MD5: u8 = 4;
    const SCRAM: u8 = 8;

    /// Those that a list of libpq's words names.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut ways = 0;
        for word in text.split(',') {
            ways |= match word.trim() {
                "none" => Self::NONE,
                "password" => Self::CLEARTEXT,
                "md5" => Self::MD5,
                "scram-sha-256" => Self::SCRAM,
                _ => {
                    return Err(Error::invalid(
                        "`require_auth` in the store's URL takes `scram-sha-256`, `md5`, `password` and `none`, separated by \
                         commas",
                    ));
                }
            };
        }
        Ok(Self(ways))
    }

    /// Refuses a way that is not among them. What else can be asked for tells nothing, or is not known to
    /// either client.
    pub(crate) fn check(self, asked: i32) -> Result<(), Refused> {
        let (way, refused) = match asked {
            OK => (Self::NONE, Refused::None),
            CLEARTEXT => (Self::CLEARTEXT, Refused::Cleartext),
            MD5 => (Self::MD5, Refused::Md5),
            SASL => (Self::SCRAM, Refused::Scram),
            _ => return Ok(()),
        };
        if self.0 & way != 0 { Ok(()) } else { Err(refused) }
    }
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    None,
    Cleartext,
    Md5,
    Scram,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "it asks for no password, which require_auth does not allow",
            Self::Scram => "it asks for scram-sha-256, which require_auth does not allow",
            Self::Cleartext => {
                "it asks for the password itself, and nobody has checked who it is. Have the server use scram-sha-256, or write \
                 sslmode=verify-full, or require_auth=password if the way to it is safe"
            }
            Self::Md5 => {
                "it asks for an MD5 hash of the password, and nobody has checked who it is. Have the server use scram-sha-256, or \
                 write sslmode=verify-full, or require_auth=md5 if the way to it is safe"
            }
        })
    }
}

impl StdError for Refused {}

/// The refusal among the causes of an error.
pub(crate) fn refused<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Refused> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let hidden = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = hidden.and_then(|hidden| hidden.downcast_ref()) {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

type Rustls = <MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect;
type RustlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;
type AnyError = Box<dyn StdError + Send + Sync>;

/// Makes streams that are watched.
pub(crate) struct Connector {
    /// None where nothing is encrypted.
    pub(crate) tls: Option<MakeRustlsConnect>,
    pub(crate) ways: LoginWays,
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Watched;
    type TlsConnect = Connecting;
    type Error = AnyError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Connecting, AnyError> {
        let tls = match &mut self.tls {
            Some(tls) => Some(MakeTlsConnect::<Socket>::make_tls_connect(tls, domain)?),
            None => None,
        };
        Ok(Connecting { tls, ways: self.ways })
    }
}

pub(crate) struct Connecting {
    tls: Option<Rustls>,
    ways: LoginWays,
}

impl TlsConnect<Socket> for Connecting {
    type Stream = Watched;
    type Error = AnyError;
    type Future = Pin<Box<dyn Future<Output = Result<Watched, AnyError>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        let watch = (self.ways != LoginWays::ALL).then(|| Watch::new(self.ways));
        Box::pin(async move {
            let stream = match self.tls {
                Some(tls) => Stream::Tls(Box::new(tls.connect(socket).await?)),
                None => Stream::Plain(socket),
            };
            Ok(Watched { stream, watch })
        })
    }
}

enum Stream {
    Tls(Box<RustlsStream>),
    Plain(Socket),
}

/// A stream that fails when the server asks for a password in a way that is not allowed.
pub(crate) struct Watched {
    stream: Stream,
    /// None once the login has ended.
    watch: Option<Watch>,
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = match &mut this.stream {
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        if let (Poll::Ready(Ok(())), Some(watch)) = (&read, &mut this.watch) {
            match watch.see(&buf.filled()[before..]) {
                Ok(Login::Goes) => {}
                Ok(Login::Ended) => this.watch = None,
                Err(refused) => {
                    buf.set_filled(before);
                    return Poll::Ready(Err(io::Error::other(refused)));
                }
            }
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl TlsStream for Watched {
    fn channel_binding(&self) -> ChannelBinding {
        match &self.stream {
            Stream::Tls(stream) => stream.channel_binding(),
            Stream::Plain(_) => ChannelBinding::none(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Login {
    Goes,
    Ended,
}

/// Follows what a server says until it takes statements: a tag, the length of the rest, the rest.
struct Watch {
    ways: LoginWays,
    /// The tag, the length and, of what is asked for, the first four bytes.
    head: [u8; 9],
    seen: usize,
    /// How much of the message is still to come and of no interest.
    rest: usize,
    is_first: bool,
}

impl Watch {
    fn new(ways: LoginWays) -> Self {
        Self { ways, head: [0; 9], seen: 0, rest: 0, is_first: true }
    }

    fn see(&mut self, mut bytes: &[u8]) -> Result<Login, Refused> {
        while let Some((byte, others)) = bytes.split_first() {
            if self.rest > 0 {
                let passed = self.rest.min(bytes.len());
                (self.rest, bytes) = (self.rest - passed, &bytes[passed..]);
                continue;
            }
            (self.head[self.seen], bytes) = (*byte, others);
            self.seen += 1;
            let number = |from: usize| {
                self.head[from..from + 4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
            };
            // The length counts itself.
            let length = number(1) as usize;
            match (self.head[0], self.seen) {
                (b'Z', _) => return Ok(Login::Ended),
                (_, ..5) | (b'R', 5..9) if length >= 8 || self.seen < 5 => {}
                (b'R', 9) => {
                    let asked = number(5) as i32;
                    // What follows a proof is the end of it.
                    if asked != OK || self.is_first {
                        self.ways.check(asked)?;
                    }
                    self.is_first = false;
                    (self.rest, self.seen) = (length.saturating_sub(8), 0);
                }
                _ => (self.rest, self.seen) = (length.saturating_sub(4), 0),
            }
        }
        Ok(Login::Goes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(what: i32, rest: &[u8]) -> Vec<u8> {
        let length = (8 + rest.len()) as u32;
        [&b"R"[..], &length.to_be_bytes(), &what.to_be_bytes(), rest].concat()
    }

    /// The same however the bytes are cut.
    fn seen(ways: LoginWays, bytes: &[u8]) -> Result<Login, Refused> {
        let whole = Watch::new(ways).see(bytes);
        for cut in 1..bytes.len() {
            let mut watch = Watch::new(ways);
            let mut last = Ok(Login::Goes);
            for piece in bytes.chunks(cut) {
                last = watch.see(piece);
                if last != Ok(Login::Goes) {
                    break;
                }
            }
            assert_eq!(last, whole, "in pieces of {cut}");
        }
        whole
    }

    #[test]
    fn a_password_is_told_only_to_a_server_that_has_proved_who_it_is() {
        let notice = [&b"N"[..], &9_u32.to_be_bytes(), b"Shell"].concat();
        for (asked, refused) in
            [(asks(CLEARTEXT, b""), Refused::Cleartext), (asks(MD5, b"salt"), Refused::Md5)]
        {
            assert_eq!(seen(LoginWays::UNPROVED, &asked), Err(refused));
            assert_eq!(seen(LoginWays::UNPROVED, &[notice.clone(), asked.clone()].concat()), Err(refused));
            assert_eq!(seen(LoginWays::ALL, &asked), Ok(Login::Goes));
        }
        let scram =
            [asks(SASL, b"SCRAM-SHA-256\0\0"), asks(11, b"r=R"), asks(12, b"v=Z"), asks(OK, b"")].concat();
        assert_eq!(seen(LoginWays::UNPROVED, &scram), Ok(Login::Goes));
        let ended = [&scram[..], b"Z\0\0\0\x05I"].concat();
        assert_eq!(seen(LoginWays::UNPROVED, &ended), Ok(Login::Ended));
        // After one proof another one may be asked for.
        let twice = [scram, asks(CLEARTEXT, b"")].concat();
        assert_eq!(seen(LoginWays::UNPROVED, &twice), Err(Refused::Cleartext));
    }

    #[test]
    fn the_words_are_those_of_libpq() {
        assert_eq!(LoginWays::parse("password,md5,scram-sha-256, none").unwrap(), LoginWays::ALL);
        let only = LoginWays::parse("scram-sha-256").unwrap();
        assert_eq!(only.check(OK), Err(Refused::None));
        assert_eq!(seen(only, &asks(OK, b"")), Err(Refused::None));
        for bad in ["", "gss", "!password", "password,"] {
            assert!(LoginWays::parse(bad).is_err(), "{bad}");
        }
    }
}
