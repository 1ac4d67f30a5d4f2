//! What pgevict keeps in the database: watches, what replication does to them, and the log.

use std::time::Duration;

use super::held::span;
use crate::store::doctor::finding::Checked;
use crate::store::doctor::{Catalog, Log};
use crate::store::watch::{Watch, WatchState};

/// Past the retention, time for a warden, or for `pgevict prune` from cron, to get to it.
const GRACE: f64 = 900.0;
/// Dead rows from which on the log counts as bloated, if they are also four times the live ones.
const MANY_DEAD: i64 = 100_000;

pub(super) fn watches(watches: &[Watch], checked: &mut Checked) {
    for watch in watches {
        let name = watch.name();
        match watch.state {
            WatchState::Ok => {}
            WatchState::Missing => checked.fault(
                "watch-missing",
                why(watch, format!("the watch of {name} has no table or no trigger any more")),
                "nothing tells of changes: caches keep what is stale until it expires",
                cure(watch, format!("pgevict watch {name} ... as before, or pgevict unwatch {name}")),
            ),
            WatchState::Drifted => checked.fault(
                "watch-drifted",
                why(watch, format!("the watch of {name} is not whole")),
                "each change drops all that the heads of its templates name; a disabled trigger tells of nothing",
                cure(watch, format!("pgevict watch {name} ...")),
            ),
        }
        for partition in &watch.detached {
            checked.note(
                "partition-detached",
                format!("{partition} was a partition of {name}, and was detached"),
                "nobody tells of what is written to it",
                format!("watch {partition} on its own, or leave it if no cache holds its rows"),
            );
        }
    }
}

fn why(watch: &Watch, what: String) -> String {
    match &watch.reason {
        Some(reason) => format!("{what}: {reason}"),
        None => what,
    }
}

/// That of the server, which knows the case; an older one names none.
fn cure(watch: &Watch, command: String) -> String {
    match &watch.cure {
        Some(cure) => format!("{cure}: {command}"),
        None => command,
    }
}

pub(super) fn catalog(catalog: &Catalog, checked: &mut Checked) {
    for one in catalog.subscribed.iter().filter(|one| !one.fires) {
        checked.fault(
            "subscription-skips-watch",
            format!(
                "the subscription {} writes to {}, and its watch does not fire for what replication applies",
                one.subscription, one.table
            ),
            "changes that arrive by replication make nothing stale: caches keep the old values until they expire",
            format!(
                "watch {} with fire_on_replica => true, where this version has it; else emit where the change is made",
                one.table
            ),
        );
    }
    for one in &catalog.later {
        checked.note(
            "partition-after-watch",
            format!(
                "{} became a partition of {} after that was watched",
                one.partition, one.table
            ),
            "its rows are told, but a TRUNCATE of it alone only within seconds, and not what one statement writes to it by \
             name while it also writes through its parent",
            format!("pgevict watch {} ... as before", one.table),
        );
    }
    for one in &catalog.publications {
        let (what, cure) = match one.what.as_str() {
            "all tables" => (
                "is FOR ALL TABLES, those of pgevict included",
                "name the tables it is for instead: drop publication, then create publication ... for table ...",
            ),
            "schema" => (
                "is for the tables of schema pgevict",
                "alter publication ... drop tables in schema pgevict;",
            ),
            _ => (
                "has tables of pgevict",
                "alter publication ... drop table ..., all those of pgevict;",
            ),
        };
        checked.fault(
            "publication-takes-log",
            format!("the publication {} {what}", one.name),
            "each event and heartbeat is sent to every subscriber, which has to throw it away, or fails where \
             pgevict is not installed",
            cure.replacen("...", &format!("\"{}\"", one.name.replace('"', "\"\"")), usize::from(one.what != "all tables")),
        );
    }
}

pub(super) fn log(log: &Log, retention: Duration, checked: &mut Checked) {
    let late = retention.as_secs_f64() + GRACE;
    if let Some(oldest) = log.oldest.filter(|oldest| *oldest > late) {
        let nobody = log.warden.is_none() && log.noted.is_none_or(|noted| noted > GRACE);
        let size = log.bytes >> 20;
        let what = format!(
            "the oldest event is {} old, {} are to be kept; the log has {size} MiB",
            span(oldest),
            span(retention.as_secs_f64()),
        );
        if nobody {
            checked.fault(
                "log-grows",
                format!("{what}; nobody prunes it: no instance is in office"),
                "the log grows without end while tables are watched and no instance runs",
                "run an instance as a role with pgevict_instance, pgevict prune from cron, or pgevict uninstall --yes",
            );
        } else {
            let slowest = log.slowest.as_deref().unwrap_or("none alive");
            checked.fault(
                "log-pinned",
                format!("{what}; it is pruned, but not so far (the instance that has read least: {slowest})"),
                "a live instance that does not get on, a long transaction, or a warden with a longer retention pins it",
                "look for a long transaction above, and at that instance's log; give all instances the same retention",
            );
        }
    }
    if !log.autovacuum {
        checked.fault(
            "autovacuum-off",
            "autovacuum is off, in the server or for pgevict.event",
            "pruned events stay in table and index as dead rows for ever",
            "alter system set autovacuum = on; select pg_reload_conf(); alter table pgevict.event reset \
             (autovacuum_enabled);",
        );
    }
    if log.dead_rows > MANY_DEAD && log.dead_rows > 4 * log.live_rows {
        checked.note(
            "log-bloated",
            format!(
                "the log has {} dead rows beside {} live ones",
                log.dead_rows, log.live_rows
            ),
            "vacuum is behind, or a long transaction or replication slot keeps it from cleaning",
            "end what is old in pg_stat_activity and pg_replication_slots, then: vacuum pgevict.event;",
        );
    }
}
