//! Snapshots and the two arms of a fetch mean here what they mean on the server.

use pgevict::lab::Cluster;
use pgevict::snapshot::{Cursor, Snapshot, Xid};

/// Random values, the same in every run.
fn random() -> fastrand::Rng {
    fastrand::Rng::with_seed(0x9e37)
}

/// A snapshot whose ids begin at `from`; up to 70 of them in progress, since the server searches otherwise above 30.
fn snapshot(random: &mut fastrand::Rng, from: u64) -> Snapshot {
    let xmin = from + random.u64(0..20);
    let mut xid = xmin;
    let mut open = Vec::new();
    for _ in 0..random.usize(0..70) {
        open.push(Xid(xid));
        xid += random.u64(1..4);
    }
    Snapshot::new(Xid(xmin), Xid(xid + random.u64(0..5)), open).unwrap()
}

fn around(random: &mut fastrand::Rng, one: &Snapshot) -> Xid {
    Xid(random.u64(one.xmin().0.saturating_sub(5).max(1)..=one.xmax().0.saturating_add(5)))
}

#[tokio::test]
async fn sees_is_pg_visible_in_snapshot() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.connect().await.unwrap();
    let visible = "select array_agg(pg_visible_in_snapshot(x, $2) order by n) \
                   from unnest($1::xid8[]) with ordinality t (x, n)";
    let mut random = random();
    for round in 0..500 {
        let size = random.u32(1..63);
        let from = if round % 5 == 0 {
            u64::MAX - 10_000
        } else {
            random.u64(1..1 << size)
        };
        let one = snapshot(&mut random, from);
        let xids: Vec<Xid> = (0..100).map(|_| around(&mut random, &one)).collect();
        let server: Vec<bool> = client
            .query_one(visible, &[&&xids[..], &one])
            .await
            .unwrap()
            .get(0);
        let here: Vec<bool> = xids.iter().map(|xid| one.sees(*xid)).collect();
        assert_eq!(here, server, "{one}, {xids:?}");
    }
}

#[tokio::test]
async fn text_and_wire_forms_are_the_servers() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.connect().await.unwrap();
    let mut random = random();
    for _ in 0..200 {
        let from = random.u64(1..1 << 62);
        let one = snapshot(&mut random, from);
        let row = client
            .query_one("select $1::pg_snapshot, $1::pg_snapshot::text", &[&one])
            .await
            .unwrap();
        assert_eq!(row.get::<_, Snapshot>(0), one);
        assert_eq!(row.get::<_, String>(1), one.to_string());
    }
    for xid in [Xid(1), Xid(u64::MAX), Xid(1 << 32)] {
        let row = client
            .query_one("select $1::xid8, $1::xid8::text", &[&xid])
            .await
            .unwrap();
        assert_eq!(
            (row.get::<_, Xid>(0), row.get::<_, String>(1)),
            (xid, xid.to_string())
        );
    }
}

#[tokio::test]
async fn a_live_snapshot_lists_who_is_open() {
    let cluster = Cluster::start().await.unwrap();
    let (reader, mut writer) = (cluster.connect().await.unwrap(), cluster.connect().await.unwrap());
    let open = writer.transaction().await.unwrap();
    let xid: Xid = open
        .query_one("select pg_current_xact_id()", &[])
        .await
        .unwrap()
        .get(0);
    let later: Xid = reader
        .query_one("select pg_current_xact_id()", &[])
        .await
        .unwrap()
        .get(0);
    let before: Snapshot = reader
        .query_one("select pg_current_snapshot()", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(before.in_progress(), [xid]);
    assert!(!before.sees(xid) && before.sees(later));
    open.commit().await.unwrap();
    let after: Snapshot = reader
        .query_one("select pg_current_snapshot()", &[])
        .await
        .unwrap()
        .get(0);
    assert!(after.sees(xid) && after.covers(&before) && !before.covers(&after));
}

/// The two arms as SQL, bounded by a target, over a log of made-up ids.
const ARMS: &str = "
    select xid, id from (
      (select xid, id from log
       where (xid, id) > ($1, $7) and xid < pg_snapshot_xmax($3) and pg_visible_in_snapshot(xid, $3)
       order by xid, id limit $6)
      union all
      (select xid, id from log
       where xid = any($2::xid8[]) and pg_visible_in_snapshot(xid, $3) and (xid, id) > ($4, $5)
       order by xid, id limit $6)
    ) arms
    order by xid, id limit $6";

#[tokio::test]
async fn the_two_arms_in_sql_return_what_the_cursor_wants() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.connect().await.unwrap();
    client
        .batch_execute("create table log (xid xid8, id bigint, primary key (xid, id))")
        .await
        .unwrap();
    let mut log: Vec<(Xid, i64)> = (0..400)
        .map(|id| (Xid(1000 + id * 7919 % 200), id as i64))
        .collect();
    log.sort();
    for (xid, id) in &log {
        client
            .execute("insert into log values ($1, $2)", &[xid, id])
            .await
            .unwrap();
    }
    let mut random = random();
    let mut compared = 0;
    while compared < 300 {
        let (base, target) = (snapshot(&mut random, 990), snapshot(&mut random, 1010));
        let after = log[random.usize(..log.len())];
        let Ok(cursor) = Cursor::between_pages(base, target.clone(), after) else {
            continue;
        };
        compared += 1;
        let limit = random.i64(1..50);
        let bounds = cursor.bounds();
        let rows = client
            .query(
                ARMS,
                &[
                    &bounds.from.0,
                    &bounds.base_in_progress,
                    &bounds.target,
                    &bounds.after.0,
                    &bounds.after.1,
                    &limit,
                    &bounds.from.1,
                ],
            )
            .await
            .unwrap();
        let server: Vec<(Xid, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let wanted = log
            .iter()
            .copied()
            .filter(|(xid, id)| cursor.wants(*xid, *id, &target));
        assert_eq!(
            server,
            wanted.take(limit as usize).collect::<Vec<_>>(),
            "{cursor:?}"
        );
    }
}
