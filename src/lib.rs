//! PostgreSQL tells every cache what went stale.
//!
//! A writer's transaction carries an *event*: which keys, tags and prefixes it makes stale. A `NOTIFY` without
//! content says "look now". The *feed* of each instance fetches what has become visible since its *cursor*, drops
//! it from the near caches, and then publishes the new cursor. Polling carries the events when wakes do not.
//!
//! # Guarantees
//!
//! - **G1, nothing is lost.** Every event committed while an instance holds cached data is applied by it. Where that
//!   is impossible (crash, restore, events removed) the caches are emptied and handlers and subscriptions are told by
//!   a [`Reset`].
//! - **G2, no stale fill.** A value read before a change is never served after the change was applied. Holds for
//!   [`cache::NearCache`] and [attached caches](cache::Attached), for reads on the primary that begin after the
//!   [fill token](cache::FillToken) was taken ([`get_or_load`](cache::NearCache::get_or_load) takes it before it calls
//!   the loader), and for others that are [marked](cache::Mark).
//! - **G3, bounded staleness.** A hit is fresh only if the instance proved within `max_staleness` that it had seen
//!   everything; else [`WhenStale`](config::WhenStale) decides.
//!
//! One primary at a time is assumed. The proofs are in `ARCHITECTURE.md`.
//!
//! # Example
//!
//! ```no_run
//! use pgevict::{Config, Pgevict, key, tag};
//!
//! # async fn read_product(_: i64) -> Result<Option<String>, std::io::Error> { Ok(None) }
//! # async fn run() -> Result<(), pgevict::Error> {
//! let pgevict = Pgevict::builder(Config::from_url("postgresql://app@db/shop")?)
//!     .on("products.*", |event| async move { println!("{:?}", event.keys) })
//!     .start() // returns when listening and caught up
//!     .await?;
//! let products = pgevict.cache::<String>().build();
//! let answer = products
//!     .get_or_load(&key!("product:{}", 42), async |load| {
//!         Ok::<_, std::io::Error>(match read_product(42).await? {
//!             Some(product) => load.found(product).tag(tag!("category:{}", 7)),
//!             None => load.absent(),
//!         })
//!     })
//!     .await?;
//! println!("{:?}", *answer);
//! pgevict.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Modules, in reading order
//!
//! Each uses only those before it; private ones are named for whoever reads the source.
//!
//! | module | what it is |
//! |---|---|
//! | [`error`] | the one error, opaque, with predicates |
//! | [`snapshot`] | snapshots and cursors: which events are new |
//! | [`event`] | keys, tags, prefixes, events |
//! | [`config`] | settings: one tree, every problem at once |
//! | `status` | what an instance knows about its own health: [`Status`] |
//! | [`sink`] | what a feed delivers to; handlers and subscriptions |
//! | [`cache`] | the near cache and its rule; other caches under the same rule |
//! | [`store`] | all SQL: sessions, the fetch, migrations, watches |
//! | `wake` | the LISTEN session, proved by probes |
//! | `emit` | writing events: in the caller's transaction, [`EmittingTransaction`], or enqueued, [`Enqueued`] |
//! | `feed` | wake or poll, fetch, judge, apply, publish |
//! | `lab` | throwaway servers and a failing relay (feature `lab`) |
//! | `instance` | the front door: [`Pgevict`], [`Builder`] |
//!
//! # Features
//!
//! None by default. `tls`: encrypted sessions, by rustls with ring. `cli`: what the `pgevict` command needs, `tls`
//! included. `lab`: what demo, tests and benches run on. `moka`: [`attach`](Pgevict::attach) takes a
//! `moka::sync::Cache`.
#![warn(missing_docs)]

pub mod cache;
pub mod config;
mod emit;
pub mod error;
pub mod event;
mod feed;
mod instance;
#[cfg(feature = "lab")]
pub mod lab;
pub mod sink;
pub mod snapshot;
mod status;
pub mod store;
mod wake;

pub use config::Config;
pub use emit::{Emitted, EmittingTransaction, Enqueued};
pub use error::{Error, Result};
pub use event::{Event, Key, LoggedEvent, Prefix, Tag};
pub use instance::{Builder, Pgevict};
pub use sink::{Delivery, Reset, Subscription};
pub use status::{Cause, Listening, Status};
