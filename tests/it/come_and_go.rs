//! Instances come and go: what is left of them in the log, and for how long it holds up pruning.

use std::time::Duration;

use pgevict::lab::{ClusterOptions, Relay};
use pgevict::{Config, Pgevict};

use crate::support::World;
use crate::support::app::{PATIENCE, config};

/// How many come and go: few in CI, 100 when asked. Half of them stop, the others are killed.
fn count() -> usize {
    let count = std::env::var("PGEVICT_INSTANCES").ok();
    count.and_then(|count| count.parse().ok()).unwrap_or(20)
}

fn plain(config: &mut Config) {
    config.warden.enabled = false;
}

async fn start(url: &str, name: &str) -> Pgevict {
    let mut config = config(url, name);
    plain(&mut config);
    Pgevict::builder(config).start().await.unwrap()
}

impl World {
    async fn until(&self, sql: &str, wanted: &str) {
        let reached = tokio::time::timeout(PATIENCE, async {
            while self.text(sql).await != wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(reached.await.is_ok(), "{sql}: {}", self.text(sql).await);
    }

    /// As if the killed had been silent for this long, when the warden looks.
    async fn silent_for(&self, seconds: u32) {
        self.run(&format!(
            "update pgevict.heartbeat set beat_at = clock_timestamp() - interval '{seconds} seconds'; \
             select pgevict.note_horizon('24h'); \
             update pgevict.horizon set taken_at = taken_at - interval '2 hours'"
        ))
        .await;
    }

    /// Prunes; the keys that are left in the log.
    async fn pruned_to(&self) -> String {
        for _ in 0..4 {
            self.run("select pgevict.prune('1h', 1000)").await;
        }
        self.text("select coalesce(string_agg(keys[1], ',' order by id), '') from pgevict.event")
            .await
    }
}

const HEARTBEATS: &str = "select count(*) from pgevict.heartbeat";
const SESSIONS: &str = "select count(*) from pg_stat_activity where application_name like 'pgevict/%'";

#[tokio::test]
async fn of_instances_that_stopped_no_row_is_left_and_the_killed_pin_for_60_s_and_are_gone_by_120_s() {
    let options = ClusterOptions::new().setting("max_connections", (count() * 2 + 50).to_string());
    let world = World::with(options).await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let (direct, relayed) = (world.cluster.url(), relay.url(&world.cluster));
    let half = count() / 2;
    let names: Vec<_> = (0..half)
        .map(|n| (format!("stops-{n}"), format!("killed-{n}")))
        .collect();
    let stopping = names.iter().map(|(name, _)| start(&direct, name));
    let killed = names.iter().map(|(_, name)| start(&relayed, name));
    let (stopping, killed) = tokio::join!(
        futures::future::join_all(stopping),
        futures::future::join_all(killed)
    );
    assert_eq!(world.text(HEARTBEATS).await, (half * 2).to_string());

    // Killed: no goodbye gets through, and the server ends what it has of them.
    relay.cut();
    world
        .run("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'pgevict/%/killed-%'")
        .await;
    drop(killed);
    futures::future::join_all(stopping.iter().map(Pgevict::shutdown)).await;
    world.until(SESSIONS, "0").await;
    let left = "select count(*) || ' ' || coalesce(bool_and(instance_id like 'killed-%')::text, '') from pgevict.heartbeat";
    assert_eq!(world.text(left).await, format!("{half} true"));

    world.run("select pgevict.emit(array['unread'])").await;
    world.silent_for(55).await;
    assert_eq!(world.pruned_to().await, "unread", "whoever may be alive pins");
    world.silent_for(61).await;
    assert_eq!(world.pruned_to().await, "", "whoever is dead does not");
    world.silent_for(110).await;
    assert_eq!(world.text(HEARTBEATS).await, half.to_string());
    world.silent_for(121).await;
    assert_eq!(world.text(HEARTBEATS).await, "0");

    // Whoever comes under the name of one that was killed starts anew, and leaves nothing either.
    let again = start(&direct, "killed-0").await;
    assert!(again.status().resets.is_empty());
    again.shutdown().await;
    assert_eq!(world.text(HEARTBEATS).await, "0");
}
