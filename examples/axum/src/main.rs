//! A product service with a near cache: any number of them may run, each serves what the database says.

use std::error::Error;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use pgevict::cache::NearCache;
use pgevict::{Config, Event, Pgevict, key};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

type Problem = Box<dyn Error + Send + Sync>;

#[derive(Clone, Serialize)]
struct Product {
    name: String,
    price: i32,
}

#[derive(Deserialize)]
struct NewPrice {
    price: i32,
}

struct Shop {
    pgevict: Pgevict,
    products: NearCache<Product>,
    reader: Client,
    writer: Mutex<Client>,
}

async fn show(State(shop): State<Arc<Shop>>, Path(id): Path<i32>) -> Result<Response, Failure> {
    let read = "select name, price from products where id = $1";
    let key = key!("product:{}", id);
    let product = shop.products.get_or_load(&key, async |load| {
        let row = shop.reader.query_opt(read, &[&id]).await?;
        Ok::<_, tokio_postgres::Error>(match row {
            Some(row) => load.found(Product {
                name: row.get(0),
                price: row.get(1),
            }),
            None => load.absent(),
        })
    });
    Ok(match product.await?.into_value() {
        Some(product) => Json(product).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    })
}

async fn set_price(
    State(shop): State<Arc<Shop>>,
    Path(id): Path<i32>,
    Json(new): Json<NewPrice>,
) -> Result<StatusCode, Failure> {
    let mut db = shop.writer.lock().await;
    let changed = shop.pgevict.transaction(&mut db, async |tx| {
        let update = "update products set price = $2 where id = $1";
        let changed = tx.execute(update, &[&id, &new.price]).await?;
        if changed > 0 {
            // Part of this transaction: it reaches every instance if, and only if, the price changed.
            tx.emit(Event::updated("product", id).key(key!("product:{}", id)))
                .await?;
        }
        Ok::<_, Problem>(changed)
    });
    Ok(match changed.await? {
        0 => StatusCode::NOT_FOUND,
        _ => StatusCode::NO_CONTENT,
    })
}

struct Failure(Problem);

impl<E: Into<Problem>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        eprintln!("{}", self.0);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

async fn connect(url: &str) -> Result<Client, Problem> {
    let config: tokio_postgres::Config = url.parse()?;
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::main]
async fn main() -> Result<(), Problem> {
    let url = std::env::var("DATABASE_URL")?;
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let pgevict = Pgevict::builder(Config::from_url(&url)?).start().await?;
    let shop = Arc::new(Shop {
        products: pgevict.cache().build(),
        reader: connect(&url).await?,
        writer: Mutex::new(connect(&url).await?),
        pgevict: pgevict.clone(),
    });
    let app = Router::new()
        .route("/products/{id}", get(show).put(set_price))
        .with_state(shop);
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    pgevict.shutdown().await;
    Ok(())
}
