//! An instance in front of a server that misbehaves, and of people who change things under it.

use std::time::{Duration, Instant};

use pgevict::lab::{ClusterOptions, Relay};
use pgevict::{Cause, Delivery, Listening, Pgevict, Reset, Status};
use tokio::time::{sleep, timeout};

use crate::support::World;
use crate::support::app::{App, PATIENCE, config, set};

impl World {
    async fn sessions(&self, purpose: &str) -> usize {
        let sql = format!(
            "select count(*) from pg_stat_activity where application_name like 'pgevict/{purpose}/%'"
        );
        self.text(&sql).await.parse().unwrap()
    }

    async fn until_no_session(&self) {
        let gone = timeout(PATIENCE, async {
            while self.sessions("%").await > 0 {
                sleep(Duration::from_millis(20)).await;
            }
        });
        gone.await.unwrap();
    }

    /// An ordinary role that may do what an instance does, and its address.
    async fn instance_role(&self, address: std::net::SocketAddr) -> String {
        self.run("create role app login; grant pgevict_instance to app; grant all on kv to app")
            .await;
        format!("postgresql://app@{address}/postgres")
    }
}

/// A commit that waits for a standby holds its backend, whatever the client does: ours must not wait.
#[tokio::test]
async fn a_synchronous_standby_that_is_away_costs_no_sessions() {
    let world = World::with(ClusterOptions::new().setting("synchronous_commit", "on")).await;
    world.make_kv().await;
    let app = App::start(&world, "a", |config| {
        config.feed.heartbeat = Duration::from_millis(500);
        config.session.statement_timeout = Duration::from_millis(500);
    })
    .await;
    app.until_proved(PATIENCE).await;
    world
        .run("alter system set synchronous_standby_names = 'nobody'")
        .await;
    world.run("select pg_reload_conf()").await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.sessions("fetch").await, 1);
    assert_eq!(app.pgevict.status().degraded, None);
    world.run("alter system reset synchronous_standby_names").await;
    world.run("select pg_reload_conf()").await;
    app.pgevict.shutdown().await;
}

/// A server that answers nothing more on a session: the session is given up, and its socket with it.
#[tokio::test]
async fn a_session_that_hangs_is_given_up_with_its_socket() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", |config| {
        config.session.statement_timeout = Duration::from_millis(500)
    })
    .await;
    app.until_proved(PATIENCE).await;
    let port = world.cluster.port();
    assert_eq!(sockets_to(port), 2);
    let pids = world
        .text(
            "select string_agg(pid::text, ' ') from pg_stat_activity where application_name like 'pgevict/%'",
        )
        .await;
    let signal = |name: &str| {
        let done = std::process::Command::new("kill")
            .arg(name)
            .args(pids.split(' '))
            .status();
        assert!(done.unwrap().success());
    };
    signal("-STOP");
    app.until(|status| status.reconnects_total() >= 1, PATIENCE).await;
    app.until_proved(PATIENCE).await;
    set(&world.admin, "k", "v2").await;
    app.event_for("k", PATIENCE).await;
    let two = timeout(PATIENCE, async {
        while sockets_to(port) != 2 {
            sleep(Duration::from_millis(50)).await;
        }
    });
    let two = two.await;
    signal("-CONT");
    assert!(two.is_ok(), "{} sockets", sockets_to(port));
    app.pgevict.shutdown().await;
}

/// Established connections to this port of 127.0.0.1, the client's ends.
fn sockets_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let ours = format!("0100007F:{port:04X}");
    table
        .lines()
        .filter(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields[2] == ours && fields[3] == "01"
        })
        .count()
}

/// Whoever is told to start anew reads the database then: what is committed after that must reach him.
#[tokio::test]
async fn what_is_committed_after_a_reset_was_told_is_delivered() {
    let world = World::with_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let mut app = App::start_behind(&world, &relay, "a", |_| ()).await;
    app.until_proved(PATIENCE).await;
    world.until_heartbeats(1).await;
    relay.delay(Duration::from_millis(150));
    world.run("update pgevict.heartbeat set sequence = 0").await;
    loop {
        if let Some(Delivery::Reset(cause)) = timeout(PATIENCE, app.events.next()).await.unwrap() {
            assert_eq!(cause, Reset::Heartbeat);
            break;
        }
    }
    world.set("k", "v2").await;
    app.event_for("k", Duration::from_secs(5)).await;
    app.pgevict.shutdown().await;
}

/// A full disk, say: what is read works, what is written does not.
#[tokio::test]
async fn a_heartbeat_that_fails_makes_no_storm() {
    let world = World::with_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let url = world.instance_role(relay.address()).await;
    let app = App::start_at(&world, &url, "a", |config| {
        config.feed.heartbeat = Duration::from_millis(200)
    })
    .await;
    app.until_proved(PATIENCE).await;
    let attempts = relay.attempts();
    world
        .run("revoke execute on function pgevict.beat_heart from pgevict_reader")
        .await;
    sleep(Duration::from_secs(6)).await;
    let tried = relay.attempts() - attempts;
    assert!((2..=12).contains(&tried), "{tried} attempts in 6 s");
    assert_eq!(app.pgevict.status().degraded, Some(Cause::Refused));
    world
        .run("grant execute on function pgevict.beat_heart to pgevict_reader")
        .await;
    app.until(|status| status.degraded.is_none(), PATIENCE).await;
    app.pgevict.shutdown().await;
}

/// Every reader may send heartbeats, and sees whose there are.
#[tokio::test]
async fn a_forged_heartbeat_resets_once() {
    let world = World::with_kv().await;
    let app = App::start(&world, "a", |_| ()).await;
    app.until_proved(PATIENCE).await;
    world.until_heartbeats(1).await;
    world
        .run("select pgevict.beat_heart(instance_id, process, 9223372036854775807, cursor) from pgevict.heartbeat")
        .await;
    app.until(|status| status.resets.get("heartbeat") == Some(&1), PATIENCE)
        .await;
    for _ in 0..10 {
        app.pgevict.sync(PATIENCE).await.unwrap();
    }
    assert_eq!(app.pgevict.status().resets.get("heartbeat"), Some(&1));
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    assert_eq!(app.held("k").as_deref(), Some("v1"));
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn without_the_row_of_meta_nothing_is_proved() {
    let world = World::with_kv().await;
    let app = App::start(&world, "a", |_| ()).await;
    app.until_proved(PATIENCE).await;
    world
        .run("create table kept as select * from pgevict.meta; delete from pgevict.meta")
        .await;
    app.until(|status| status.degraded == Some(Cause::Refused), PATIENCE)
        .await;
    sleep(Duration::from_secs(1)).await;
    let status = app.pgevict.status();
    assert!(status.resets.values().sum::<u64>() <= 1, "{status:?}");
    let error = Pgevict::builder(config(&world.cluster.url(), "b"))
        .start()
        .await
        .err()
        .unwrap();
    assert!(
        error.is_refused() && error.to_string().contains("meta"),
        "{error}"
    );
    world.run("insert into pgevict.meta select * from kept").await;
    app.until(|status| status.degraded.is_none(), PATIENCE).await;
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_schema_that_needs_a_newer_reader_is_refused() {
    let world = World::with_kv().await;
    let app = App::start(&world, "a", |_| ()).await;
    app.until_proved(PATIENCE).await;
    world.run("update pgevict.meta set least_reader = 99").await;
    app.until(|status| status.degraded == Some(Cause::Refused), PATIENCE)
        .await;
    let error = Pgevict::builder(config(&world.cluster.url(), "b"))
        .start()
        .await
        .err()
        .unwrap();
    assert!(error.is_refused() && error.to_string().contains("99"), "{error}");
    world.run("update pgevict.meta set least_reader = 1").await;
    app.until(|status| status.degraded.is_none(), PATIENCE).await;
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_missing_password_is_told_at_once() {
    let world = World::with(ClusterOptions::new().password("secret")).await;
    let url = format!("postgresql://postgres@{}/postgres", world.cluster.address());
    let error = timeout(
        Duration::from_secs(5),
        Pgevict::builder(config(&url, "a")).start(),
    )
    .await
    .expect("at once")
    .err()
    .unwrap();
    assert!(
        error.is_refused() && error.to_string().contains("password"),
        "{error}"
    );

    let mut settings = config("postgresql://postgres@127.0.0.1:1/postgres", "a");
    settings.feed.sync_timeout = Duration::from_millis(500);
    let error = Pgevict::builder(settings).start().await.err().unwrap();
    assert!(error.to_string().contains("refused"), "says why: {error}");
}

/// A commit that waits for a standby with a notification in it holds the NOTIFY lock of the whole server.
#[tokio::test]
async fn a_congested_notify_lock_does_not_keep_an_instance_from_starting() {
    let options = ClusterOptions::new()
        .setting("synchronous_commit", "on")
        .setting("max_wal_senders", "2");
    let world = World::with(options).await;
    world.make_kv().await;
    world
        .run("alter system set synchronous_standby_names = 'nobody'")
        .await;
    world.run("select pg_reload_conf()").await;
    // Commits wait from when the checkpointer has read the setting, which nothing tells.
    let waits = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
    let held = loop {
        let holder = world.cluster.connect().await.unwrap();
        let held = tokio::spawn(async move {
            let sql = "begin; insert into kv values ('x', 'x') on conflict (k) do update set v = 'x'; \
                select pg_notify('other', ''); commit";
            drop(holder.batch_execute(sql).await);
        });
        while !held.is_finished() && world.text(waits).await != "1" {
            sleep(Duration::from_millis(10)).await;
        }
        if !held.is_finished() {
            break held;
        }
    };
    let app = timeout(Duration::from_secs(10), App::start(&world, "a", |_| ()))
        .await
        .expect("started");
    let status = app.pgevict.status();
    assert_eq!(status.degraded, Some(Cause::Congested), "{status:?}");
    world.run("alter system reset synchronous_standby_names").await;
    world.run("select pg_reload_conf()").await;
    app.until(is_well, PATIENCE).await;
    held.await.unwrap();
    app.pgevict.shutdown().await;
}

fn is_well(status: &Status) -> bool {
    status.listening == Listening::Proved && status.degraded.is_none()
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_applied_as_a_flush() {
    let world = World::start().await;
    world
        .run("create database ascii encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'")
        .await;
    let mut db = world.cluster.connect_to("ascii").await.unwrap();
    pgevict::store::migrate::migrate(&mut db).await.unwrap();
    let pgevict = Pgevict::builder(config(&world.cluster.url_for("ascii"), "a"))
        .start()
        .await
        .unwrap();
    let mut events = pgevict.subscribe();
    db.batch_execute(r"select pgevict.emit(array[E'caf\xe9'], type => 'x.y')")
        .await
        .unwrap();
    let delivery = timeout(Duration::from_secs(5), events.next())
        .await
        .unwrap_or_else(|_| panic!("{:?}", pgevict.status()));
    assert!(
        matches!(&delivery, Some(Delivery::Event(event)) if event.empties_everything()),
        "{delivery:?}"
    );
    pgevict.sync(PATIENCE).await.unwrap();
    pgevict.shutdown().await;
}

#[tokio::test]
async fn uninstalled_under_an_instance_and_installed_again() {
    let mut world = World::with_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let mut app = App::start_behind(&world, &relay, "a", |_| ()).await;
    app.until_proved(PATIENCE).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    let limit = Duration::from_secs(10);
    pgevict::store::migrate::uninstall(&mut world.admin, limit)
        .await
        .unwrap();
    app.until(|status| status.degraded == Some(Cause::Refused), PATIENCE)
        .await;
    let attempts = relay.attempts();
    sleep(Duration::from_secs(6)).await;
    let tried = relay.attempts() - attempts;
    assert!((1..=10).contains(&tried), "{tried} attempts in 6 s");
    assert_eq!(app.held("k"), None, "cannot be proved fresh");
    pgevict::store::migrate::migrate(&mut world.admin).await.unwrap();
    app.until(is_well, PATIENCE).await;
    world.set("k", "v2").await;
    app.event_for("k", PATIENCE).await;
    assert_eq!(app.pgevict.status().resets.get("identity"), Some(&1));
    assert_eq!(app.get("k").await.as_deref(), Some("v2"));
    // Within one poll as well.
    pgevict::store::migrate::uninstall(&mut world.admin, limit)
        .await
        .unwrap();
    pgevict::store::migrate::migrate(&mut world.admin).await.unwrap();
    world.set("k", "v3").await;
    app.until(is_well, PATIENCE).await;
    app.pgevict.sync(PATIENCE).await.unwrap();
    assert_eq!(app.get("k").await.as_deref(), Some("v3"));
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn odd_settings_of_the_role_do_no_harm() {
    let world = World::with_kv().await;
    let url = world.instance_role(world.cluster.address()).await;
    for setting in [
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "statement_timeout = '20ms'",
        "lock_timeout = '1ms'",
        "idle_session_timeout = '1s'",
        "idle_in_transaction_session_timeout = '1s'",
        "search_path = 'nowhere'",
        "jit = on",
        "jit_above_cost = 0",
        "row_security = off",
        "client_encoding = 'LATIN1'",
        "datestyle = 'German, DMY'",
        "intervalstyle = 'sql_standard'",
        "bytea_output = 'escape'",
        "timezone = 'Asia/Kathmandu'",
        "standard_conforming_strings = off",
        "synchronous_commit = remote_apply",
        "default_transaction_deferrable = on",
    ] {
        world.run(&format!("alter role app set {setting}")).await;
    }
    let mut app = App::start_at(&world, &url, "a", |_| ()).await;
    app.until_proved(PATIENCE).await;
    sleep(Duration::from_secs(3)).await;
    let status = app.pgevict.status();
    assert_eq!(
        (status.reconnects_total(), status.degraded),
        (0, None),
        "{status:?}"
    );
    world.set("k\u{e9}", "v2").await;
    app.event_for("k\u{e9}", Duration::from_secs(1)).await;
    let isolation = "select count(*) from pg_stat_activity where application_name like 'pgevict/%'";
    assert_eq!(world.text(isolation).await, "2");
    app.pgevict.shutdown().await;
}

/// A page that cannot be had within the deadline is asked for in smaller pieces.
#[tokio::test]
async fn huge_events_are_fetched_in_smaller_pages() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", |config| {
        config.session.statement_timeout = Duration::from_millis(250)
    })
    .await;
    app.until_proved(PATIENCE).await;
    // One transaction: all become visible at once.
    world
        .run(
            "select count(pgevict.emit(array_fill(repeat('x', 1000000) || n, array[4]))) \
             from generate_series(1, 50) n; select pgevict.emit(array['last'])",
        )
        .await;
    app.event_for("last", PATIENCE).await;
    app.pgevict.shutdown().await;
}

/// A restored log is emptied by whoever finds it, however long that takes.
#[tokio::test]
async fn a_large_log_of_another_server_is_emptied() {
    let world = World::with_kv().await;
    world
        .run("insert into pgevict.event (keys) select array['k' || n] from generate_series(1, 1000000) n")
        .await;
    world
        .run("update pgevict.epoch set system_identifier = 1; update pgevict.meta set system_identifier = 1")
        .await;
    let start = Instant::now();
    let app = App::start(&world, "a", |config| {
        config.session.statement_timeout = Duration::from_millis(200)
    })
    .await;
    assert_eq!(world.text("select count(*) from pgevict.event").await, "0");
    assert!(start.elapsed() < Duration::from_secs(20));
    app.pgevict.shutdown().await;
}

/// All sessions freeze at once: nothing is closed, nothing answers.
#[tokio::test]
async fn a_frozen_network_is_never_served_from_silently_and_is_left_again() {
    let world = World::with_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let staleness = Duration::from_secs(2);
    let mut app = App::start_behind(&world, &relay, "a", |config| config.max_staleness = staleness).await;
    app.until_proved(PATIENCE).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    relay.freeze();
    let frozen = Instant::now();
    world.set("k", "v2").await;
    let attempts = relay.attempts();
    while frozen.elapsed() < Duration::from_secs(12) {
        let asked = frozen.elapsed();
        if app.held("k").is_some() {
            assert!(asked <= staleness, "served {asked:?} after the freeze");
        }
        sleep(Duration::from_millis(50)).await;
    }
    assert!(
        relay.attempts() - attempts <= 12,
        "{}",
        relay.attempts() - attempts
    );
    relay.thaw();
    app.event_for("k", PATIENCE).await;
    app.until(is_well, PATIENCE).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v2"));
    relay.freeze();
    sleep(Duration::from_millis(100)).await;
    let stopping = Instant::now();
    app.pgevict.shutdown().await;
    assert!(
        stopping.elapsed() < Duration::from_secs(3),
        "{:?}",
        stopping.elapsed()
    );
}

#[tokio::test]
async fn what_is_dropped_is_stopped() {
    let world = World::with_kv().await;
    // A start that is given up half-way.
    let starting = Pgevict::builder(config(&world.cluster.url(), "a"))
        .warm_up(|_| std::future::pending())
        .start();
    assert!(timeout(Duration::from_secs(1), starting).await.is_err());
    world.until_no_session().await;
    // A warm-up that panics, and one that fails.
    let starting = Pgevict::builder(config(&world.cluster.url(), "a"))
        .warm_up(|_| async { panic!("on purpose") })
        .start();
    assert!(tokio::spawn(starting).await.is_err());
    world.until_no_session().await;
    let starting = Pgevict::builder(config(&world.cluster.url(), "a"))
        .warm_up(|_| async { pgevict::config::Address::parse("nonsense").map(drop) })
        .start();
    assert!(starting.await.err().unwrap().is_invalid());
    world.until_no_session().await;
    // A stopped instance, though a handle of it is kept.
    let mut app = App::start(&world, "a", |_| ()).await;
    app.pgevict.shutdown().await;
    assert_eq!(app.pgevict.status().listening, Listening::Lost(Cause::Closed));
    assert!(timeout(PATIENCE, app.events.next()).await.unwrap().is_none());
    drop(app);
    // The last handle; what hangs on it stays usable and is never fresh.
    let App {
        pgevict,
        cache,
        mut events,
        db: _db,
    } = App::start(&world, "a", |_| ()).await;
    drop(pgevict);
    world.until_no_session().await;
    assert_eq!(cache.len(), 0);
    assert!(timeout(PATIENCE, events.next()).await.unwrap().is_none());
}

/// Dropped with what holds it.
struct Flag(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_handler_that_never_ends_is_dropped_at_the_end_of_the_grace_period() {
    let world = World::with_kv().await;
    let dropped = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (begun_here, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let flag = dropped.clone();
    let builder = Pgevict::builder(config(&world.cluster.url(), "a")).on("*", move |_| {
        let (flag, begun) = (Flag(flag.clone()), begun_here.clone());
        async move {
            let _flag = flag;
            let _ = begun.send(());
            std::future::pending::<()>().await;
        }
    });
    let app = App::start_with(&world, builder).await;
    drop(
        app.pgevict
            .emit(&world.admin, pgevict::Event::new("x"))
            .await
            .unwrap(),
    );
    timeout(PATIENCE, begun.recv()).await.unwrap();
    timeout(PATIENCE, app.pgevict.shutdown()).await.unwrap();
    assert!(dropped.load(std::sync::atomic::Ordering::SeqCst));
}

/// Two addresses that lead to two databases are told from a link that is dead.
#[tokio::test]
async fn an_unheard_probe_is_told_by_its_cause() {
    let world = World::with_kv().await;
    let other = world.cluster.create_database("other").await.unwrap();
    let mut db = world.cluster.connect_to("other").await.unwrap();
    pgevict::store::migrate::migrate(&mut db).await.unwrap();
    let listen = world.cluster.url();
    let app = App::start_at(&world, &other, "a", |config| {
        config.listen_url = pgevict::Config::from_url(&listen).unwrap().url;
    })
    .await;
    app.until(
        |status| status.listening == Listening::Lost(Cause::TwoServers),
        PATIENCE,
    )
    .await;
    app.pgevict.shutdown().await;

    // The link freezes when the first probe is on its way: another try follows soon.
    let (relay, other) = (
        Relay::before(&world.cluster).await.unwrap(),
        Relay::before(&world.cluster).await.unwrap(),
    );
    other.hold_matching(b"pg_notify", Duration::from_secs(60));
    let listen = relay.url(&world.cluster);
    let url = other.url(&world.cluster);
    let starting = App::start_at(&world, &url, "b", |config| {
        config.listen_url = pgevict::Config::from_url(&listen).unwrap().url;
    });
    let freezing = async {
        other.until_held(1).await;
        relay.freeze();
        other.pass();
        sleep(Duration::from_secs(5)).await;
        relay.thaw();
    };
    let (mut app, ()) = tokio::join!(starting, freezing);
    app.until(is_well, Duration::from_secs(8)).await;
    world.set("k", "v2").await;
    app.event_for("k", PATIENCE).await;
    app.pgevict.shutdown().await;
}

/// `url` may be a pooler that hands the server's session to somebody else next.
#[tokio::test]
async fn administration_leaves_no_setting_behind_and_needs_none_of_the_role() {
    let world = World::with(ClusterOptions::new().setting("log_statement", "all")).await;
    world.make_kv().await;
    world.run("create role boss login superuser").await;
    for setting in [
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "default_transaction_deferrable = on",
    ] {
        world.run(&format!("alter role boss set {setting}")).await;
    }
    let before = world.cluster.log().len();
    let url = format!("postgresql://boss@{}/postgres", world.cluster.address());
    let mut admin = pgevict::store::Admin::connect(&config(&url, "a")).await.unwrap();
    admin.migrate().await.unwrap();
    let mut definition = pgevict::store::watch::WatchDefinition::new("kv");
    definition.key = Some("kv:{k}".to_owned());
    admin.watch(&definition).await.unwrap();
    admin.set_wake("commit").await.unwrap();
    admin.emit(&pgevict::Event::flush()).await.unwrap();
    assert_eq!(admin.watches().await.unwrap().len(), 1);
    assert!(admin.unwatch("kv").await.unwrap());
    assert!(admin.uninstall().await.unwrap().found);
    let log = world.cluster.log()[before..].to_lowercase();
    let settings = log
        .match_indices("set ")
        .map(|(at, _)| &log[at..(at + 60).min(log.len())]);
    let for_the_session: Vec<_> = settings
        .filter(|set| {
            [
                "set default_",
                "set jit",
                "set idle_",
                "set statement_",
                "set search_",
                "set tcp_",
            ]
            .iter()
            .any(|head| set.starts_with(head))
        })
        .collect();
    assert!(for_the_session.is_empty(), "{for_the_session:?}");
}

/// Whatever keeps the sessions out: tries with growing pauses, a status that says why, and a return without help.
#[tokio::test]
async fn locked_out_by_a_limit_a_password_or_a_database_that_is_gone() {
    let world = World::with_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    world
        .run("create role app login; grant pgevict_instance to app")
        .await;
    world.run("create database shop").await;
    let install = async || {
        let mut db = world.cluster.connect_to("shop").await.unwrap();
        pgevict::store::migrate::migrate(&mut db).await.unwrap();
    };
    install().await;
    let url = format!("postgresql://app@{}/shop", relay.address());
    let app = Pgevict::builder(config(&url, "a")).start().await.unwrap();
    let until = async |wanted: &dyn Fn(&Status) -> bool| {
        let reached = timeout(PATIENCE, async {
            while !wanted(&app.status()) {
                sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(reached.await.is_ok(), "{:?}", app.status());
    };
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name like 'pgevict/%'";
    let out: [(&str, &str, Cause); 3] = [
        (
            "alter role app connection limit 0",
            "alter role app connection limit -1",
            Cause::Unreachable,
        ),
        ("alter role app nologin", "alter role app login", Cause::Refused),
        (
            "drop database shop with (force)",
            "create database shop",
            Cause::Refused,
        ),
    ];
    for (lock_out, let_in, cause) in out {
        until(&is_well).await;
        world.run(lock_out).await;
        world.run(end).await;
        until(&|status: &Status| status.listening == Listening::Lost(cause)).await;
        let attempts = relay.attempts();
        sleep(Duration::from_secs(6)).await;
        let tried = relay.attempts() - attempts;
        assert!((2..=20).contains(&tried), "{lock_out}: {tried} attempts in 6 s");
        assert_eq!(app.status().degraded, Some(cause), "{lock_out}");
        world.run(let_in).await;
        if let_in.starts_with("create") {
            install().await;
        }
    }
    until(&is_well).await;
    assert_eq!(app.status().resets.get("identity"), Some(&1));
    app.shutdown().await;
}

/// One session works, the other is kept out: neither drags the other into a storm.
#[tokio::test]
async fn with_room_for_one_session_only_the_other_tries_with_pauses() {
    let world = World::with_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let url = world.instance_role(relay.address()).await;
    let mut app = App::start_at(&world, &url, "a", |_| ()).await;
    app.until_proved(PATIENCE).await;
    world.run("alter role app connection limit 1").await;
    for session in ["listen", "fetch"] {
        world
            .run(&format!(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgevict/{session}/a'"
            ))
            .await;
        let attempts = relay.attempts();
        sleep(Duration::from_secs(6)).await;
        let tried = relay.attempts() - attempts;
        assert!((2..=20).contains(&tried), "{session}: {tried} attempts in 6 s");
        assert!(app.pgevict.status().degraded.is_some());
    }
    world.run("alter role app connection limit -1").await;
    app.until(is_well, PATIENCE).await;
    world.set("k", "v2").await;
    app.event_for("k", PATIENCE).await;
    app.pgevict.shutdown().await;
}
