//! Row A7, a whole scenario: three servers of a queue, each with a cache of queues and partitions. A queue is configured in
//! a transaction that finds out what changes and emits that; all three then serve the new options, also while one of
//! them restarts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pgevict::cache::NearCache;
use pgevict::{Event, Key, LoggedEvent, Pgevict, key, tag};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::support::World;
use crate::support::app::{PATIENCE, config};

type Problem = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: i32 = 50;
/// Round in which one of the three stops, and another takes its place.
const RESTART: i32 = 20;
/// What is promised for a machine that does nothing else: set PGEVICT_TEST_ALONE for that.
const PROMISE: Duration = Duration::from_millis(100);
/// What must hold on any.
const LIMIT: Duration = Duration::from_secs(1);

const TABLES: &str = "
  create table queues (name text primary key, lease_seconds int not null, retry_limit int not null);
  create table partitions (queue text references queues, id int, consumers int not null, primary key (queue, id));
";

#[derive(Debug, Clone, Copy, PartialEq)]
struct Options {
    lease_seconds: i32,
    retry_limit: i32,
}

/// What a server keeps of a queue or of a partition: the options, which a partition takes over from its queue.
struct Server {
    pgevict: Pgevict,
    resources: NearCache<Options>,
    db: Arc<Client>,
}

#[derive(Debug, PartialEq)]
enum Configured {
    Created,
    Updated,
    AsItWas,
}

impl Server {
    async fn start(world: &World, name: &str, seen: mpsc::UnboundedSender<Arc<LoggedEvent>>) -> Self {
        let db = Arc::new(world.cluster.connect().await.unwrap());
        let warm = db.clone();
        let (cache_here, cache) = tokio::sync::oneshot::channel();
        let builder = Pgevict::builder(config(&world.cluster.url(), name))
            .on("queue.*", move |event| {
                let seen = seen.clone();
                async move { drop(seen.send(event)) }
            })
            .warm_up(|pgevict| async move {
                let resources = pgevict.cache().build();
                for id in [None, Some(0), Some(1)] {
                    // Whatever is there now; what changes meanwhile evicts it.
                    resource(&resources, &warm, "mail", id).await;
                }
                drop(cache_here.send(resources));
                Ok(())
            });
        let pgevict = builder.start().await.unwrap();
        Self {
            pgevict,
            resources: cache.await.unwrap(),
            db,
        }
    }

    /// The queue and both of its partitions, as this server serves them.
    async fn serves(&self, options: Options) -> bool {
        for id in [None, Some(0), Some(1)] {
            if resource(&self.resources, &self.db, "mail", id).await != Some(options) {
                return false;
            }
        }
        true
    }

    /// Creates the queue or changes its options; the event belongs to that transaction.
    async fn configure_queue(&self, db: &mut Client, name: &str, options: Options) -> Configured {
        let configured = self.pgevict.transaction(db, async |tx| {
            let before = "select lease_seconds, retry_limit from queues where name = $1 for update";
            let before = tx.query_opt(before, &[&name]).await?;
            let write = "insert into queues values ($1, $2, $3) on conflict (name) do update \
                         set lease_seconds = excluded.lease_seconds, retry_limit = excluded.retry_limit";
            tx.execute(write, &[&name, &options.lease_seconds, &options.retry_limit])
                .await?;
            let Some(before) = before else {
                tx.execute("insert into partitions values ($1, 0, 1), ($1, 1, 1)", &[&name])
                    .await?;
                let created = Event::created("queue", name).tag(tag!("queue:{}", name));
                tx.emit(created).await?;
                return Ok::<_, Problem>(Configured::Created);
            };
            let mut changes = Map::new();
            for (n, field, new) in [
                (0, "lease_seconds", options.lease_seconds),
                (1, "retry_limit", options.retry_limit),
            ] {
                let old: i32 = before.get(n);
                if old != new {
                    changes.insert(field.to_owned(), json!({ "old": old, "new": new }));
                }
            }
            if changes.is_empty() {
                return Ok(Configured::AsItWas);
            }
            let updated = Event::updated("queue", name)
                .tag(tag!("queue:{}", name))
                .changes(Value::Object(changes));
            tx.emit(updated).await?;
            Ok(Configured::Updated)
        });
        configured.await.unwrap()
    }
}

/// From the cache, or from the tables. Entries of the queue and of all its partitions carry the queue's tag.
async fn resource(
    resources: &NearCache<Options>,
    db: &Client,
    queue: &str,
    partition: Option<i32>,
) -> Option<Options> {
    let key: Key = match partition {
        None => key!("queue:{}", queue),
        Some(id) => key!("partition:{}:{}", queue, id),
    };
    let loaded = resources.get_or_load(&key, |load| async move {
        let read = "select lease_seconds, retry_limit from queues q \
                    where name = $1 and ($2::int is null or exists (select from partitions p where p.queue = q.name and id = $2))";
        let row = db.query_opt(read, &[&queue, &partition]).await?;
        let loaded = match row {
            Some(row) => load.found(Options {
                lease_seconds: row.get(0),
                retry_limit: row.get(1),
            }),
            None => load.absent(),
        };
        Ok::<_, tokio_postgres::Error>(loaded.tag(tag!("queue:{}", queue)))
    });
    loaded.await.unwrap().into_value()
}

/// From the commit until all of them serve these options.
async fn until_all_serve(servers: &[Server], options: Options) -> Duration {
    let committed = Instant::now();
    let all = async {
        for server in servers {
            while !server.serves(options).await {
                tokio::task::yield_now().await;
            }
        }
    };
    assert!(timeout(PATIENCE, all).await.is_ok(), "not all serve {options:?}");
    committed.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a7_a_queue_that_is_configured_is_so_at_all_three_servers_also_while_one_restarts() {
    let world = Arc::new(World::start().await);
    world.run(TABLES).await;
    let (seen_here, mut seen) = mpsc::unbounded_channel();
    let mut servers = Vec::new();
    for name in ["a", "b", "c"] {
        // All report to one channel: each event is told three times.
        servers.push(Server::start(&world, name, seen_here.clone()).await);
    }
    let mut db = world.cluster.connect().await.unwrap();
    let mut options = Options {
        lease_seconds: 300,
        retry_limit: 0,
    };
    // Cached as absent before: the creation has to evict that too.
    assert!(!servers[1].serves(options).await);
    assert_eq!(
        servers[0].configure_queue(&mut db, "mail", options).await,
        Configured::Created
    );
    until_all_serve(&servers, options).await;
    assert_eq!(
        servers[1].configure_queue(&mut db, "mail", options).await,
        Configured::AsItWas
    );

    let mut took = Vec::new();
    let mut restarting = None;
    for round in 1..=ROUNDS {
        if round == RESTART {
            let stopped = servers.pop().unwrap();
            stopped.pgevict.shutdown().await;
            let (world, seen) = (world.clone(), seen_here.clone());
            restarting = Some(tokio::spawn(
                async move { Server::start(&world, "c", seen).await },
            ));
        }
        options.retry_limit = round;
        let writer = &servers[round as usize % servers.len()];
        let configured = writer.configure_queue(&mut db, "mail", options).await;
        assert_eq!(configured, Configured::Updated);
        took.push(until_all_serve(&servers, options).await);
        let late = round == ROUNDS - 5;
        if restarting.as_ref().is_some_and(|task| task.is_finished() || late) {
            let back = restarting.take().unwrap().await.unwrap();
            back.pgevict.sync(PATIENCE).await.unwrap();
            assert!(back.serves(options).await, "consistent as soon as it is ready");
            servers.push(back);
        }
    }
    assert_eq!(servers.len(), 3);

    took.sort();
    let at = |share: usize| took[(took.len() - 1) * share / 100];
    println!(
        "commit -> all three serve it: p50 {:?}, p95 {:?}, max {:?}",
        at(50),
        at(95),
        at(100)
    );
    assert!(at(50) < PROMISE, "p50 {:?}", at(50));
    assert!(at(100) < LIMIT, "max {:?}", at(100));
    if std::env::var_os("PGEVICT_TEST_ALONE").is_some() {
        assert!(at(95) < PROMISE, "p95 {:?}", at(95));
    }

    // The events say what changed, to every server's handlers.
    let mut changes = Vec::new();
    while changes.len() < 3 {
        let event = timeout(PATIENCE, seen.recv()).await.unwrap().unwrap();
        if event.kind() == Some("queue.updated") {
            changes.push(event);
        }
    }
    for event in changes {
        assert_eq!(event.entity_id(), Some("mail"));
        let change = &event.changes.as_ref().unwrap()["retry_limit"];
        assert_eq!(change["new"].as_i64(), change["old"].as_i64().map(|old| old + 1));
        assert_eq!(event.changes.as_ref().unwrap().get("lease_seconds"), None);
    }
    for server in servers {
        server.pgevict.shutdown().await;
    }
}
