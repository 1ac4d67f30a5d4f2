//! A near cache that PostgreSQL keeps fresh. Needs the table `products` of the README, watched, at `DATABASE_URL`:
//! `cargo run --example library`.

use std::time::Duration;

use pgevict::{Config, Event, Pgevict, key, tag};
use tokio_postgres::{NoTls, Row};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let url = std::env::var("DATABASE_URL")?;
    let (mut db, connection) = url.parse::<tokio_postgres::Config>()?.connect(NoTls).await?;
    tokio::spawn(connection);

    let pgevict = Pgevict::builder(Config::from_url(&url)?)
        .on("products.*", |event| async move {
            println!("stale: {:?}", event.keys)
        })
        .start()
        .await?; // listening and caught up
    let names = pgevict.cache::<String>().capacity(100_000).build();

    let id = 42;
    let key = key!("product:{}", id);
    let read = "select name, category_id from products where id = $1";
    let name = names
        .get_or_load(&key, async |load| {
            let row: Option<Row> = db.query_opt(read, &[&id]).await?;
            Ok::<_, tokio_postgres::Error>(match row {
                Some(row) => load
                    .found(row.get(0))
                    .tag(tag!("category:{}", row.get::<_, i32>(1))),
                None => load.absent(), // kept as well
            })
        })
        .await?;
    println!("product {id} is {:?}", *name);

    pgevict
        .transaction(&mut db, async |tx| {
            tx.execute("update products set name = 'lamp' where id = $1", &[&id])
                .await?;
            // The watch tells the fleet; this tells our own cache, right after the commit.
            tx.emit(Event::updated("product", id).key(key.clone())).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        })
        .await?;
    assert!(names.get(&key).is_miss());

    pgevict.sync(Duration::from_secs(5)).await?; // all that was committed before has been applied here
    pgevict.shutdown().await;
    Ok(())
}
