//! The application of the demo: three instances with a cache of products, writers, and readers that check.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pgevict::cache::{Freshness, Lookup, NearCache};
use pgevict::snapshot::Xid;
use pgevict::{Delivery, Key, Listening, Pgevict, Subscription, key};
use tokio::sync::Mutex;
use tokio::time::{interval, sleep, timeout};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::stage::{INSTANCES, PRODUCTS, Stage, connect, name};
use super::truth::Truth;

/// Connections that write; each owns every WRITERS-th product, so that versions of one product are in order.
const WRITERS: usize = 4;
/// Reads of one instance every millisecond.
const READS_PER_MS: usize = 3;
/// Patience of the application with its own statements.
const PATIENCE: Duration = Duration::from_secs(1);

/// A row of the table.
#[derive(Debug, Clone)]
struct Product {
    version: i64,
}

/// One app server.
pub(super) struct Server {
    pub(super) pgevict: Pgevict,
    products: NearCache<Product>,
    db: Database,
}

/// The whole application.
pub(super) struct Shop {
    pub(super) servers: Vec<Server>,
    pub(super) truth: Arc<Truth>,
    url: String,
    writing: CancellationToken,
    writers: TaskTracker,
}

impl Shop {
    /// Starts the instances and follows them.
    pub(super) async fn open(
        stage: &Stage,
        truth: Arc<Truth>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Self> {
        let mut servers = Vec::new();
        for instance in 0..INSTANCES {
            let starting = Pgevict::builder(stage.config(instance)?).start();
            let pgevict = starting
                .await
                .with_context(|| format!("starting {}", name(instance)))?;
            tasks.spawn(follow(instance, pgevict.subscribe(), truth.clone(), stop.clone()));
            servers.push(Server {
                products: pgevict.cache::<Product>().build(),
                pgevict,
                db: Database::new(stage.url_of(instance)),
            });
        }
        Ok(Self {
            servers,
            truth,
            url: stage.url().to_owned(),
            writing: stop.child_token(),
            writers: TaskTracker::new(),
        })
    }

    /// True when every instance listens, is not degraded and is fresh.
    pub(super) fn is_ready(&self) -> bool {
        self.servers.iter().all(|server| {
            let status = server.pgevict.status();
            status.listening == Listening::Proved
                && status.degraded.is_none()
                && status
                    .staleness
                    .is_some_and(|age| age < super::stage::MAX_STALENESS)
        })
    }

    /// Resolves once every instance is ready.
    pub(super) async fn ready(&self) {
        while !self.is_ready() {
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) fn spawn_writers(self: &Arc<Self>, rate: u32, tasks: &TaskTracker, stop: &CancellationToken) {
        for writer in 0..WRITERS {
            let (truth, db) = (self.truth.clone(), Database::new(&self.url));
            let writing = self.writing.clone();
            let pause = Duration::from_secs_f64(WRITERS as f64 / f64::from(rate));
            let stop = stop.clone();
            self.writers.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = write(writer, pause, db, truth, writing) => {}
                }
            });
        }
        let writers = self.writers.clone();
        writers.close();
        tasks.spawn(async move { writers.wait().await });
    }

    /// Lets every writer end its transaction.
    pub(super) async fn stop_writers(&self) {
        self.writing.cancel();
        drop(timeout(PATIENCE * 5, self.writers.wait()).await);
    }

    pub(super) fn spawn_readers(self: &Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken) {
        for instance in 0..INSTANCES {
            let (shop, stop) = (self.clone(), stop.clone());
            tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = shop.servers[instance].read(&shop.truth) => {}
                }
            });
        }
    }

    /// Stops the instances.
    pub(super) async fn close(&self) {
        for server in &self.servers {
            server.pgevict.shutdown().await;
        }
    }
}

impl Server {
    async fn read(&self, truth: &Truth) {
        let mut tick = interval(Duration::from_millis(1));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            for _ in 0..READS_PER_MS {
                let id = fastrand::i32(1..=PRODUCTS);
                let key = key!("product:{}", id);
                let asked = Instant::now();
                match self.products.get(&key) {
                    Lookup::Hit(product, Freshness::Fresh) => truth.hit(id, product.version, asked),
                    _ => self.load(id, &key).await,
                }
            }
        }
    }

    /// A miss: the application asks the database. While it is away the read fails, which is not stale.
    async fn load(&self, id: i32, key: &Key) {
        let loading = self.products.get_or_load(key, |load| async move {
            let version = self.db.version(id).await?;
            Ok::<_, anyhow::Error>(load.found(Product { version }))
        });
        if let Err(error) = loading.await {
            tracing::debug!(%error, "load failed");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Reports what an instance applies.
async fn follow(instance: usize, mut events: Subscription, truth: Arc<Truth>, stop: CancellationToken) {
    loop {
        let delivery = tokio::select! {
            delivery = events.next() => delivery,
            () = stop.cancelled() => return,
        };
        match delivery {
            Some(Delivery::Event(event)) => truth.applied(instance, event.xid),
            Some(Delivery::Reset(_)) => truth.reset(instance),
            None => return,
        }
    }
}

/// Writes until told to stop; a write whose outcome is unknown is looked up before the next one.
async fn write(writer: usize, pause: Duration, db: Database, truth: Arc<Truth>, writing: CancellationToken) {
    let mut tick = interval(pause);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut unknown: Option<(Xid, i32, i64)> = None;
    while !writing.is_cancelled() {
        tick.tick().await;
        if let Some((xid, id, version)) = unknown {
            match db.version(id).await {
                Ok(current) if current == version => truth.committed(xid, id, version - 1),
                Ok(_) => truth.rolled_back(xid),
                Err(_) => {
                    sleep(Duration::from_millis(20)).await;
                    continue;
                }
            }
            unknown = None;
        }
        let own = PRODUCTS / WRITERS as i32;
        let id = fastrand::i32(0..own) * WRITERS as i32 + writer as i32 + 1;
        match db.write(id, &truth).await {
            Ok(()) => {}
            Err(Failed::Before) => sleep(Duration::from_millis(20)).await,
            Err(Failed::Unknown(xid, version)) => unknown = Some((xid, id, version)),
        }
    }
    if let Some((xid, id, version)) = unknown {
        for _ in 0..100 {
            match db.version(id).await {
                Ok(current) if current == version => return truth.committed(xid, id, version - 1),
                Ok(_) => return truth.rolled_back(xid),
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

/// How a write failed.
enum Failed {
    /// Before its COMMIT was sent: it did not happen.
    Before,
    /// After: it may have. The transaction, and the version that it wrote.
    Unknown(Xid, i64),
}

/// The application's own connection, opened again when it is lost.
struct Database {
    url: String,
    client: Mutex<Option<Client>>,
}

impl Database {
    fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            client: Mutex::new(None),
        }
    }

    /// The version of a product.
    async fn version(&self, id: i32) -> Result<i64> {
        let mut client = self.client.lock().await;
        let connected = client.take();
        let open = connected.filter(|client| !client.is_closed());
        let db = match open {
            Some(db) => db,
            None => connect(&self.url).await?,
        };
        let select = "select version from pgevict_demo.products where id = $1";
        let row = timeout(PATIENCE, db.query_typed_one(select, &[(&id, Type::INT4)])).await??;
        *client = Some(db);
        Ok(row.get(0))
    }

    /// Gives a product its next version.
    async fn write(&self, id: i32, truth: &Truth) -> Result<(), Failed> {
        let mut slot = self.client.lock().await;
        let open = slot.take().filter(|client| !client.is_closed());
        let mut db = match open {
            Some(db) => db,
            None => connect(&self.url).await.map_err(|_| Failed::Before)?,
        };
        let update = "update pgevict_demo.products set version = version + 1 where id = $1
                      returning pg_current_xact_id(), version";
        let transaction = db.transaction().await.map_err(|_| Failed::Before)?;
        let updated = timeout(
            PATIENCE,
            transaction.query_typed_one(update, &[(&id, Type::INT4)]),
        )
        .await;
        let Ok(Ok(row)) = updated else {
            return Err(Failed::Before);
        };
        let (xid, version): (Xid, i64) = (row.get(0), row.get(1));
        truth.sending(xid);
        match timeout(PATIENCE, transaction.commit()).await {
            Ok(Ok(())) => truth.committed(xid, id, version - 1),
            _ => return Err(Failed::Unknown(xid, version)),
        }
        *slot = Some(db);
        Ok(())
    }
}
