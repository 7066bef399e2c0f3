//! Values of ours as PostgreSQL sends and takes them, in binary.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use postrider_core::Timestamp;
use postrider_core::log::{Snapshot, Xid};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// Microseconds from 1970, where we begin, to 2000, where PostgreSQL does.
const EPOCH_US: i64 = 946_684_800_000_000;

type BoxError = Box<dyn StdError + Sync + Send>;

/// An instant: `timestamptz`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At(pub(crate) Timestamp);

impl At {
    /// What is sent: microseconds since 2000.
    pub(crate) fn to_bytes(self) -> [u8; 8] {
        self.0.as_micros().saturating_sub(EPOCH_US).to_be_bytes()
    }
}

impl<'a> FromSql<'a> for At {
    fn from_sql(_: &Type, mut raw: &'a [u8]) -> Result<Self, BoxError> {
        let us = raw.try_get_i64()?;
        Ok(Self(Timestamp::from_micros(us.saturating_add(EPOCH_US))))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

impl ToSql for At {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_slice(&self.to_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

/// A length of time: `interval`, in microseconds only. Read back, days have 24 hours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct For(pub(crate) Duration);

impl For {
    /// What is sent: microseconds, then days and months, of which there are none.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let us = i64::try_from(self.0.as_micros()).unwrap_or(i64::MAX);
        (i128::from(us) << 64).to_be_bytes()
    }
}

impl<'a> FromSql<'a> for For {
    fn from_sql(_: &Type, mut raw: &'a [u8]) -> Result<Self, BoxError> {
        let us = raw.try_get_i64()?;
        let days = i64::from(raw.try_get_i32()?) + 30 * i64::from(raw.try_get_i32()?);
        let us = us.saturating_add(days.saturating_mul(86_400_000_000));
        Ok(Self(Duration::from_micros(u64::try_from(us).unwrap_or(0))))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::INTERVAL
    }
}

impl ToSql for For {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_slice(&self.to_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::INTERVAL
    }

    to_sql_checked!();
}

/// A transaction's number: `xid8`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct XidValue(pub(crate) Xid);

impl<'a> FromSql<'a> for XidValue {
    fn from_sql(_: &Type, mut raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self(Xid(raw.try_get_u64()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::XID8
    }
}

impl ToSql for XidValue {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_u64(self.0.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::XID8
    }

    to_sql_checked!();
}

/// What was visible: `pg_snapshot`.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotValue(pub(crate) Snapshot);

impl<'a> FromSql<'a> for SnapshotValue {
    fn from_sql(_: &Type, mut raw: &'a [u8]) -> Result<Self, BoxError> {
        let count = raw.try_get_i32()?;
        let (xmin, xmax) = (Xid(raw.try_get_u64()?), Xid(raw.try_get_u64()?));
        let running: Result<Vec<Xid>, _> = (0..count).map(|_| raw.try_get_u64().map(Xid)).collect();
        Snapshot::new(xmin, xmax, running?)
            .map(Self)
            .ok_or_else(|| "a snapshot that contradicts itself".into())
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::PG_SNAPSHOT
    }
}

impl ToSql for SnapshotValue {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_i32(self.0.running().len() as i32);
        out.put_u64(self.0.xmin().0);
        out.put_u64(self.0.xmax().0);
        for xid in self.0.running() {
            out.put_u64(xid.0);
        }
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::PG_SNAPSHOT
    }

    to_sql_checked!();
}

/// JSON as text, neither parsed nor checked by us.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonText<'a>(pub(crate) &'a str);

impl<'a> FromSql<'a> for JsonText<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self(std::str::from_utf8(raw)?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSON
    }
}

impl ToSql for JsonText<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSON
    }

    to_sql_checked!();
}

/// JSON as bytes, neither parsed nor checked by us: in a database whose encoding is `SQL_ASCII` it may be no UTF-8.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonBytes<'a>(pub(crate) &'a [u8]);

impl<'a> FromSql<'a> for JsonBytes<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self(raw))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSON
    }
}

impl ToSql for JsonBytes<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_slice(self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSON
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round<T: ToSql + for<'a> FromSql<'a>>(value: &T, ty: &Type) -> T {
        let mut out = BytesMut::new();
        value.to_sql(ty, &mut out).unwrap();
        T::from_sql(ty, &out).unwrap()
    }

    #[test]
    fn values_come_back_as_they_went() {
        let at = Timestamp::from_micros(1_700_000_000_123_456);
        assert_eq!(round(&At(at), &Type::TIMESTAMPTZ).0, at);
        let length = Duration::from_micros(90_061_000_001);
        assert_eq!(round(&For(length), &Type::INTERVAL).0, length);
        let snapshot: Snapshot = "10:20:12,15".parse().unwrap();
        assert_eq!(round(&SnapshotValue(snapshot.clone()), &Type::PG_SNAPSHOT).0, snapshot);
        assert_eq!(round(&XidValue(Xid(u64::MAX >> 1)), &Type::XID8).0, Xid(u64::MAX >> 1));
    }

    #[test]
    fn damaged_values_are_errors_and_no_panics() {
        assert!(SnapshotValue::from_sql(&Type::PG_SNAPSHOT, &[0, 0, 0, 9, 1]).is_err());
        assert!(At::from_sql(&Type::TIMESTAMPTZ, &[1]).is_err());
    }
}
