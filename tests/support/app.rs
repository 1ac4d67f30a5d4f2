//! An app server of the tests: an instance with a cache over a table of keys and values.

use std::time::{Duration, Instant};

use pgevict::cache::NearCache;
use pgevict::lab::Relay;
use pgevict::{Builder, Config, Delivery, Event, Key, Listening, Pgevict, Reset, Subscription};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::World;

/// Longest wait for anything in the tests that is not itself under test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Polling so slow that an arrival within seconds proves the wake path. Never the warden, whose checks emit.
pub(crate) fn slow_poll(config: &mut Config) {
    config.warden.enabled = false;
    config.feed.poll = Duration::from_secs(60);
    config.feed.poll_unproved = Duration::from_secs(60);
    config.max_staleness = Duration::from_secs(120);
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

impl World {
    /// With the table `kv`, filled with k = v1.
    pub(crate) async fn with_kv() -> Self {
        let world = Self::start().await;
        world.make_kv().await;
        world
    }

    pub(crate) async fn make_kv(&self) {
        self.run("create table kv (k text primary key, v text not null); insert into kv values ('k', 'v1')")
            .await;
    }

    /// One transaction: the value, and the event.
    pub(crate) async fn set(&self, k: &str, v: &str) {
        set(&self.admin, k, v).await;
    }

    /// Waits for the heartbeats of so many instances: the first one follows the start.
    pub(crate) async fn until_heartbeats(&self, count: usize) {
        let all = timeout(PATIENCE, async {
            while self.text("select count(*) from pgevict.heartbeat").await != count.to_string() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        assert!(all.await.is_ok(), "{count} heartbeats");
    }

    /// Waits for the heartbeat of an instance in another database.
    pub(crate) async fn until_registered(&self, database: &str) {
        let db = self.cluster.connect_to(database).await.unwrap();
        let there = timeout(PATIENCE, async {
            while super::text(&db, "select count(*) from pgevict.heartbeat").await == "0" {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        assert!(there.await.is_ok(), "a heartbeat in {database}");
    }

    /// Ends the LISTEN backend of an instance.
    pub(crate) async fn kill_listener(&self, instance: &str) {
        let killed = self
            .text(&format!(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                 where application_name = 'pgevict/listen/{instance}'"
            ))
            .await;
        assert_eq!(killed, "1", "one LISTEN backend of {instance}");
    }
}

/// One transaction: the value, and the event.
pub(crate) async fn set(client: &Client, k: &str, v: &str) {
    client
        .batch_execute(&format!(
            "begin; insert into kv values ('{k}', '{v}') on conflict (k) do update set v = excluded.v; \
             select pgevict.emit(array['{k}']); commit"
        ))
        .await
        .unwrap();
}

/// Settings of an instance of this name.
pub(crate) fn config(url: &str, name: &str) -> Config {
    let mut config = Config::from_url(url).unwrap();
    config.instance_id = Some(name.to_owned());
    config
}

pub(crate) struct App {
    pub(crate) pgevict: Pgevict,
    pub(crate) cache: NearCache<String>,
    pub(crate) events: Subscription,
    pub(crate) db: Client,
}

impl App {
    pub(crate) async fn start(world: &World, name: &str, change: impl FnOnce(&mut Config)) -> Self {
        Self::start_at(world, &world.cluster.url(), name, change).await
    }

    /// All its sessions lead through the relay; the application's own reads do not.
    pub(crate) async fn start_behind(
        world: &World,
        relay: &Relay,
        name: &str,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        Self::start_at(world, &relay.url(&world.cluster), name, change).await
    }

    pub(crate) async fn start_at(
        world: &World,
        url: &str,
        name: &str,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = config(url, name);
        change(&mut config);
        Self::start_with(world, Pgevict::builder(config)).await
    }

    pub(crate) async fn start_with(world: &World, builder: Builder) -> Self {
        let pgevict = builder.start().await.unwrap();
        Self {
            cache: pgevict.cache().build(),
            events: pgevict.subscribe(),
            db: world.cluster.connect().await.unwrap(),
            pgevict,
        }
    }

    /// The value as the application gets it: from the cache or, on a miss, from the table.
    pub(crate) async fn get(&self, k: &str) -> Option<String> {
        let answer = self
            .cache
            .get_or_load(&key(k), |load| async move {
                let row = self.db.query_opt("select v from kv where k = $1", &[&k]).await?;
                Ok::<_, tokio_postgres::Error>(match row {
                    Some(row) => load.found(row.get(0)),
                    None => load.absent(),
                })
            })
            .await
            .unwrap();
        answer.into_value()
    }

    /// What the cache holds, without a load.
    pub(crate) fn held(&self, k: &str) -> Option<String> {
        self.cache.get(&key(k)).into_value()
    }

    /// Waits for an event that names the key; how long that took.
    pub(crate) async fn applied(&mut self, k: &str) -> Duration {
        let start = Instant::now();
        self.event_for(k, PATIENCE).await;
        start.elapsed()
    }

    /// Waits for an event that names the key.
    pub(crate) async fn event_for(&mut self, k: &str, within: Duration) {
        let found = timeout(within, async {
            loop {
                match self.events.next().await {
                    Some(Delivery::Event(event)) if names(&event, k) => return,
                    Some(_) => {}
                    None => panic!("the instance has ended"),
                }
            }
        });
        let waited = found.await;
        assert!(
            waited.is_ok(),
            "no event for {k} within {within:?}: {:?}",
            self.pgevict.status()
        );
    }

    /// All deliveries that are there once everything committed so far has been applied.
    pub(crate) async fn deliveries(&mut self) -> Vec<Delivery> {
        self.pgevict.sync(PATIENCE).await.unwrap();
        let mut all = Vec::new();
        while let Ok(Some(delivery)) = timeout(Duration::from_millis(20), self.events.next()).await {
            all.push(delivery);
        }
        all
    }

    /// Keys of the events that are there once everything committed so far has been applied, in order.
    pub(crate) async fn keys(&mut self) -> Vec<String> {
        let deliveries = self.deliveries().await;
        deliveries.iter().flat_map(keys_of).collect()
    }

    /// Causes of the resets among the deliveries.
    pub(crate) fn resets(deliveries: &[Delivery]) -> Vec<Reset> {
        let reset = |delivery: &Delivery| match delivery {
            Delivery::Reset(cause) => Some(*cause),
            Delivery::Event(_) => None,
        };
        deliveries.iter().filter_map(reset).collect()
    }

    /// Waits until the LISTEN path is in this state.
    pub(crate) async fn until(
        &self,
        wanted: impl Fn(&pgevict::Status) -> bool,
        within: Duration,
    ) -> Duration {
        let start = Instant::now();
        let reached = timeout(within, async {
            while !wanted(&self.pgevict.status()) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        assert!(
            reached.await.is_ok(),
            "not within {within:?}: {:?}",
            self.pgevict.status()
        );
        start.elapsed()
    }

    pub(crate) async fn until_proved(&self, within: Duration) -> Duration {
        self.until(|status| status.listening == Listening::Proved, within)
            .await
    }

    pub(crate) async fn until_lost(&self, within: Duration) -> Duration {
        self.until(|status| matches!(status.listening, Listening::Lost(_)), within)
            .await
    }
}

pub(crate) fn keys_of(delivery: &Delivery) -> Vec<String> {
    match delivery {
        Delivery::Event(event) => event.keys.iter().map(|key| key.as_str().to_owned()).collect(),
        Delivery::Reset(_) => Vec::new(),
    }
}

fn names(event: &Event, k: &str) -> bool {
    event.keys.iter().any(|key| key.as_str() == k)
}
