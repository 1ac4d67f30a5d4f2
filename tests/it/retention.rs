//! The log is kept short, and nobody who lives loses an event by it.

use std::time::{Duration, Instant};

use pgevict::lab::Relay;
use pgevict::snapshot::{Snapshot, Xid};
use pgevict::{Config, Reset};

use crate::support::app::{App, PATIENCE, keys_of};
use crate::support::{World, refusal, text};

/// Notes a horizon and makes all of them two hours old.
const OLD_HORIZON: &str = "select pgevict.note_horizon('24h'); \
     update pgevict.horizon set taken_at = taken_at - interval '2 hours'";

impl World {
    /// As `pgevict prune` and the warden do it; how many events went.
    async fn prune(&self) -> i64 {
        let mut deleted = 0;
        loop {
            let step = "select deleted, more from pgevict.prune('1h', 100)";
            let row = self.admin.query_one(step, &[]).await.unwrap();
            deleted += row.get::<_, i64>(0);
            if !row.get::<_, bool>(1) {
                return deleted;
            }
        }
    }

    async fn emit(&self, key: &str) {
        self.run(&format!("select pgevict.emit(array['{key}'])")).await;
    }

    /// Keys in the log.
    async fn log(&self) -> String {
        self.text("select coalesce(string_agg(keys[1], ',' order by id), '') from pgevict.event")
            .await
    }

    async fn pruned(&self) -> Snapshot {
        let pruned = self.text("select pruned from pgevict.meta").await;
        pruned.parse().unwrap()
    }

    /// Waits until every instance has told the log that it has read all that is there now.
    async fn until_pinned_at_head(&self) {
        let head: Snapshot = self.text("select pg_current_snapshot()").await.parse().unwrap();
        let cursors = "select string_agg(cursor::text, ' ') from pgevict.heartbeat";
        tokio::time::timeout(PATIENCE, async {
            loop {
                let all = self.text(cursors).await;
                if all
                    .split(' ')
                    .all(|cursor| cursor.parse::<Snapshot>().unwrap().covers(&head))
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .unwrap();
    }
}

/// Never the warden, and tells the log soon what it has read.
fn no_candidate(config: &mut Config) {
    config.warden.enabled = false;
    config.feed.heartbeat = Duration::from_millis(100);
}

/// Stands for election at once and does its chores all the time.
fn eager(config: &mut Config) {
    config.feed.heartbeat = Duration::from_millis(100);
    config.warden.claim = Duration::from_millis(200);
    config.warden.chores = Duration::from_millis(200);
    config.warden.retention = Duration::from_secs(1);
}

#[tokio::test]
async fn an_event_goes_after_its_retention_and_not_before() {
    let world = World::start().await;
    world.emit("old").await;
    world.run("select pgevict.note_horizon('24h')").await;
    world.emit("young").await;
    let before = world.pruned().await;
    assert_eq!(world.prune().await, 0);
    assert_eq!(world.pruned().await, before);
    world
        .run("update pgevict.horizon set taken_at = taken_at - interval '61 minutes'")
        .await;
    assert_eq!(world.prune().await, 1);
    assert_eq!(world.log().await, "young");
    let after = world.pruned().await;
    assert!(after.covers(&before) && !before.covers(&after));
    // A step that finds nothing writes nothing.
    world.run("begin").await;
    assert_eq!(world.prune().await, 0);
    assert_eq!(
        world.text("select pg_current_xact_id_if_assigned()").await,
        "NULL"
    );
    world.run("commit").await;
    // More than one batch, and nothing is left behind.
    for _ in 0..7 {
        world
            .run("insert into pgevict.event (keys) select array['n'] from generate_series(1, 50)")
            .await;
    }
    world.run(OLD_HORIZON).await;
    assert_eq!(world.prune().await, 351);
    assert_eq!(world.log().await, "");
}

/// Both settings may be the same.
#[tokio::test]
async fn a_horizon_that_is_old_enough_is_kept_until_a_younger_one_is() {
    let world = World::start().await;
    let note = "select pgevict.note_horizon('1h')";
    world.emit("old").await;
    for _ in 0..3 {
        world.run(note).await;
    }
    world
        .run("update pgevict.horizon set taken_at = taken_at - interval '61 minutes'")
        .await;
    world.run(note).await;
    assert_eq!(world.text("select count(*) from pgevict.horizon").await, "2");
    assert_eq!(world.prune().await, 1);
    // Nor does one from a future stay, when the clock was set back.
    world
        .run("update pgevict.horizon set taken_at = taken_at + interval '3 hours'")
        .await;
    world.run(note).await;
    assert_eq!(world.text("select count(*) from pgevict.horizon").await, "1");
}

#[tokio::test]
async fn who_is_cut_off_but_alive_pins_the_log_and_who_is_dead_does_not() {
    let world = World::with_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let mut app = App::start_behind(&world, &relay, "a", no_candidate).await;
    world.emit("seen").await;
    assert_eq!(app.keys().await, ["seen"]);
    world.until_pinned_at_head().await;

    relay.cut();
    relay.refuse();
    world.emit("missed").await;
    world.run(OLD_HORIZON).await;
    world.prune().await;
    assert_eq!(
        world.log().await,
        "seen,missed",
        "no horizon that the cursor covers is old enough"
    );
    relay.pass();
    app.until_proved(PATIENCE).await;
    let deliveries = app.deliveries().await;
    assert_eq!(App::resets(&deliveries), []);
    assert_eq!(
        deliveries.iter().flat_map(keys_of).collect::<Vec<_>>(),
        ["missed"]
    );
    world.until_pinned_at_head().await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));

    relay.cut();
    relay.refuse();
    world.set("k", "v2").await;
    world.run(OLD_HORIZON).await;
    world
        .run("update pgevict.heartbeat set beat_at = beat_at - interval '61 seconds'")
        .await;
    assert_eq!(world.prune().await, 3);
    relay.pass();
    app.until_proved(PATIENCE).await;
    let deliveries = app.deliveries().await;
    assert_eq!(App::resets(&deliveries), [Reset::Pruned]);
    assert_eq!(app.held("k"), None);
    assert_eq!(app.get("k").await.as_deref(), Some("v2"));
    world.set("k", "v3").await;
    assert_eq!(app.keys().await, ["k"]);
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn who_was_away_while_nothing_happened_gets_no_reset() {
    let world = World::with_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let mut app = App::start_behind(&world, &relay, "a", no_candidate).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    relay.cut();
    relay.refuse();
    world.run("select pg_current_xact_id()").await;
    world.run(OLD_HORIZON).await;
    world
        .run("update pgevict.heartbeat set beat_at = beat_at - interval '61 seconds'")
        .await;
    assert_eq!(world.prune().await, 0);
    relay.pass();
    app.until_proved(PATIENCE).await;
    assert!(app.deliveries().await.is_empty());
    assert_eq!(app.held("k").as_deref(), Some("v1"));
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn the_late_event_of_an_old_transaction_is_not_pruned_before_it_is_delivered() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", no_candidate).await;
    let slow = world.cluster.connect().await.unwrap();
    slow.batch_execute("begin; select pgevict.emit(array['slow'])")
        .await
        .unwrap();
    for key in ["a", "b"] {
        world.emit(key).await;
    }
    assert_eq!(app.keys().await, ["a", "b"]);
    world.run(OLD_HORIZON).await;
    world.until_pinned_at_head().await;
    assert_eq!(world.prune().await, 2, "an open transaction holds nobody up");
    slow.batch_execute("commit").await.unwrap();
    world.prune().await;
    assert_eq!(world.log().await, "slow");
    let deliveries = app.deliveries().await;
    assert_eq!(App::resets(&deliveries), []);
    assert_eq!(deliveries.iter().flat_map(keys_of).collect::<Vec<_>>(), ["slow"]);
    // Its id lies below all that has been swept; its turn comes all the same.
    world.run(OLD_HORIZON).await;
    world.until_pinned_at_head().await;
    assert_eq!(world.prune().await, 1);
    assert!(app.deliveries().await.is_empty());
    app.pgevict.shutdown().await;
}

/// The target of a sweep is fixed: an event behind the place is left for the next one, not for ever.
#[tokio::test]
async fn a_deletion_by_hand_amid_a_sweep_leaves_nothing_behind() {
    let world = World::start().await;
    world.prune().await;
    let slow = world.cluster.connect().await.unwrap();
    slow.batch_execute("begin; select pgevict.emit(array['slow'])")
        .await
        .unwrap();
    for key in ["a", "b", "c", "d"] {
        world.emit(key).await;
    }
    world.run(OLD_HORIZON).await;
    for expected in ["0 true", "2 true"] {
        let step = "select deleted || ' ' || more from pgevict.prune('1h', 2)";
        assert_eq!(world.text(step).await, expected);
    }
    slow.batch_execute("commit").await.unwrap();
    let head: Snapshot = world.text("select pg_current_snapshot()").await.parse().unwrap();
    world.emit("e").await;
    world
        .run("delete from pgevict.event where keys = array['e']")
        .await;
    assert!(
        world.pruned().await.covers(&head),
        "all up to now is declared as gone"
    );
    assert_eq!(world.prune().await, 3);
    assert_eq!(world.log().await, "");
}

#[tokio::test]
async fn pruned_never_shrinks() {
    let world = World::start().await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut open: Vec<tokio_postgres::Client> = Vec::new();
    let mut before = world.pruned().await;
    for round in 0..120 {
        match random.u32(0..6) {
            0 => {
                let client = world.cluster.connect().await.unwrap();
                client
                    .batch_execute("begin; select pgevict.emit(array['open'])")
                    .await
                    .unwrap();
                open.push(client);
            }
            1 if !open.is_empty() => {
                let client = open.swap_remove(random.usize(..open.len()));
                client.batch_execute("commit").await.unwrap();
            }
            2 => world.run("select pgevict.note_horizon('24h')").await,
            3 => {
                // Any of the stored ones may be the newest that is old enough, so also one from before pruned.
                let old = "update pgevict.horizon set taken_at = clock_timestamp() - interval '2 hours' \
                           - taken_at_age * interval '1 second' from (select random() * 100 as taken_at_age) r \
                           where taken_at = (select taken_at from pgevict.horizon order by random() limit 1)";
                world.run(old).await;
            }
            4 if round % 3 == 0 => {
                world
                    .run("delete from pgevict.event where id = (select min(id) from pgevict.event)")
                    .await;
            }
            _ => world.emit("x").await,
        }
        world.prune().await;
        let after = world.pruned().await;
        assert!(after.covers(&before), "round {round}: {before} -> {after}");
        before = after;
    }
    // Rows that pruned sees are gone, all others are there.
    let left = "select count(*) from pgevict.event, pgevict.meta where pg_visible_in_snapshot(xid, pruned)";
    assert_eq!(world.text(left).await, "0");
}

#[tokio::test]
async fn pruning_does_not_block_an_emitter() {
    let world = World::start().await;
    for _ in 0..30 {
        world
            .run("insert into pgevict.event (keys) select array['n'] from generate_series(1, 1000)")
            .await;
    }
    world.run(OLD_HORIZON).await;
    // An old snapshot keeps the deleted rows in the index: who walked them each time would get slower and slower.
    let old = world.cluster.connect().await.unwrap();
    old.batch_execute("begin isolation level repeatable read; select count(*) from pgevict.event")
        .await
        .unwrap();
    let emitter = world.cluster.connect().await.unwrap();
    let (done_here, done) = tokio::sync::oneshot::channel::<()>();
    let emitting = tokio::spawn(async move {
        emitter.batch_execute("set lock_timeout = '50ms'").await.unwrap();
        let (mut worst, mut count) = (Duration::ZERO, 0);
        while done.is_empty() {
            let start = Instant::now();
            emitter
                .batch_execute("select pgevict.emit(array['live'])")
                .await
                .unwrap();
            worst = worst.max(start.elapsed());
            count += 1;
        }
        (worst, count)
    });
    // Two at once, as the warden and a command from cron.
    let pruners = [
        world.cluster.connect().await.unwrap(),
        world.cluster.connect().await.unwrap(),
    ];
    let pruning = pruners.iter().map(async |client| {
        let (mut deleted, mut steps) = (0, Vec::new());
        loop {
            let start = Instant::now();
            let step = "select deleted, more from pgevict.prune('1h', 1000)";
            let row = client.query_one(step, &[]).await.unwrap();
            steps.push(start.elapsed());
            deleted += row.get::<_, i64>(0);
            if !row.get::<_, bool>(1) {
                return (deleted, steps);
            }
        }
    });
    let pruned = futures::future::join_all(pruning).await;
    done_here.send(()).unwrap();
    let (worst, count) = emitting.await.unwrap();
    println!("{count} emits, worst {worst:?}; {pruned:?}");
    assert_eq!(pruned.iter().map(|(deleted, _)| deleted).sum::<i64>(), 30_000);
    assert_eq!(
        world.text("select count(*) from pgevict.event").await,
        count.to_string()
    );
    drop(old);
}

#[tokio::test]
async fn covers_agrees_with_the_library() {
    let world = World::start().await;
    let mut random = fastrand::Rng::with_seed(11);
    let snapshot = |random: &mut fastrand::Rng, from: u64, dense: bool| {
        let xmin = from + random.u64(0..12);
        let (mut xid, mut open) = (xmin, Vec::new());
        for _ in 0..random.usize(0..12) {
            open.push(Xid(xid));
            xid += if dense { 1 } else { random.u64(1..4) };
        }
        Snapshot::new(Xid(xmin), Xid(xid + random.u64(0..3)), open).unwrap()
    };
    let mut pairs = Vec::new();
    for round in 0..6_000 {
        let from = if round % 7 == 0 { u64::MAX - 1_000 } else { 1_000 };
        let above = from + random.u64(0..12);
        let a = snapshot(&mut random, above, round % 2 == 0);
        let b = snapshot(&mut random, from, round % 3 != 0);
        pairs.push((a, b));
    }
    let texts = |pick: fn(&(Snapshot, Snapshot)) -> &Snapshot| {
        pairs
            .iter()
            .map(|pair| pick(pair).to_string())
            .collect::<Vec<_>>()
    };
    let asked = "select array_agg(pgevict.covers(a::pg_snapshot, b::pg_snapshot) order by n) \
                 from unnest($1::text[], $2::text[]) with ordinality t (a, b, n)";
    let (left, right) = (texts(|pair| &pair.0), texts(|pair| &pair.1));
    let answers: Vec<bool> = world
        .admin
        .query_one(asked, &[&left, &right])
        .await
        .unwrap()
        .get(0);
    for ((a, b), answer) in pairs.iter().zip(&answers) {
        assert_eq!(*answer, a.covers(b), "{a} covers {b}");
    }
    let yes = answers.iter().filter(|answer| **answer).count();
    assert!((1_000..5_000).contains(&yes), "{yes} of {}", answers.len());
}

#[tokio::test]
async fn the_warden_prunes_by_itself_and_a_clean_stop_gives_the_office_back() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", eager).await;
    app.until(|status| status.warden, PATIENCE).await;
    let session = "select count(*) from pg_stat_activity where application_name = 'pgevict/warden/a'";
    assert_eq!(world.text(session).await, "1");
    for n in 0..5 {
        world.emit(&format!("n{n}")).await;
    }
    app.until(|status| status.pruned == 5, PATIENCE).await;
    assert_eq!(world.log().await, "");
    let deliveries = app.deliveries().await;
    assert_eq!((App::resets(&deliveries), deliveries.len()), (vec![], 5));
    // A heartbeat of a process that is long dead goes as well.
    world
        .run("insert into pgevict.heartbeat values ('dead', gen_random_uuid(), 1, pg_current_snapshot()); \
              update pgevict.heartbeat set beat_at = now() - interval '121 seconds' where instance_id = 'dead'")
        .await;
    tokio::time::timeout(PATIENCE, async {
        while world.text("select count(*) from pgevict.heartbeat").await != "1" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    app.pgevict.shutdown().await;
    assert_eq!(
        world.text("select process is null from pgevict.warden").await,
        "t"
    );
    assert!(!app.pgevict.status().warden);
}

#[tokio::test]
async fn of_two_instances_one_is_the_warden_and_the_other_takes_over_when_it_is_cut_off() {
    let world = World::with_kv().await;
    let mut apps = Vec::new();
    for name in ["a", "b"] {
        let relay = Relay::before(&world.cluster).await.unwrap();
        let app = App::start_behind(&world, &relay, name, eager).await;
        apps.push((app, relay));
    }
    let wardens = |apps: &[(App, Relay)]| {
        let warden = |(app, _): &(App, Relay)| app.pgevict.status().warden;
        apps.iter().map(warden).collect::<Vec<_>>()
    };
    tokio::time::timeout(PATIENCE, async {
        while !wardens(&apps).contains(&true) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(wardens(&apps).iter().filter(|warden| **warden).count(), 1);
    }
    assert_eq!(world.text("select fence from pgevict.warden").await, "1");

    let first = wardens(&apps).iter().position(|warden| *warden).unwrap();
    let (other, _) = &apps[1 - first];
    apps[first].1.cut();
    apps[first].1.refuse();
    let took = other.until(|status| status.warden, PATIENCE).await;
    println!("taken over after {took:?}");
    // The lease is 600 ms, a claim follows within 240 ms; the rest is a loaded machine.
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(world.text("select fence from pgevict.warden").await, "2");
    apps[first].0.until(|status| !status.warden, PATIENCE).await;
    apps[first].1.pass();
    apps[first].0.until_proved(PATIENCE).await;
    assert!(other.pgevict.status().warden, "who was elected stays");
    for (app, _) in &apps {
        app.pgevict.shutdown().await;
    }
}

#[tokio::test]
async fn without_a_proved_listen_path_nobody_becomes_the_warden() {
    let world = World::with_kv().await;
    let elsewhere = world.cluster.create_database("elsewhere").await.unwrap();
    // The probe goes to another database than the one listened to: never heard.
    let app = App::start_at(&world, &elsewhere, "a", |config| {
        eager(config);
        config.listen_url = Some(world.cluster.url().into());
        config.wake.probe_timeout = Duration::from_millis(100);
    })
    .await;
    app.until_lost(PATIENCE).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!app.pgevict.status().warden);
    assert_eq!(world.text("select fence from pgevict.warden").await, "0");
    app.pgevict.shutdown().await;
}

/// As a binary of now with the functions of before.
#[tokio::test]
async fn where_nobody_can_be_elected_the_feed_goes_on() {
    let world = World::with_kv().await;
    world
        .run("drop function pgevict.claim_warden(text, uuid, interval)")
        .await;
    let mut app = App::start(&world, "a", eager).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    world.set("k", "v2").await;
    app.event_for("k", PATIENCE).await;
    let status = app.pgevict.status();
    assert!(status.degraded.is_none() && !status.warden, "{status:?}");
    assert!(
        status.reconnects.is_empty() && status.resets.is_empty(),
        "{status:?}"
    );
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_claim_in_vain_writes_nothing_and_a_lease_ends_whichever_way_the_clock_goes() {
    let world = World::start().await;
    world
        .run("create role i; grant pgevict_instance to i; create role r; grant pgevict_reader to r")
        .await;
    let instance = world.session_of("i").await;
    let claim = |name: &str| {
        format!("select pgevict.claim_warden('{name}', '00000000-0000-0000-0000-00000000000{name}', '30s')")
    };
    let first = [claim("1"), claim("1")];
    for claim in &first {
        assert_eq!(text(&instance, claim).await, "1", "the owner keeps its number");
    }
    instance.batch_execute("begin").await.unwrap();
    assert_eq!(text(&instance, &claim("2")).await, "NULL");
    assert_eq!(
        text(&instance, "select pg_current_xact_id_if_assigned()").await,
        "NULL"
    );
    instance.batch_execute("commit").await.unwrap();
    // A claim under way elsewhere is not waited for.
    let other = world.cluster.connect().await.unwrap();
    other
        .batch_execute(&format!("begin; {}", claim("1")))
        .await
        .unwrap();
    instance.batch_execute("set lock_timeout = '50ms'").await.unwrap();
    assert_eq!(text(&instance, &claim("1")).await, "NULL");
    other.batch_execute("rollback").await.unwrap();

    for (fence, owner, moved) in [
        ("2", "2", "- interval '31 seconds'"),
        ("3", "1", "+ interval '1 hour'"),
    ] {
        world
            .run(&format!("update pgevict.warden set renewed_at = now() {moved}"))
            .await;
        assert_eq!(text(&instance, &claim(owner)).await, fence, "{moved}");
    }
    instance
        .batch_execute("select pgevict.note_horizon('24h'); select * from pgevict.prune('1h', 10)")
        .await
        .unwrap();
    // leave() gives the office back, and only one's own.
    let leave =
        |name: &str| format!("select pgevict.leave('{name}', '00000000-0000-0000-0000-00000000000{name}')");
    instance.batch_execute(&leave("2")).await.unwrap();
    assert_eq!(text(&instance, &claim("2")).await, "NULL");
    instance.batch_execute(&leave("1")).await.unwrap();
    assert_eq!(text(&instance, &claim("2")).await, "4");

    let reader = world.session_of("r").await;
    for denied in [claim("3"), "select * from pgevict.prune('1h', 10)".to_owned()] {
        assert_eq!(refusal(&reader, &denied).await.0, "42501");
    }
    world.run("begin isolation level repeatable read").await;
    assert_eq!(
        refusal(&world.admin, "select * from pgevict.prune('1h', 10)")
            .await
            .0,
        "25000"
    );
    world.run("rollback").await;
}

#[tokio::test]
async fn another_identity_voids_horizons_and_sweep() {
    let world = World::start().await;
    world.prune().await;
    world
        .run("select pgevict.claim_warden('a', gen_random_uuid(), '1h')")
        .await;
    for key in ["a", "b"] {
        world.emit(key).await;
    }
    world.run(OLD_HORIZON).await;
    world
        .run("select pgevict.prune('1h', 1); select pgevict.prune('1h', 1)")
        .await;
    let state = "select (select count(*) from pgevict.horizon) || ' ' || (target is null) || ' ' || (process is null) \
                 from pgevict.sweep, pgevict.warden";
    assert_eq!(world.text(state).await, "1 false false");
    world
        .run(
            "update pgevict.epoch set system_identifier = 1; update pgevict.meta set system_identifier = 1; \
              select pgevict.establish()",
        )
        .await;
    assert_eq!(world.text(state).await, "0 true true");
    assert_eq!(world.log().await, "");
    world.emit("c").await;
    world.run(OLD_HORIZON).await;
    assert_eq!(world.prune().await, 1);
}

#[tokio::test]
async fn rows_of_another_server_do_not_enter() {
    let world = World::start().await;
    world
        .run("set session_replication_role = replica; \
              insert into pgevict.horizon values (now() - interval '2 hours', '5:5:'); \
              insert into pgevict.warden (fence) values (9); insert into pgevict.sweep (base) values ('5:5:'); \
              reset session_replication_role")
        .await;
    assert_eq!(
        world
            .text(
                "select (select count(*) from pgevict.horizon) || ' ' || fence || ' ' || (base is null) \
                   from pgevict.warden, pgevict.sweep"
            )
            .await,
        "0 0 true"
    );
}

/// Short and long transactions, some rolled back, against a warden that prunes all the time.
#[tokio::test]
async fn while_the_log_is_pruned_each_committed_event_arrives_once_everywhere() {
    let world = World::with_kv().await;
    let mut apps = Vec::new();
    for name in ["a", "b", "c"] {
        apps.push(App::start(&world, name, eager).await);
    }
    let mut writers = Vec::new();
    for writer in 0..5 {
        let client = world.cluster.connect().await.unwrap();
        writers.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(writer);
            let mut committed = Vec::new();
            let until = Instant::now() + Duration::from_secs(6);
            for n in 0.. {
                if Instant::now() > until {
                    break;
                }
                let key = format!("w{writer}-{n}");
                client
                    .batch_execute(&format!("begin; select pgevict.emit(array['{key}'])"))
                    .await
                    .unwrap();
                let longest = if writer == 0 { 2_500 } else { 20 };
                tokio::time::sleep(Duration::from_millis(random.u64(0..longest))).await;
                if random.u32(0..5) == 0 {
                    client.batch_execute("rollback").await.unwrap();
                } else {
                    client.batch_execute("commit").await.unwrap();
                    committed.push(key);
                }
            }
            committed
        }));
    }
    let mut committed = Vec::new();
    for writer in writers {
        committed.extend(writer.await.unwrap());
    }
    committed.sort();
    for app in &mut apps {
        let deliveries = app.deliveries().await;
        assert_eq!(App::resets(&deliveries), []);
        let mut keys: Vec<_> = deliveries.iter().flat_map(keys_of).collect();
        keys.sort();
        assert_eq!(keys.len(), committed.len());
        assert!(keys == committed);
    }
    let pruned = |apps: &[App]| apps.iter().map(|app| app.pgevict.status().pruned).sum::<u64>();
    tokio::time::timeout(PATIENCE, async {
        while pruned(&apps) < committed.len() as u64 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    println!("{} events, all pruned", committed.len());
    assert_eq!(world.log().await, "");
    for app in &apps {
        app.pgevict.shutdown().await;
    }
}
