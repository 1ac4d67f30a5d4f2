//! A trigger told the name of the partition, for which nobody had subscribed (hasura 6261).

use pgevict::Delivery;

use crate::support::World;
use crate::support::app::{App, slow_poll};

/// kv in partitions a to m (in two more), n to t; u to z comes later.
const KV: &str = "create table kv (k text primary key, v text not null) partition by range (k); \
     create table a_m partition of kv for values from ('a') to ('n') partition by range (k); \
     create table a_f partition of a_m for values from ('a') to ('g'); \
     create table g_m partition of a_m for values from ('g') to ('n'); \
     create table n_t partition of kv for values from ('n') to ('u'); \
     insert into kv values ('a', 'v1'), ('g', 'v1'), ('n', 'v1'); \
     select pgevict.watch('kv', '{k}', flush_ok => true)";

#[tokio::test]
async fn c27_every_way_into_a_partition_evicts_and_names_the_parent() {
    let world = World::start().await;
    world.run(KV).await;
    let mut app = App::start(&world, "i", slow_poll).await;
    for (sql, evicted, held) in [
        (
            "update kv set v = 'v2' where k in ('a', 'g')",
            &["a", "g"][..],
            &["n"][..],
        ),
        ("update a_m set v = 'v3' where k = 'a'", &["a"], &["g", "n"]),
        ("update g_m set v = 'v4'", &["g"], &["a", "n"]),
        ("insert into n_t values ('o', 'v5')", &["o"], &["a", "g", "n"]),
        ("update kv set k = 'b' where k = 'n'", &["b", "n"], &["a", "g"]),
        ("update a_m set k = 'h' where k = 'b'", &["b", "h"], &["a", "g"]),
        (
            "create table u_z partition of kv for values from ('u') to ('{')",
            &[],
            &["a"],
        ),
        ("insert into u_z values ('u', 'v6')", &["u"], &["a", "g"]),
        ("insert into kv values ('v', 'v7')", &["v"], &["a", "u"]),
        (
            "merge into kv using (values ('w')) m (k) on m.k = kv.k when not matched then insert values (m.k, 'v8')",
            &["w"],
            &["v"],
        ),
        ("copy a_f from program 'printf \"c\\tv9\\n\"'", &["c"], &["a"]),
        ("delete from a_f where k = 'c'", &["c"], &["a"]),
        ("delete from kv where k = 'a'", &["a"], &["g"]),
    ] {
        for k in evicted.iter().chain(held) {
            app.get(k).await;
        }
        app.deliveries().await;
        world.run(sql).await;
        let deliveries = app.deliveries().await;
        let mut keys: Vec<_> = deliveries.iter().flat_map(crate::support::app::keys_of).collect();
        keys.sort();
        assert_eq!(keys, evicted, "{sql}");
        for delivery in &deliveries {
            let Delivery::Event(event) = delivery else {
                panic!("{delivery:?}")
            };
            assert_eq!(event.entity_type.as_deref(), Some("kv"), "{sql}");
            assert!(
                event.kind.as_deref().is_some_and(|kind| kind.starts_with("kv.")),
                "{sql}"
            );
        }
        for k in evicted {
            let loaded = world
                .text(&format!("select max(v) from kv where k = '{k}'"))
                .await;
            assert_eq!(
                app.get(k).await.unwrap_or_else(|| "NULL".into()),
                loaded,
                "{k} after {sql}"
            );
        }
        for k in held {
            assert!(app.held(k).is_some(), "{k} after {sql}");
        }
    }
}
