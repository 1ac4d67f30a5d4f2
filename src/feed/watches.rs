//! What the warden says about the watches: a line when one turns, none while it stays as it is.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::store::warden::Unwhole;

/// How the watches were at the last check of this term of office.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    unwhole: BTreeSet<Unwhole>,
    /// The last check was refused.
    refused: bool,
}

impl Watches {
    /// Takes what a check found and logs what has turned.
    pub(crate) fn found(&mut self, unwhole: Vec<Unwhole>) {
        let unwhole = BTreeSet::from_iter(unwhole);
        for Unwhole { table, reason } in unwhole.difference(&self.unwhole) {
            tracing::warn!(
                table,
                reason,
                "a watch is not whole; its prefixes are emitted at every check"
            );
        }
        for table in healed(&self.unwhole, &unwhole) {
            tracing::info!(table, "a watch is whole again, or no more");
        }
        self.unwhole = unwhole;
        self.refused = false;
    }

    /// Takes a check that was refused, and logs the first of several.
    pub(crate) fn refused(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.refused, true) {
            tracing::warn!(%error, "the watches cannot be checked");
        }
    }
}

/// Tables among those of before that have no reason any more.
fn healed<'a>(before: &'a BTreeSet<Unwhole>, now: &'a BTreeSet<Unwhole>) -> Vec<&'a str> {
    let still: BTreeSet<&str> = now.iter().map(|one| one.table.as_str()).collect();
    let tables: BTreeSet<&str> = before.iter().map(|one| one.table.as_str()).collect();
    tables.difference(&still).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unwhole(table: &str, reason: &str) -> Unwhole {
        Unwhole {
            table: table.to_owned(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_watch_with_another_reason_is_not_healed() {
        let before = BTreeSet::from([unwhole("a", "x"), unwhole("b", "x"), unwhole("c", "x")]);
        let now = BTreeSet::from([unwhole("a", "x"), unwhole("b", "y")]);
        assert_eq!(healed(&before, &now), ["c"]);
        assert_eq!(healed(&now, &before), [""; 0]);
    }
}
