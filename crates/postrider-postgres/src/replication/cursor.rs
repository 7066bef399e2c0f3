//! Reading what a server sent, without ever reading beyond its end.

use bytes::{Buf, Bytes};
use postrider_core::log::Lsn;

/// What is left of a message. Everything that it gives is none once there is not enough left.
pub(super) struct Cursor(Bytes);

impl Cursor {
    pub(super) fn new(body: Bytes) -> Self {
        Self(body)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.0.try_get_u8().ok()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.0.try_get_u16().ok()
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.0.try_get_u32().ok()
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.0.try_get_i32().ok()
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.0.try_get_u64().ok()
    }

    pub(super) fn lsn(&mut self) -> Option<Lsn> {
        self.u64().map(Lsn)
    }

    /// A text that ends with a zero byte. The server's encoding is asked to be UTF-8, so that another is an error.
    pub(super) fn text(&mut self) -> Option<String> {
        let length = self.0.iter().position(|byte| *byte == 0)?;
        let text = self.bytes(length)?;
        self.0.advance(1);
        std::str::from_utf8(&text).ok().map(str::to_owned)
    }

    /// So many bytes, not copied.
    pub(super) fn bytes(&mut self, length: usize) -> Option<Bytes> {
        (length <= self.0.len()).then(|| self.0.split_to(length))
    }

    /// All that is left.
    pub(super) fn rest(self) -> Bytes {
        self.0
    }

    /// To look ahead.
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Something, provided that nothing is left behind it.
    pub(super) fn whole<T>(self, read: T) -> Option<T> {
        self.0.is_empty().then_some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let mut cursor = Cursor::new(Bytes::from_static(b"ab\0c"));
        assert_eq!(cursor.u64(), None);
        assert_eq!(cursor.text().as_deref(), Some("ab"));
        assert_eq!(cursor.text(), None, "it has no end");
        assert_eq!(cursor.bytes(2), None);
        assert_eq!(cursor.bytes(1).as_deref(), Some(&b"c"[..]));
        assert_eq!(cursor.u8(), None);
        assert_eq!(cursor.whole(()), Some(()));
        assert_eq!(Cursor::new(Bytes::from_static(b"\xff\0")).text(), None, "no UTF-8");
    }
}
