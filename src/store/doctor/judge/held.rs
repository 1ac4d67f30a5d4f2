//! What sessions hold up: the queue of notifications, its lock, and what a long transaction hides.

use crate::store::doctor::finding::Checked;
use crate::store::doctor::{Holder, NotifyLock, Queue, Transactions};

/// Share of the queue from which on somebody holds it: whoever follows leaves nothing behind.
const QUEUE_LIMIT: f64 = 0.1;
/// A wait for the NOTIFY lock that is no accident, in seconds.
const LONG_WAIT: f64 = 0.2;

/// What a role lacks that does not see the sessions of others.
fn hidden(what: &str) -> String {
    format!("{what} of other roles are not shown to this role; grant pg_read_all_stats to it")
}

pub(super) fn queue(queue: &Queue, checked: &mut Checked) {
    if queue.usage <= QUEUE_LIMIT {
        return;
    }
    let percent = queue.usage * 100.0;
    let who = list(&queue.suspects);
    let cure = match queue.suspects.first() {
        Some(first) => format!(
            "end the one that listens, or let its client read: select pg_terminate_backend({});",
            first.pid
        ),
        None => "look in the server's log for the process that prevents the cleanup, and end it".to_owned(),
    };
    checked.fault(
        "notify-queue-filling",
        format!("the server's queue of notifications is {percent:.0} % full; held by one of: {who}"),
        "a listener in an open transaction, or one whose client does not read, holds it; once it is full, every \
         commit with NOTIFY fails, in all databases",
        cure,
    );
    if queue.hidden > 0 {
        checked.not_checked.push(hidden("sessions"));
    }
}

pub(super) fn notify_lock(lock: &NotifyLock, checked: &mut Checked) {
    if lock.seen * 2 <= lock.samples && lock.longest < LONG_WAIT {
        return;
    }
    let holder = lock.holder.as_ref().map_or("nobody seen".to_owned(), name);
    let who = list(&lock.waiters);
    checked.fault(
        "notify-lock-waiters",
        format!(
            "commits wait for the server's NOTIFY lock: {} at once, {:.1} s at most; held by {holder}; waiting: {who}",
            lock.waiting, lock.longest
        ),
        "a commit with NOTIFY holds this one lock of all databases while it is flushed and replicated; a \
         lock_timeout of a writer then fails its COMMIT",
        "pgevict wake off (events then arrive by polling), or use fewer NOTIFYs of your own; a slow disk or a \
         synchronous standby makes it worse",
    );
}

pub(super) fn transactions(transactions: &Transactions, checked: &mut Checked) {
    for one in &transactions.long {
        let cure = match &one.gid {
            Some(gid) => {
                let gid = gid.replace('\'', "''");
                format!("commit prepared '{gid}'; or: rollback prepared '{gid}';")
            }
            None => format!("let it end, or: select pg_terminate_backend({});", one.pid),
        };
        checked.fault(
            "long-transaction",
            format!("a transaction has been writing for {}: {}", span(one.seconds), name(one)),
            "what it changed is announced when it commits, not before; meanwhile every snapshot carries it along, and \
             no row of its database that has died since can be vacuumed",
            cure,
        );
    }
    if transactions.hidden > 0 {
        checked.not_checked.push(hidden("transactions"));
    }
}

fn list(holders: &[Holder]) -> String {
    match holders {
        [] => "nobody seen".to_owned(),
        holders => holders.iter().map(name).collect::<Vec<_>>().join("; "),
    }
}

/// A session as a DBA looks for it.
fn name(one: &Holder) -> String {
    let mut words = match &one.gid {
        Some(gid) => vec![format!("prepared transaction {gid:?}")],
        None => vec![format!("process {}", one.pid)],
    };
    let mut add = |what: &str, value: &Option<String>| {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            words.push(format!("{what}{value}"));
        }
    };
    add("application ", &one.application);
    add("role ", &one.role);
    add("database ", &one.database);
    if one.gid.is_none() {
        add("", &one.state);
    }
    // That is what an idle session waits for.
    if one.wait.as_deref() != Some("Client/ClientRead") {
        add("waits for ", &one.wait);
    }
    if one.gid.is_none() && one.seconds > 0.0 {
        words.push(format!("since {}", span(one.seconds)));
    }
    if let Some(seconds) = one.query_seconds {
        words.push(format!("last statement begun {} ago", span(seconds)));
    }
    words.join(", ")
}

/// Seconds for people.
pub(super) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..=9 => format!("{:.1} s", seconds.max(0.0)),
        10..=119 => format!("{whole} s"),
        120..=7_199 => format!("{} min", whole / 60),
        _ => format!("{} h", whole / 3_600),
    }
}
