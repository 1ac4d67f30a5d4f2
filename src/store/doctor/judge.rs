//! From facts to findings. Pure: the same facts, the same report.

use std::time::Duration;

use super::finding::{Checked, Level, Report, Skipped};
use super::{Facts, ListenPath, Look, Place, Versions};

mod held;
mod kept;
#[cfg(test)]
mod tests;

/// Oldest and newest major version that pgevict is tested with.
const TESTED: std::ops::RangeInclusive<i32> = 15..=18;

/// Judges the facts; `retention` is how long events are to be kept.
pub fn judge(facts: &Facts, retention: Duration) -> Report {
    let mut report = Report::default();
    let checks: [(&'static str, Checked); 11] = [
        ("addresses", addresses(facts)),
        ("listen path", seen(&facts.path, path)),
        ("server", seen(&facts.place, server)),
        (
            "schema",
            seen(&facts.installed, |found, checked| {
                schema(found.as_ref(), &facts.ours, checked);
            }),
        ),
        ("rights", rights(facts)),
        ("announcing", announcing(facts)),
        ("NOTIFY queue", seen(&facts.queue, held::queue)),
        ("NOTIFY lock", seen(&facts.notify_lock, held::notify_lock)),
        ("transactions", seen(&facts.transactions, held::transactions)),
        ("watches", watches(facts)),
        (
            "log",
            seen(&facts.log, |log, checked| kept::log(log, retention, checked)),
        ),
    ];
    for (check, checked) in checks {
        let bad = checked
            .findings
            .iter()
            .any(|finding| finding.level == Level::Fault);
        if !bad && checked.not_checked.is_empty() {
            report.ok.push(check);
        }
        report.findings.extend(checked.findings);
        let skipped = |why| Skipped { check, why };
        report
            .not_checked
            .extend(checked.not_checked.into_iter().map(skipped));
    }
    report
}

/// What is not seen is not checked.
fn seen<T>(look: &Look<T>, check: impl FnOnce(&T, &mut Checked)) -> Checked {
    let mut checked = Checked::default();
    match look {
        Look::Seen(seen) => check(seen, &mut checked),
        Look::NotChecked(why) => checked.not_checked.push(why.clone()),
    }
    checked
}

fn addresses(facts: &Facts) -> Checked {
    let mut checked = Checked::default();
    for address in &facts.addresses {
        let Some(error) = &address.error else { continue };
        if error.is_standby() {
            standby(
                &format!("{} leads to standbys only", address.setting),
                &mut checked,
            );
            continue;
        }
        let code = if error.is_unreachable() || error.is_timeout() {
            "unreachable"
        } else {
            "address-refused"
        };
        checked.fault(
            code,
            format!("{} ({}): {error}", address.setting, address.shown),
            "instances need both addresses: one to listen and fetch, the other to prove it and to emit",
            format!("check the setting {} from this machine", address.setting),
        );
    }
    checked
}

fn path(path: &ListenPath, checked: &mut Checked) {
    match path {
        ListenPath::Proved => {}
        ListenPath::Pooler => checked.fault(
            "pooler-on-listen-url",
            "the address for LISTEN leads through a pooler that changes the server's sessions",
            "LISTEN stays with a session that others get: no wake arrives, events wait for the poll",
            "set listen_url to the server's own address; url may stay on the pooler; where there is none: wake.listen = false",
        ),
        ListenPath::TwoServers => checked.fault(
            "two-servers",
            "url and listen_url lead to two databases",
            "what is emitted over one is never read over the other: caches keep what is stale",
            "point both settings at the same database of the same primary",
        ),
        ListenPath::Unheard => checked.fault(
            "probe-unheard",
            "a notification sent over url was not heard on listen_url in time",
            "wakes do not arrive, events wait for the poll: a pooler, or something between that drops the connection",
            "set listen_url to the server's own address; raise wake.probe_timeout if the way is merely slow",
        ),
        ListenPath::Refused(error) => checked.fault(
            "listen-refused",
            format!("the server refuses LISTEN: {error}"),
            "no wake arrives, events wait for the poll",
            "update the server to its newest minor release; a lost transaction status (58P01) is mended there",
        ),
    }
}

fn standby(what: &str, checked: &mut Checked) {
    checked.fault(
        "standby",
        what,
        "a standby has no LISTEN, and its snapshots do not show which transactions run: events would be lost",
        "point the address at the primary, or name all hosts in it",
    );
}

fn server(place: &Place, checked: &mut Checked) {
    let major = place.version / 10_000;
    if major < *TESTED.start() {
        checked.fault(
            "server-too-old",
            format!("the server is PostgreSQL {major}"),
            "before 15 notifications are not signalled at commit; instances refuse to start",
            format!("upgrade to PostgreSQL {} or newer", TESTED.start()),
        );
    } else if major > *TESTED.end() {
        checked.note(
            "server-untested",
            format!("the server is PostgreSQL {major}"),
            "pgevict is tested with 15 to 18",
            "look for a newer pgevict",
        );
    }
    if place.in_recovery {
        standby("the address leads to a standby", checked);
    }
    if place.aurora {
        checked.note(
            "aurora",
            "the server is Amazon Aurora",
            "there an unlogged table may outlive a crash: each reconnect counts as one, and empties the caches",
            "a direct address in listen_url; a pooler there is refused",
        );
    }
}

fn schema(found: Option<&Versions>, ours: &Versions, checked: &mut Checked) {
    let Some(found) = found else {
        checked.fault(
            "not-installed",
            "schema pgevict is not installed in this database",
            "there is no log to write or read: instances refuse to start",
            "pgevict migrate",
        );
        return;
    };
    if found.least_reader > ours.schema {
        checked.fault(
            "binary-too-old",
            format!(
                "the schema has version {} and needs a pgevict that knows {}; this one knows {}",
                found.schema, found.least_reader, ours.schema
            ),
            "instances of this version refuse to start",
            "use a newer pgevict",
        );
    } else if found.schema > ours.schema || found.functions > ours.functions {
        checked.note(
            "schema-newer",
            format!(
                "the schema (version {}, functions {}) is newer than this pgevict ({}, {})",
                found.schema, found.functions, ours.schema, ours.functions
            ),
            "it works: this is how a rolling deployment looks",
            "deploy the newer pgevict everywhere",
        );
    } else if found.schema < ours.schema || found.checksum != ours.checksum {
        checked.fault(
            "schema-older",
            format!(
                "the schema (version {}, functions {}) is older than this pgevict ({}, {})",
                found.schema, found.functions, ours.schema, ours.functions
            ),
            "what the newer functions do, or mend, is missing",
            "pgevict migrate",
        );
    }
}

fn rights(facts: &Facts) -> Checked {
    let role = match &facts.place {
        Look::Seen(place) => format!("\"{}\"", place.role.replace('"', "\"\"")),
        Look::NotChecked(_) => "this role".to_owned(),
    };
    seen(&facts.rights, |rights, checked| {
        let grant = |right: &str| format!("grant {right} to {role};");
        if !rights.read {
            checked.fault(
                "no-right-to-read",
                format!("the role {role} may not read the log"),
                "an instance that connects as this role refuses to start",
                grant("pgevict_instance"),
            );
        } else if !rights.prune {
            checked.note(
                "no-right-to-prune",
                format!("the role {role} may read the log, but not keep it short"),
                "an instance that connects as this role never becomes the warden; if all are so, the log grows",
                grant("pgevict_instance"),
            );
        }
        if !rights.emit {
            checked.note(
                "no-right-to-emit",
                format!("the role {role} may not emit"),
                "emits over this address are refused; watched tables need no such right",
                grant("pgevict_emitter"),
            );
        }
    })
}

/// NOTIFY and prepared transactions exclude each other.
fn announcing(facts: &Facts) -> Checked {
    let mut checked = Checked::default();
    let (place, found) = match (&facts.place, &facts.installed) {
        (Look::Seen(place), Look::Seen(found)) => (place, found),
        (Look::NotChecked(why), _) | (_, Look::NotChecked(why)) => {
            checked.not_checked.push(why.clone());
            return checked;
        }
    };
    let Some(found) = found else {
        checked
            .not_checked
            .push("schema pgevict is not installed".to_owned());
        return checked;
    };
    if place.max_prepared > 0 && found.wake == "commit" {
        checked.fault(
            "notify-breaks-prepare",
            format!(
                "the server allows {} prepared transactions, and writers announce by NOTIFY (wake mode commit)",
                place.max_prepared
            ),
            "PREPARE TRANSACTION fails in each transaction that has written an event",
            "pgevict wake adaptive, or set max_prepared_transactions = 0 and restart the server",
        );
    }
    let polls = match found.wake.as_str() {
        "off" | "bell" => true,
        "adaptive" => place.max_prepared > 0,
        _ => false,
    };
    if polls {
        checked.note(
            "nothing-announced",
            format!("writers announce nothing (wake mode {})", found.wake),
            "events arrive by polling only, within feed.poll (500 ms)",
            "pgevict wake commit, where no transaction is prepared; otherwise leave it",
        );
    }
    checked
}

fn watches(facts: &Facts) -> Checked {
    let mut checked = seen(&facts.watches, |watches, checked| kept::watches(watches, checked));
    let catalog = seen(&facts.catalog, kept::catalog);
    checked.findings.extend(catalog.findings);
    checked.not_checked.extend(catalog.not_checked);
    checked
}
