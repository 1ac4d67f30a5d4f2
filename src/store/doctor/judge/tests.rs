use std::time::Duration;

use super::*;
use crate::store::doctor::{Catalog, Holder, Log, NotifyLock, Queue, Rights, Subscribed, Transactions};

const RETENTION: Duration = Duration::from_secs(3_600);

fn place(version: i32) -> Look<Place> {
    Look::Seen(Place {
        version,
        role: "ap\"p".to_owned(),
        ..Place::default()
    })
}

fn versions(schema: i32, functions: i32, checksum: &str) -> Versions {
    Versions {
        schema,
        functions,
        checksum: checksum.to_owned(),
        least_reader: 1,
        wake: "adaptive".to_owned(),
    }
}

/// Everything seen, nothing wrong.
fn well() -> Facts {
    Facts {
        path: Look::Seen(ListenPath::Proved),
        place: place(180_006),
        installed: Look::Seen(Some(versions(2, 5, "a"))),
        ours: versions(2, 5, "a"),
        rights: Look::Seen(Rights {
            read: true,
            emit: true,
            prune: true,
            watches: true,
        }),
        queue: Look::Seen(Queue::default()),
        notify_lock: Look::Seen(NotifyLock::default()),
        transactions: Look::Seen(Transactions::default()),
        watches: Look::Seen(Vec::new()),
        catalog: Look::Seen(Catalog::default()),
        log: Look::Seen(Log {
            autovacuum: true,
            ..Log::default()
        }),
        ..Facts::default()
    }
}

fn codes(facts: &Facts) -> Vec<&'static str> {
    let report = judge(facts, RETENTION);
    report.findings.iter().map(|finding| finding.code).collect()
}

#[test]
fn what_is_well_is_said_to_be_and_what_was_not_seen_is_not() {
    let report = judge(&well(), RETENTION);
    assert_eq!(
        (report.findings.len(), report.not_checked.len(), report.ok.len()),
        (0, 0, 11)
    );
    let blind = judge(&Facts::default(), RETENTION);
    assert!(blind.is_well() && blind.findings.is_empty());
    assert_eq!(blind.ok, ["addresses"]);
    // Watches and replication are two questions of one check.
    assert_eq!(blind.not_checked.len(), 11);
}

#[test]
fn servers_and_versions_have_their_limits() {
    for (version, wanted) in [
        (140_012, vec!["server-too-old"]),
        (150_000, vec![]),
        (189_999, vec![]),
        (190_000, vec!["server-untested"]),
    ] {
        let facts = Facts {
            place: place(version),
            ..well()
        };
        assert_eq!(codes(&facts), wanted, "{version}");
    }
    for (found, wanted) in [
        (versions(2, 5, "a"), vec![]),
        (versions(1, 4, "b"), vec!["schema-older"]),
        (versions(2, 5, "b"), vec!["schema-older"]),
        (versions(2, 6, "b"), vec!["schema-newer"]),
        (versions(3, 6, "b"), vec!["schema-newer"]),
    ] {
        let facts = Facts {
            installed: Look::Seen(Some(found.clone())),
            ..well()
        };
        assert_eq!(codes(&facts), wanted, "{found:?}");
        let mut facts = facts;
        if let Look::Seen(Some(found)) = &mut facts.installed {
            found.least_reader = 3;
        }
        assert_eq!(codes(&facts), ["binary-too-old"]);
    }
}

#[test]
fn a_role_is_quoted_in_the_cure() {
    let facts = Facts {
        rights: Look::Seen(Rights::default()),
        ..well()
    };
    let report = judge(&facts, RETENTION);
    assert_eq!(codes(&facts), ["no-right-to-read", "no-right-to-emit"]);
    assert_eq!(report.findings[0].cure, "grant pgevict_instance to \"ap\"\"p\";");
    assert_eq!(report.findings[1].level, Level::Note);
}

#[test]
fn a_moving_queue_is_no_finding_and_a_standing_one_is() {
    let queue = |usage| Facts {
        queue: Look::Seen(Queue {
            usage,
            ..Queue::default()
        }),
        ..well()
    };
    assert_eq!(codes(&queue(0.1)), [""; 0]);
    assert_eq!(codes(&queue(0.11)), ["notify-queue-filling"]);

    let lock = |looks: &[(i64, f64)]| {
        let mut sum = NotifyLock::default();
        for (waiting, longest) in looks {
            sum.add(NotifyLock {
                waiting: *waiting,
                longest: *longest,
                ..NotifyLock::default()
            });
        }
        codes(&Facts {
            notify_lock: Look::Seen(sum),
            ..well()
        })
    };
    // A commit that passes, seen once; many that pass, seen each time; one that stands.
    assert_eq!(lock(&[(0, 0.0), (1, 0.01), (0, 0.0)]), [""; 0]);
    assert_eq!(lock(&[(3, 0.01), (1, 0.01), (2, 0.0)]), ["notify-lock-waiters"]);
    assert_eq!(lock(&[(0, 0.0), (0, 0.0), (1, 0.2)]), ["notify-lock-waiters"]);
}

#[test]
fn what_the_role_may_not_see_is_said_beside_what_it_sees() {
    let facts = Facts {
        transactions: Look::Seen(Transactions {
            long: vec![Holder {
                gid: Some("a'b".to_owned()),
                seconds: 7_300.0,
                ..Holder::default()
            }],
            hidden: 2,
        }),
        ..well()
    };
    let report = judge(&facts, RETENTION);
    assert_eq!(report.findings[0].code, "long-transaction");
    assert!(
        report.findings[0].what.contains("for 2 h"),
        "{}",
        report.findings[0].what
    );
    assert!(report.findings[0].cure.contains("rollback prepared 'a''b'"));
    assert_eq!(report.not_checked[0].check, "transactions");
    assert!(!report.ok.contains(&"transactions"));
}

#[test]
fn an_old_event_is_judged_by_who_prunes() {
    let log = |oldest: f64, warden: Option<&str>, noted| {
        codes(&Facts {
            log: Look::Seen(Log {
                oldest: Some(oldest),
                warden: warden.map(str::to_owned),
                noted,
                autovacuum: true,
                ..Log::default()
            }),
            ..well()
        })
    };
    assert_eq!(log(4_500.0, None, None), [""; 0]);
    assert_eq!(log(4_501.0, None, None), ["log-grows"]);
    assert_eq!(log(4_501.0, None, Some(901.0)), ["log-grows"]);
    // Cron prunes, or a warden does.
    assert_eq!(log(4_501.0, None, Some(600.0)), ["log-pinned"]);
    assert_eq!(log(4_501.0, Some("a"), None), ["log-pinned"]);
}

#[test]
fn a_watch_that_fires_on_a_replica_is_well() {
    let subscribed = |fires| Facts {
        catalog: Look::Seen(Catalog {
            subscribed: vec![Subscribed {
                fires,
                ..Subscribed::default()
            }],
            ..Catalog::default()
        }),
        ..well()
    };
    assert_eq!(codes(&subscribed(true)), [""; 0]);
    assert_eq!(codes(&subscribed(false)), ["subscription-skips-watch"]);
}
