//! Messages of the protocol over a socket: a letter, a length, a body.
//!
//! Everything that is under way lies in buffers here and nothing in futures, so a caller that stops
//! waiting loses no byte.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// What moves bytes: TCP, a socket of this machine, or TLS.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Socket for T {}

/// How much is read at once. A server with a backlog sends rows of a few hundred bytes; this is what makes
/// system calls rare.
const READ_BYTES: usize = 256 << 10;
/// When less room than this is left, a new buffer is cheaper than small reads.
const ROOM_BYTES_MIN: usize = 16 << 10;
/// The server makes nothing longer than 1 GiB, and adds a header to it.
const MESSAGE_BYTES_MAX: usize = (1 << 30) + (1 << 10);
/// What is kept of a message. An event that keeps its limits takes a third of it; the rest of a longer
/// message is dropped as it comes, because a producer could fill the memory otherwise.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// One message.
pub(super) struct Frame {
    pub(super) tag: u8,
    /// The beginning of it, if something was left out.
    pub(super) body: Bytes,
    /// How many bytes were left out at the end.
    pub(super) left_out: usize,
}

/// A socket, and what was received and is to be sent.
pub(super) struct Wire {
    socket: Box<dyn Socket>,
    incoming: BytesMut,
    outgoing: BytesMut,
    /// Bytes of the last message that are still to come and to be dropped.
    to_drop: usize,
    /// Whether something was written that may still lie in the socket's own buffer, as with TLS.
    is_unflushed: bool,
}

impl Wire {
    pub(super) fn new(socket: impl Socket + 'static) -> Self {
        let (incoming, outgoing) = (BytesMut::new(), BytesMut::new());
        Self { socket: Box::new(socket), incoming, outgoing, to_drop: 0, is_unflushed: false }
    }

    /// Where to put what is to be sent.
    pub(super) fn outgoing(&mut self) -> &mut BytesMut {
        &mut self.outgoing
    }

    /// Whether all was sent.
    pub(super) fn is_sent(&self) -> bool {
        self.outgoing.is_empty() && !self.is_unflushed
    }

    /// The next message that was received as a whole.
    pub(super) fn frame(&mut self) -> io::Result<Option<Frame>> {
        self.drop_rest();
        let Some(length) = self.frame_length()? else { return Ok(None) };
        let kept = length.min(KEPT_BYTES_MAX);
        if self.incoming.len() < kept {
            return Ok(None);
        }
        let mut body = self.incoming.split_to(kept).freeze();
        let tag = body.get_u8();
        body.advance(4);
        self.to_drop = length - kept;
        Ok(Some(Frame { tag, body, left_out: length - kept }))
    }

    /// The next message; waits for it, and sends what is to be sent meanwhile.
    pub(super) async fn frame_wait(&mut self) -> io::Result<Frame> {
        loop {
            if let Some(frame) = self.frame()? {
                return Ok(frame);
            }
            self.receive().await?;
        }
    }

    /// Waits for more bytes, and sends what is to be sent meanwhile.
    pub(super) async fn receive(&mut self) -> io::Result<()> {
        poll_fn(|context| {
            if let Poll::Ready(sent) = self.poll_send(context) {
                sent?;
            }
            self.poll_receive(context)
        })
        .await
    }

    /// Waits until all is sent.
    pub(super) async fn send(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_send(context)).await
    }

    /// Sends what can be sent at once.
    pub(super) async fn send_some(&mut self) -> io::Result<()> {
        poll_fn(|context| match self.poll_send(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(())),
        })
        .await
    }

    /// Drops what has come of the message that was too long.
    fn drop_rest(&mut self) {
        let dropped = self.to_drop.min(self.incoming.len());
        self.incoming.advance(dropped);
        self.to_drop -= dropped;
    }

    /// How long the message is that comes next, with its header; none while that has not come.
    fn frame_length(&self) -> io::Result<Option<usize>> {
        if self.to_drop > 0 {
            return Ok(None);
        }
        let Some(&[_, a, b, c, d]) = self.incoming.first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            let told =
                format!("a message of {length} bytes, which cannot be: is it PostgreSQL that answers?");
            return Err(io::Error::new(io::ErrorKind::InvalidData, told));
        }
        Ok(Some(length + 1))
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let count = ready!(Pin::new(&mut self.socket).poll_write(context, &self.outgoing))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.outgoing.advance(count);
            self.is_unflushed = true;
        }
        if self.is_unflushed {
            ready!(Pin::new(&mut self.socket).poll_flush(context))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.make_room()?;
        let count = ready!(pin!(self.socket.read_buf(&mut self.incoming)).poll(context))?;
        if count > 0 {
            return Poll::Ready(Ok(()));
        }
        let told = if self.incoming.is_empty() && self.to_drop == 0 {
            "the connection has ended"
        } else {
            "it has ended within a message"
        };
        Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, told)))
    }

    /// Room for the rest of the message that comes next, but no more than has been received of it so far: a length
    /// that lies takes no memory.
    fn make_room(&mut self) -> io::Result<()> {
        let (length, room) = (self.incoming.len(), self.incoming.capacity() - self.incoming.len());
        let missing = self.frame_length()?.unwrap_or(0).min(KEPT_BYTES_MAX).saturating_sub(length);
        let wanted = missing.min(length.max(READ_BYTES));
        if room < wanted.max(ROOM_BYTES_MIN) {
            self.incoming.reserve(wanted.max(READ_BYTES));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn messages_come_whole_however_they_were_cut() {
        let (ours, mut theirs) = duplex(3);
        let mut wire = Wire::new(ours);
        let long = vec![7_u8; 1_000_000];
        let sending = tokio::spawn({
            let long = long.clone();
            async move {
                theirs.write_all(b"a\0\0\0\x04b\0\0\0\x06xy").await.unwrap();
                theirs.write_all(b"c").await.unwrap();
                theirs.write_all(&(long.len() as u32 + 4).to_be_bytes()).await.unwrap();
                theirs.write_all(&long).await.unwrap();
            }
        });
        for (tag, body) in [(b'a', &b""[..]), (b'b', b"xy"), (b'c', &long)] {
            let frame = wire.frame_wait().await.unwrap();
            assert_eq!((frame.tag, &frame.body[..]), (tag, body));
        }
        sending.await.unwrap();
        assert_eq!(wire.frame_wait().await.err().unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn of_a_message_that_is_too_long_the_beginning_is_kept() {
        let (ours, mut theirs) = duplex(1 << 16);
        let mut wire = Wire::new(ours);
        let long = 3 * KEPT_BYTES_MAX;
        let sending = tokio::spawn(async move {
            theirs.write_all(b"d").await.unwrap();
            theirs.write_all(&(long as u32 + 4).to_be_bytes()).await.unwrap();
            theirs.write_all(&vec![7; long]).await.unwrap();
            theirs.write_all(b"b\0\0\0\x06xy").await.unwrap();
            theirs.write_all(b"d").await.unwrap();
            theirs.write_all(&(long as u32 + 4).to_be_bytes()).await.unwrap();
            theirs.write_all(&vec![7; 2 * KEPT_BYTES_MAX]).await.unwrap();
        });
        let frame = wire.frame_wait().await.unwrap();
        assert_eq!(frame.body.len() + frame.left_out, long);
        assert_eq!(frame.body.len(), KEPT_BYTES_MAX - 5);
        drop(frame);
        let frame = wire.frame_wait().await.unwrap();
        assert_eq!((frame.tag, &frame.body[..], frame.left_out), (b'b', &b"xy"[..], 0));
        assert!(wire.incoming.capacity() < 2 * KEPT_BYTES_MAX, "the rest takes no memory");
        assert_eq!(wire.frame_wait().await.unwrap().left_out, 2 * KEPT_BYTES_MAX + 5);
        assert_eq!(wire.frame_wait().await.err().unwrap().to_string(), "it has ended within a message");
        sending.await.unwrap();
    }

    #[tokio::test]
    async fn a_cut_in_a_message_is_an_error_and_no_wait() {
        let (ours, mut theirs) = duplex(64);
        theirs.write_all(b"d\0\0\0\x20ab").await.unwrap();
        drop(theirs);
        let error = Wire::new(ours).frame_wait().await.err().unwrap();
        assert_eq!(error.to_string(), "it has ended within a message");
    }

    #[tokio::test]
    async fn lengths_that_cannot_be_are_refused() {
        for bad in [b"d\0\0\0\x03", b"d\x7f\xff\xff\xff", b"d\xff\xff\xff\xff"] {
            let (ours, mut theirs) = duplex(64);
            theirs.write_all(bad).await.unwrap();
            let error = Wire::new(ours).frame_wait().await.err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }
}
