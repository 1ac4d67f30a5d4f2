//! A change of the key evicted one of two keys (dozer 114), and rows changed by a foreign key fired nothing (cockroach
//! 134741).

use crate::support::World;
use crate::support::app::{App, slow_poll};

const PLAIN: &str = "create table kv (k text primary key, v text not null)";
const PARTS: &str = "create table kv (k text primary key, v text not null) partition by range (k); \
     create table a_k partition of kv for values from ('a') to ('l'); create table l_z partition of kv for values from ('l') to ('{')";

#[tokio::test]
async fn c29_a_changed_key_evicts_both_the_old_and_the_new() {
    for (tables, named, to) in [
        (PLAIN, "kv", "b"),
        (PARTS, "kv", "b"),
        (PARTS, "kv", "z"),
        (PARTS, "a_k", "b"),
    ] {
        let world = World::start().await;
        world
            .run(&format!("{tables}; insert into kv values ('a', 'v1'); select pgevict.watch('kv', '{{k}}', flush_ok => true)"))
            .await;
        let mut app = App::start(&world, "i", slow_poll).await;
        assert_eq!(app.get("a").await.as_deref(), Some("v1"));
        assert_eq!(app.get(to).await, None);
        app.deliveries().await;
        world.run(&format!("update {named} set k = '{to}'")).await;
        let mut keys = app.keys().await;
        keys.sort();
        assert_eq!(keys, ["a", to], "{named}");
        assert_eq!(app.get("a").await, None, "{named}");
        assert_eq!(app.get(to).await.as_deref(), Some("v1"), "{named}");
        let xids = "select count(distinct xid) from pgevict.event where keys && array['a', 'b', 'z']";
        assert_eq!(world.text(xids).await, "1", "one commit");
    }
}

#[tokio::test]
async fn c29_what_a_foreign_key_changes_is_evicted() {
    for tables in [PLAIN, PARTS] {
        let world = World::start().await;
        world
            .run(&format!(
                "create table owner (id int primary key); create table name (k text primary key); create table boss (id int primary key); \
                 insert into owner values (1), (2); insert into name values ('m'); insert into boss values (1); {tables}; \
                 alter table kv add owner int references owner on delete cascade, \
                   add boss int references boss on delete set null, add foreign key (k) references name on update cascade not valid; \
                 ",
            ).replace(" not valid", if tables == PLAIN { " not valid" } else { "" })
            .replace("insert into name values ('m')", "insert into name values ('m'), ('a'), ('b'), ('n')"))
            .await;
        world
            .run("insert into kv values ('a', 'v1', 1, null), ('b', 'v1', 1, null), ('n', 'v1', 1, null), ('m', 'v1', 2, 1); \
                  select pgevict.watch('kv', '{k}', flush_ok => true)")
            .await;
        let mut app = App::start(&world, "i", slow_poll).await;
        for (sql, gone, there) in [
            ("delete from owner where id = 1", &["a", "b", "n"][..], &[][..]),
            ("update name set k = 'c' where k = 'm'", &["m"], &["c"]),
            ("delete from boss", &[], &["c"]),
        ] {
            for k in gone.iter().chain(there) {
                app.get(k).await;
            }
            app.deliveries().await;
            world.run(sql).await;
            let mut keys = app.keys().await;
            keys.sort();
            let mut wanted = [gone, there].concat();
            wanted.sort_unstable();
            assert_eq!(keys, wanted, "{sql}");
            for k in gone {
                assert_eq!(app.get(k).await, None, "{k} after {sql}");
            }
            for k in there {
                assert_eq!(app.get(k).await.as_deref(), Some("v1"), "{k} after {sql}");
            }
        }
    }
}
