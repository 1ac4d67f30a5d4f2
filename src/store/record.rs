//! A record as the server sends it in binary form: a count, then type, length and bytes of each field.

use std::error::Error as StdError;

use tokio_postgres::types::{FromSql, Type};

use crate::error::{Error, Result};

/// The fields of a record that have not been read yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a>(&'a [u8]);

/// One field, not yet decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field<'a> {
    type_oid: u32,
    /// `None`: NULL.
    bytes: Option<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// Decodes the next field.
    ///
    /// # Errors
    /// Database when there is none, or it is not of that type.
    pub(crate) fn next<T: FromSql<'a>>(&mut self) -> Result<T> {
        self.raw()?.read()
    }

    /// The texts of the next field, an array without NULL.
    pub(crate) fn texts(&mut self) -> Result<std::vec::IntoIter<&'a str>> {
        Ok(self.next::<Vec<&str>>()?.into_iter())
    }

    /// Takes the next field as it is.
    pub(crate) fn raw(&mut self) -> Result<Field<'a>> {
        let missing = || Error::database("reading a record: it ends too early");
        let type_oid = u32::from_be_bytes(*self.take().ok_or_else(missing)?);
        let length = i32::from_be_bytes(*self.take().ok_or_else(missing)?);
        let bytes = match usize::try_from(length) {
            // Only NULL has a negative length.
            Err(_) => None,
            Ok(length) => {
                let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(missing)?;
                self.0 = rest;
                Some(bytes)
            }
        };
        Ok(Field { type_oid, bytes })
    }

    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Field<'a> {
    /// Decodes the field.
    ///
    /// # Errors
    /// Database when it is not of that type.
    pub(crate) fn read<T: FromSql<'a>>(self) -> Result<T> {
        let unreadable = |error: Box<dyn StdError + Sync + Send>| {
            Error::database("reading a field of a record").because(error)
        };
        let Some(found) = Type::from_oid(self.type_oid).filter(T::accepts) else {
            return Err(Error::database(format!(
                "reading a field of a record: type {} is not expected",
                self.type_oid
            )));
        };
        T::from_sql_nullable(&found, self.bytes).map_err(unreadable)
    }
}

impl<'a> FromSql<'a> for Record<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let (_count, fields) = raw.split_first_chunk::<4>().ok_or("a record without a count")?;
        Ok(Self(fields))
    }

    fn accepts(found: &Type) -> bool {
        *found == Type::RECORD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `select row(7::int4, null::text, 'a'::text)` sends.
    const SENT: [u8; 33] = [
        0, 0, 0, 3, 0, 0, 0, 23, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 25, 255, 255, 255, 255, 0, 0, 0, 25, 0, 0,
        0, 1, b'a',
    ];

    fn record(sent: &[u8]) -> Record<'_> {
        Record::from_sql(&Type::RECORD, sent).unwrap()
    }

    #[test]
    fn fields_are_read_in_order() {
        let mut fields = record(&SENT);
        assert_eq!(fields.next::<i32>().unwrap(), 7);
        assert_eq!(fields.next::<Option<String>>().unwrap(), None);
        assert_eq!(fields.next::<&str>().unwrap(), "a");
        assert!(
            fields
                .next::<&str>()
                .unwrap_err()
                .to_string()
                .contains("too early")
        );
    }

    #[test]
    fn a_field_of_another_type_a_null_and_a_torn_record_are_errors() {
        assert!(record(&SENT).next::<i64>().is_err());
        let mut fields = record(&SENT);
        fields.raw().unwrap();
        assert!(fields.next::<String>().is_err());
        for end in 4..SENT.len() {
            let mut fields = record(&SENT[..end]);
            let read = (
                fields.next::<i32>(),
                fields.next::<Option<&str>>(),
                fields.next::<&str>(),
            );
            assert!(read.2.is_err(), "{end}");
        }
        assert!(Record::from_sql(&Type::RECORD, &SENT[..3]).is_err());
    }
}
