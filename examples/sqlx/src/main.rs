//! An application that talks to PostgreSQL through sqlx: the change and its event are one transaction of sqlx's, the
//! cache is pgevict's.

use std::error::Error;
use std::time::Duration;

use pgevict::cache::NearCache;
use pgevict::{Config, Key, Pgevict, key};
use sqlx::PgPool;

const ID: i32 = 42;

async fn price(prices: &NearCache<i32>, pool: &PgPool, key: &Key) -> pgevict::Result<Option<i32>> {
    let read = "select price from products where id = $1";
    let answer = prices.get_or_load(key, async |load| {
        let found: Option<i32> = sqlx::query_scalar(read).bind(ID).fetch_optional(pool).await?;
        Ok::<_, sqlx::Error>(match found {
            Some(price) => load.found(price),
            None => load.absent(),
        })
    });
    Ok(answer.await?.into_value())
}

/// The writer needs nothing of pgevict's but the SQL function, and the right to call it.
async fn raise_price(pool: &PgPool, key: &Key) -> Result<(), sqlx::Error> {
    let mut transaction = pool.begin().await?;
    sqlx::query("update products set price = price + 50 where id = $1")
        .bind(ID)
        .execute(&mut *transaction)
        .await?;
    sqlx::query("select pgevict.emit(keys => array[$1::text])")
        .bind(key.as_str())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = PgPool::connect(&url).await?;
    let pgevict = Pgevict::builder(Config::from_url(&url)?).start().await?;
    let prices = pgevict.cache().build();
    let key = key!("product:{}", ID);

    println!("costs {:?}", price(&prices, &pool, &key).await?);
    raise_price(&pool, &key).await?;
    // Within milliseconds by itself; whoever must read what he wrote waits for it.
    pgevict.sync(Duration::from_secs(5)).await?;
    println!("costs {:?}", price(&prices, &pool, &key).await?);

    pgevict.shutdown().await;
    Ok(())
}
