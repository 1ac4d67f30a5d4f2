//! The binary forms of `xid8` and `pg_snapshot` on the wire. An `xid8[]` binds as `&[Xid]`.

use std::error::Error as StdError;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use super::{Snapshot, Xid};

type Fallible<T> = std::result::Result<T, Box<dyn StdError + Sync + Send>>;

impl<'a> FromSql<'a> for Xid {
    /// 8 bytes, big-endian.
    fn from_sql(_: &Type, raw: &'a [u8]) -> Fallible<Self> {
        let bytes = raw
            .try_into()
            .map_err(|_| format!("an xid8 has 8 bytes, not {}", raw.len()))?;
        Ok(Self(u64::from_be_bytes(bytes)))
    }

    accepts!(XID8);
}

impl ToSql for Xid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Fallible<IsNull> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(XID8);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Snapshot {
    /// int4 count of the ids in progress, then xmin, xmax and those ids, 8 bytes each, all big-endian.
    fn from_sql(_: &Type, raw: &'a [u8]) -> Fallible<Self> {
        let short = || format!("{} bytes are not a pg_snapshot", raw.len());
        let (count, ids) = raw.split_first_chunk().ok_or_else(short)?;
        let count = usize::try_from(i32::from_be_bytes(*count)).map_err(|_| short())?;
        let (ids, rest) = ids.as_chunks();
        if !rest.is_empty() || ids.len().checked_sub(2) != Some(count) {
            return Err(short().into());
        }
        let mut ids = ids.iter().map(|id| Xid(u64::from_be_bytes(*id)));
        let (Some(xmin), Some(xmax)) = (ids.next(), ids.next()) else {
            return Err(short().into());
        };
        Ok(Self::new(xmin, xmax, ids.collect::<Box<[_]>>())?)
    }

    accepts!(PG_SNAPSHOT);
}

impl ToSql for Snapshot {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Fallible<IsNull> {
        out.extend_from_slice(&i32::try_from(self.in_progress.len())?.to_be_bytes());
        for xid in [&self.xmin, &self.xmax].into_iter().chain(&self.in_progress) {
            out.extend_from_slice(&xid.0.to_be_bytes());
        }
        Ok(IsNull::No)
    }

    accepts!(PG_SNAPSHOT);
    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(value: &dyn ToSql, ty: &Type) -> Vec<u8> {
        let mut out = BytesMut::new();
        value.to_sql_checked(ty, &mut out).unwrap();
        out.to_vec()
    }

    #[test]
    fn an_xid_is_eight_bytes_big_endian() {
        let raw = [0, 0, 0, 1, 0, 0, 0, 2];
        assert_eq!(Xid::from_sql(&Type::XID8, &raw).unwrap(), Xid((1 << 32) + 2));
        assert_eq!(bytes(&Xid((1 << 32) + 2), &Type::XID8), raw);
        for length in (0..16).filter(|length| *length != 8) {
            assert!(Xid::from_sql(&Type::XID8, &vec![0; length]).is_err());
        }
        assert!(!<Xid as FromSql>::accepts(&Type::INT8));
    }

    #[test]
    fn a_list_of_xids_binds_as_an_array() {
        let raw = bytes(&[Xid(3), Xid(4)].as_slice(), &Type::XID8_ARRAY);
        assert_eq!(
            Vec::<Xid>::from_sql(&Type::XID8_ARRAY, &raw).unwrap(),
            [Xid(3), Xid(4)]
        );
        assert!(bytes(&[].as_slice() as &&[Xid], &Type::XID8_ARRAY).len() >= 12);
    }

    #[test]
    fn a_snapshot_is_count_then_ids() {
        let raw: Vec<u8> = [vec![0, 0, 0, 2], be(5), be(10), be(5), be(7)].concat();
        let snapshot: Snapshot = "5:10:5,7".parse().unwrap();
        assert_eq!(Snapshot::from_sql(&Type::PG_SNAPSHOT, &raw).unwrap(), snapshot);
        assert_eq!(bytes(&snapshot, &Type::PG_SNAPSHOT), raw);
    }

    #[test]
    fn a_damaged_snapshot_is_refused() {
        let raw: Vec<u8> = [vec![0, 0, 0, 2], be(5), be(10), be(5), be(7)].concat();
        for length in 0..raw.len() {
            assert!(
                Snapshot::from_sql(&Type::PG_SNAPSHOT, &raw[..length]).is_err(),
                "{length}"
            );
        }
        let refused =
            |parts: &[Vec<u8>]| Snapshot::from_sql(&Type::PG_SNAPSHOT, &parts.concat()).unwrap_err();
        refused(&[raw.clone(), vec![0]]);
        refused(&[raw.clone(), be(8)]);
        refused(&[vec![0xff; 4], be(5), be(10)]);
        refused(&[vec![0x7f, 0xff, 0xff, 0xff], be(5), be(10)]);
        refused(&[vec![0; 4], be(0), be(10)]);
        refused(&[vec![0; 4], be(11), be(10)]);
        refused(&[vec![0, 0, 0, 1], be(5), be(10), be(10)]);
    }

    fn be(id: u64) -> Vec<u8> {
        id.to_be_bytes().to_vec()
    }
}
