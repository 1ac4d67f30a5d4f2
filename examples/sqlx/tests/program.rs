//! The program, as the README starts it: it reads what it wrote through sqlx.

use std::process::Command;

use pgevict::lab::Cluster;
use pgevict::store::migrate::migrate;

#[tokio::test]
async fn a_price_that_was_raised_through_sqlx_is_read_anew() {
    let cluster = Cluster::start().await.unwrap();
    let mut db = cluster.connect().await.unwrap();
    migrate(&mut db).await.unwrap();
    db.batch_execute(
        "create table products (id int primary key, price int not null); insert into products values (42, 100)",
    )
    .await
    .unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_example-sqlx"))
        .env("DATABASE_URL", cluster.url())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(
        String::from_utf8(ran.stdout).unwrap(),
        "costs Some(100)\ncosts Some(150)\n"
    );
    let events = db.query("select keys from pgevict.event", &[]).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].get::<_, Vec<String>>(0), ["product:42"]);
}
