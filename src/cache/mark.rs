//! The mark: what the server says of a read that the fill token does not vouch for.

use std::str::FromStr;
use std::sync::Arc;

use tokio_postgres::types::PgLsn;

use super::trail::Trail;
use crate::error::{Error, Result};
use crate::snapshot::{Identity, Life, Snapshot};

/// What the server's function `mark()` said of a read; parsed from its text.
///
/// Needed for a value that was read on a standby, or in a transaction that was open before the
/// [fill token](super::FillToken) was issued. Taken **in the statement that reads, or in an earlier one of the same
/// transaction**; a mark that is taken later claims what the read has not seen, and the cache keeps a stale value for
/// ever.
///
/// ```sql
/// -- On a standby or in an open transaction; what it costs is that only ids below the snapshot's xmin count as seen,
/// -- so one long transaction on the primary keeps everything younger out of the cache.
/// select v, pgevict.mark() from product where id = 42;
///
/// -- On a standby, better: READ COMMITTED, and the place is read by a statement of its own, BEFORE the data.
/// begin;
/// select pg_last_wal_replay_lsn();                             -- 0/3000148
/// select v, pgevict.mark('0/3000148') from product where id = 42;
/// commit;
/// ```
///
/// Never `mark(pg_last_wal_replay_lsn())`: that place is read after the snapshot was taken. A transaction that writes
/// takes the mark after its first write, or what it reads of its own is taken for committed. A value that was read by
/// several statements is marked by the first of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(Form);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Known(Known),
    /// Of a newer server: not understood, so never stored.
    Newer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    /// `None`: the server has no epoch.
    life: Option<Life>,
    place: Place,
    /// The transaction has written.
    writes: bool,
    snapshot: Arc<Snapshot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Primary,
    /// Perhaps with the place in the WAL that had been replayed before the read.
    Standby(Option<PgLsn>),
}

impl Mark {
    /// R of the read that it was taken with, for an instance whose cursors are `trail`; `None` when nothing is known
    /// of what the read saw, or it saw what may never be committed.
    pub(super) fn read_at(&self, trail: &Trail) -> Option<Arc<Snapshot>> {
        let Form::Known(known) = &self.0 else {
            return None;
        };
        if known.writes || known.life.as_ref() != Some(trail.life()) {
            return None;
        }
        let Place::Standby(replayed) = known.place else {
            return Some(known.snapshot.clone());
        };
        let finished = known.snapshot.finished();
        match replayed.and_then(|lsn| trail.reached_by(lsn)) {
            // Both hold; the one that sees more is the better R.
            Some(cursor) if !finished.covers(cursor) => Some(cursor.clone()),
            _ => Some(Arc::new(finished)),
        }
    }
}

impl FromStr for Mark {
    type Err = Error;

    /// # Errors
    /// Invalid, with the field, unless the text is one that the server gave. A form that is newer than this library
    /// is no error: what it marks is not stored.
    fn from_str(text: &str) -> Result<Self> {
        let mut fields = text.split(';');
        let version: u32 = field(text, "version", fields.next())?;
        if version != 1 {
            // A number alone is another column than the mark.
            return match fields.next() {
                Some(_) if version > 1 => Ok(Self(Form::Newer)),
                _ => Err(malformed(text, "version")),
            };
        }
        let identity = Identity {
            system_identifier: field(text, "system identifier", fields.next())?,
            database: field(text, "database", fields.next())?,
            event_table: field(text, "event table", fields.next())?,
        };
        let epoch = optional(text, "epoch", fields.next())?;
        let server = fields.next();
        let own: Option<u64> = optional(text, "own transaction", fields.next())?;
        let replayed = optional(text, "replayed", fields.next())?;
        let snapshot = field(text, "snapshot", fields.next())?;
        if fields.next().is_some() {
            return Err(malformed(text, "end"));
        }
        Ok(Self(Form::Known(Known {
            life: epoch.map(|epoch| Life { epoch, identity }),
            place: match server {
                Some("primary") => Place::Primary,
                Some("standby") => Place::Standby(replayed),
                _ => return Err(malformed(text, "kind of server")),
            },
            writes: own.is_some(),
            snapshot: Arc::new(snapshot),
        })))
    }
}

fn field<T: FromStr>(text: &str, name: &str, found: Option<&str>) -> Result<T> {
    found
        .and_then(|found| found.parse().ok())
        .ok_or_else(|| malformed(text, name))
}

fn optional<T: FromStr>(text: &str, name: &str, found: Option<&str>) -> Result<Option<T>> {
    match found {
        Some("-") => Ok(None),
        found => field(text, name, found).map(Some),
    }
}

fn malformed(text: &str, name: &str) -> Error {
    let head: String = text.chars().take(120).collect();
    Error::invalid(format!(
        "{head:?} is not a mark ({name}): hand over the text of the server's mark() as it is"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

    fn text(server: &str, own: &str, replayed: &str, snapshot: &str) -> String {
        format!("1;-9;16384;16399;{EPOCH};{server};{own};{replayed};{snapshot}")
    }

    fn r(text: &str) -> Option<String> {
        let life = Life {
            epoch: EPOCH.parse().unwrap(),
            identity: Identity {
                system_identifier: -9,
                database: 16_384,
                event_table: 16_399,
            },
        };
        let cursor = |text: &str| Arc::new(text.parse::<Snapshot>().unwrap());
        let trail = Trail::new(life).with(&cursor("50:60:50"), 0x10.into(), 0).with(
            &cursor("50:70:50"),
            0x20.into(),
            1,
        );
        let read_at = text.parse::<Mark>().unwrap().read_at(&trail);
        read_at.map(|snapshot| snapshot.to_string())
    }

    #[test]
    fn a_number_is_no_mark() {
        for text in ["42", "0;x", "2"] {
            let error = text.parse::<Mark>().unwrap_err();
            assert!(
                error.is_invalid() && error.to_string().contains("version"),
                "{error}"
            );
        }
    }

    #[test]
    fn r_is_what_the_read_has_surely_seen() {
        let r = |server, own, replayed, snapshot| r(&text(server, own, replayed, snapshot));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(r("primary", "-", "-", "40:80:40,41"), some("40:80:40,41"));
        assert_eq!(r("primary", "79", "-", "40:80:40,41"), None, "own writes");
        assert_eq!(
            r("standby", "-", "-", "50:80:"),
            some("50:50:"),
            "only below xmin"
        );
        assert_eq!(r("standby", "-", "0/F", "50:80:"), some("50:50:"));
        assert_eq!(r("standby", "-", "0/10", "50:80:"), some("50:60:50"));
        assert_eq!(r("standby", "-", "0/1F", "50:80:"), some("50:60:50"));
        assert_eq!(r("standby", "-", "1/0", "50:80:"), some("50:70:50"));
        assert_eq!(r("standby", "-", "1/0", "90:90:"), some("90:90:"), "sees more");
    }

    #[test]
    fn of_another_life_or_form_nothing_is_known() {
        let good = text("primary", "-", "-", "40:80:40,41");
        assert!(r(&good).is_some());
        for other in [
            good.replace(EPOCH, "-"),
            good.replace("67e5", "67e6"),
            good.replace("-9;", "9;"),
            good.replace("16384", "16385"),
            good.replace("16399", "16398"),
            "2;something else".to_owned(),
        ] {
            assert_eq!(r(&other), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_mark_is_refused_by_the_name_of_the_field() {
        let good = text("standby", "-", "0/10", "50:80:");
        for (from, to, name) in [
            ("1;-9", "x;-9", "version"),
            ("16384", "", "database"),
            ("standby", "replica", "kind of server"),
            ("0/10", "10", "replayed"),
            (";50:80:", "", "snapshot"),
            ("50:80:", "80:50:", "snapshot"),
            ("50:80:", "50:80:;", "end"),
        ] {
            let error = good.replacen(from, to, 1).parse::<Mark>().unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(name), "{error}");
        }
        assert!("".parse::<Mark>().is_err() && "50:80:".parse::<Mark>().is_err());
    }
}
