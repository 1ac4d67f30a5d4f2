//! What the fetch proves, and its plan on a log of 400,000 events: two index scans with conditions on xid, whatever
//! the statistics say.

use std::sync::Arc;

use serde_json::Value;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{FETCH, Fetch, Route};
use crate::config::Config;
use crate::lab::Cluster;
use crate::snapshot::{Snapshot, Xid};
use crate::store::epoch;
use crate::store::migrate::migrate;
use crate::store::session::{Connector, Purpose, Session};

/// Blocks that a fetch at the head may touch: three rows by key, and the descents of two index scans.
const HEAD_BLOCKS: u64 = 60;

/// What the planner knows about the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statistics {
    /// The log as it is.
    Fresh,
    /// The log when it was empty.
    Stale,
    /// Nothing.
    Missing,
}

/// A server with 400,000 events of 4,000 transactions.
struct Log {
    cluster: Cluster,
    admin: Client,
}

impl Log {
    async fn fill(statistics: Statistics) -> Self {
        let cluster = Cluster::start().await.unwrap();
        let mut admin = cluster.connect().await.unwrap();
        migrate(&mut admin).await.unwrap();
        let run = async |sql| admin.batch_execute(sql).await.unwrap();
        run("alter table pgevict.event set (autovacuum_enabled = off)").await;
        if statistics == Statistics::Stale {
            run("analyze pgevict.event").await;
        }
        run("do $$ begin
               for n in 1 .. 4000 loop
                 insert into pgevict.event (keys) select array['product:' || i] from generate_series(1, 100) i;
                 commit;
               end loop;
             end $$")
        .await;
        if statistics == Statistics::Fresh {
            run("analyze pgevict.event").await;
        }
        Self { cluster, admin }
    }

    /// A session with the fetch prepared.
    async fn session(&self) -> Session {
        let session = open(&self.cluster).await;
        let prepare = format!(
            "prepare events (xid8, int8, xid8[], xid8, xid8[], xid8, int8, int8, text, uuid) as {FETCH}"
        );
        session.client().batch_execute(&prepare).await.unwrap();
        session
    }

    async fn head(&self) -> Snapshot {
        let row = self.admin.query_one("select pg_current_snapshot()", &[]).await;
        row.unwrap().get(0)
    }
}

/// A session as the feed opens it.
async fn open(cluster: &Cluster) -> Session {
    let config = Config::from_url(cluster.url()).unwrap();
    let connector = Connector::new(config.address().unwrap(), config.session, Arc::from("test"));
    connector.open(Purpose::Fetch).await.unwrap()
}

/// Runs the fetch for a cursor (first id not seen, ids not seen before it) and returns its plan.
async fn fetch(session: &Session, xmax: Xid, in_progress: &[Xid]) -> Value {
    let in_progress: Vec<_> = in_progress.iter().map(Xid::to_string).collect();
    let explain = format!(
        "explain (analyze, buffers, format json) execute events
           ('{xmax}', {}, '{{{}}}', null, '{{}}', '0', 0, 500, 'test', '{}')",
        i64::MIN,
        in_progress.join(","),
        uuid::Uuid::nil(),
    );
    let answer = session.client().simple_query(&explain).await.unwrap();
    let plan = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan: Value = serde_json::from_str(plan.unwrap()).unwrap();
    plan[0]["Plan"].clone()
}

/// A plan's nodes, itself included.
fn nodes(plan: &Value) -> Vec<&Value> {
    let below = plan["Plans"].as_array().into_iter().flatten();
    std::iter::once(plan).chain(below.flat_map(nodes)).collect()
}

fn text<'a>(node: &'a Value, field: &str) -> &'a str {
    node[field].as_str().unwrap_or_default()
}

async fn both_arms_read_by_index(statistics: Statistics) {
    let log = Log::fill(statistics).await;
    let session = log.session().await;
    let head = log.head().await.xmax();
    let open = [Xid(head.0 - 900), Xid(head.0 - 40), Xid(head.0 - 7)];

    // A little behind, with late commits to fetch.
    let plan = fetch(&session, Xid(head.0 - 3), &open).await;
    assert_eq!(plan["Actual Rows"].as_f64(), Some(501.0), "{plan:#}");
    let nodes = nodes(&plan);
    for node in &nodes {
        let kind = text(node, "Node Type");
        assert!(
            !kind.contains("Seq Scan") && !kind.contains("Bitmap"),
            "{statistics:?} {plan:#}"
        );
    }
    let arms: Vec<_> = nodes
        .iter()
        .filter(|node| text(node, "Relation Name") == "event")
        .collect();
    let conditions: Vec<_> = arms.iter().map(|arm| text(arm, "Index Cond")).collect();
    let [new, late] = conditions[..] else {
        panic!("not two arms: {plan:#}");
    };
    for arm in arms {
        assert_eq!(
            (text(arm, "Node Type"), text(arm, "Index Name")),
            ("Index Scan", "event_pkey"),
            "{plan:#}"
        );
    }
    assert!(
        new.contains("ROW(xid, id) > ROW($1, $2)") && new.contains("xid < "),
        "{statistics:?} {plan:#}"
    );
    assert!(
        late.contains("xid = ANY ($3)") && late.contains("xid < "),
        "{statistics:?} {plan:#}"
    );

    // At the head; what was open then is still open, or was no event's.
    let idle = [Xid(5), Xid(6), Xid(7)];
    let plan = fetch(&session, head, &idle).await;
    assert_eq!(plan["Actual Rows"].as_f64(), Some(1.0), "{plan:#}");
    let blocks = ["Shared Hit Blocks", "Shared Read Blocks"].map(|field| plan[field].as_u64().unwrap());
    assert!(
        blocks.iter().sum::<u64>() < HEAD_BLOCKS,
        "{statistics:?} {blocks:?} {plan:#}"
    );
}

#[tokio::test]
async fn fetch_plan_with_fresh_statistics() {
    both_arms_read_by_index(Statistics::Fresh).await;
}

#[tokio::test]
async fn fetch_plan_with_the_statistics_of_an_empty_log() {
    both_arms_read_by_index(Statistics::Stale).await;
}

#[tokio::test]
async fn fetch_plan_without_statistics() {
    both_arms_read_by_index(Statistics::Missing).await;
}

#[tokio::test]
async fn the_identity_is_proved_whether_the_server_process_has_noted_it_or_not() {
    let cluster = Cluster::start().await.unwrap();
    let mut admin = cluster.connect().await.unwrap();
    migrate(&mut admin).await.unwrap();
    let session = open(&cluster).await;
    epoch::establish(&session).await.unwrap();
    let mut fetch = Fetch::default();
    let mut proof = async || {
        let fetched = fetch.run(&session, Route::Unproved, None, 1, "test", uuid::Uuid::nil());
        fetched.await.unwrap().proof
    };
    let noted = proof().await;
    assert!(noted.same_log, "{noted:?}");
    let row = admin
        .query_one(
            "select system_identifier, (select oid from pg_database where datname = current_database()),
               'pgevict.event'::regclass::oid from pg_control_system()",
            &[],
        )
        .await
        .unwrap();
    let identity = noted.identity;
    let real = (
        identity.system_identifier,
        identity.database,
        identity.event_table,
    );
    assert_eq!(real, (row.get(0), row.get(1), row.get(2)));

    // As after a change of the process: nothing is noted, or was and is discarded.
    session.client().batch_execute("discard all").await.unwrap();
    let worked_out = proof().await;
    assert!(worked_out.same_log, "{worked_out:?}");
    assert_eq!(worked_out.identity, identity);

    // What was stored with the epoch belongs to another log.
    admin
        .batch_execute("update pgevict.epoch set event_table = 1")
        .await
        .unwrap();
    assert!(!proof().await.same_log);
}
