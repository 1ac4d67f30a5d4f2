//! Facts about an installation, and what in them will hurt: [`examine`] reads, [`judge`] judges.
//!
//! Reading changes nothing: each question is a read-only transaction of its own, with deadlines on both sides. The one
//! exception is the probe, a notification on a random channel, sent over `url` as an instance sends it. Whatever a role
//! may not look at, or an older schema does not have, is [`Look::NotChecked`], never taken for good.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::sleep;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{IsolationLevel, Transaction};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::store::failure::failure;
use crate::store::migrate::{self, SchemaVersion};
use crate::store::session::{Connector, Purpose, Session, bounded};
use crate::store::watch::{self, Watch};

mod facts;
mod finding;
mod judge;
mod path;
mod sql;

pub use facts::{
    Catalog, Holder, Later, Log, NotifyLock, Place, Publication, Queue, Rights, Subscribed, Transactions,
    Versions,
};
pub use finding::{Finding, Level, Report, Skipped};
pub use judge::judge;
pub use path::ListenPath;

/// Looks at the NOTIFY lock: one alone would miss a queue that moves.
const LOCK_SAMPLES: u32 = 5;
/// Pause between two of them.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The answer to one question.
#[derive(Debug, Clone, PartialEq)]
pub enum Look<T> {
    /// What there is.
    Seen(T),
    /// Why it could not be looked at.
    NotChecked(String),
}

impl<T> Default for Look<T> {
    fn default() -> Self {
        Self::NotChecked("not asked".to_owned())
    }
}

/// An address, and how it went to connect to it.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Reached {
    /// The setting that gives it: `url` or `listen_url`.
    pub setting: &'static str,
    /// The address without its secrets.
    pub shown: String,
    /// Why it could not be reached.
    pub error: Option<Error>,
}

/// All that was found out.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Facts {
    /// One address, or two.
    pub addresses: Vec<Reached>,
    /// Whether a notification sent over `url` arrives on `listen_url`.
    pub path: Look<ListenPath>,
    /// The server and the role.
    pub place: Look<Place>,
    /// What is installed; `None`: nothing.
    pub installed: Look<Option<Versions>>,
    /// What this binary installs.
    pub ours: Versions,
    /// What the role may do.
    pub rights: Look<Rights>,
    /// The server's queue of notifications.
    pub queue: Look<Queue>,
    /// Who waits to notify.
    pub notify_lock: Look<NotifyLock>,
    /// Transactions that have been writing for long.
    pub transactions: Look<Transactions>,
    /// The watches.
    pub watches: Look<Vec<Watch>>,
    /// What the catalog says of watched tables.
    pub catalog: Look<Catalog>,
    /// The log.
    pub log: Look<Log>,
}

impl Facts {
    /// Nothing of ours could be looked at.
    fn all_of_ours(&mut self, why: impl Fn() -> String) {
        self.rights = Look::NotChecked(why());
        self.watches = Look::NotChecked(why());
        self.log = Look::NotChecked(why());
    }
}

/// Looks at everything; `long` is how long a transaction may write without being named.
///
/// # Errors
/// Invalid when an address cannot be read; that of the connect when no address can be reached.
pub async fn examine(config: &Config, long: Duration) -> Result<Facts> {
    let connector = |address| Connector::new(address, config.session.clone(), Arc::from("cli"));
    let direct = connector(config.listen_address()?);
    let other = match (&config.url, &config.listen_url) {
        (Some(_), Some(_)) => Some(connector(config.address()?)),
        _ => None,
    };
    let mut facts = Facts {
        ours: Versions::from(&migrate::ours()),
        ..Facts::default()
    };
    let over = other
        .as_ref()
        .unwrap_or(&direct)
        .open_unjudged(Purpose::Doctor)
        .await;
    let listening = path::listen(&direct).await;
    let (over, over_error) = apart(over);
    let (mut listening, listen_error) = apart(listening);
    let reached = |setting, connector: &Connector, error| Reached {
        setting,
        shown: connector.shown(),
        error,
    };
    facts.addresses = match (&other, over_error, listen_error) {
        (_, Some(error), Some(_)) if !error.is_standby() => return Err(error),
        (Some(other), over_error, listen_error) => vec![
            reached("url", other, over_error),
            reached("listen_url", &direct, listen_error),
        ],
        (None, over_error, listen_error) => {
            let setting = match config.listen_url {
                Some(_) => "listen_url",
                None => "url",
            };
            vec![reached(setting, &direct, over_error.or(listen_error))]
        }
    };
    facts.path = match (&mut listening, &over) {
        _ if !config.wake.listen => Look::NotChecked("wake.listen is off: instances poll only".to_owned()),
        (Some(listening), Some(over)) => {
            path::probe(listening, &direct, over, config.wake.probe_timeout).await
        }
        _ => Look::NotChecked("one of the addresses cannot be reached".to_owned()),
    };
    // Where the fetches of instances go; over `url` only where that is all there is.
    let sessions = [listening.map(path::Listening::into_session), over];
    if let Some(mut session) = sessions.into_iter().flatten().next() {
        read(&mut session, &mut facts, long).await?;
    }
    Ok(facts)
}

fn apart<T>(result: Result<T>) -> (Option<T>, Option<Error>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error)),
    }
}

async fn read(session: &mut Session, facts: &mut Facts, long: Duration) -> Result<()> {
    facts.place = ask(session, "the server", sql::PLACE, &[]).await?;
    let seconds = long.as_secs_f64();
    facts.queue = ask(session, "the NOTIFY queue", sql::QUEUE, &[]).await?;
    facts.notify_lock = notify_lock(session).await?;
    facts.transactions = ask(
        session,
        "transactions",
        sql::TRANSACTIONS,
        &[(&seconds, Type::FLOAT8)],
    )
    .await?;
    facts.catalog = ask(session, "the catalog", sql::CATALOG, &[]).await?;
    let rights = match ask::<Option<Rights>>(session, "rights", sql::RIGHTS, &[]).await? {
        Look::Seen(Some(rights)) => rights,
        Look::Seen(None) => {
            facts.installed = Look::Seen(None);
            facts.all_of_ours(|| "schema pgevict is not installed".to_owned());
            return Ok(());
        }
        Look::NotChecked(why) => {
            facts.installed = Look::NotChecked(why.clone());
            facts.all_of_ours(|| why.clone());
            return Ok(());
        }
    };
    let lacks = |role: &str| format!("this role has not the rights of {role}");
    if rights.read {
        facts.installed = ask(session, "what is installed", sql::INSTALLED, &[]).await?;
        facts.log = ask(session, "the log", sql::LOG, &[]).await?;
    } else {
        facts.installed = Look::NotChecked(lacks("pgevict_reader"));
        facts.log = Look::NotChecked(lacks("pgevict_reader"));
    }
    facts.watches = if rights.watches {
        watches(session).await?
    } else {
        Look::NotChecked(lacks("pgevict_admin"))
    };
    facts.rights = Look::Seen(rights);
    Ok(())
}

/// One question: a statement that returns one JSON document.
async fn ask<T: DeserializeOwned>(
    session: &mut Session,
    doing: &str,
    sql: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Look<T>> {
    within(session, doing, async |transaction| {
        let row = transaction.query_typed_one(sql, parameters).await?;
        row.try_get::<_, Option<serde_json::Value>>(0)
    })
    .await
    .map(|look| match look {
        Look::Seen(document) => match serde_json::from_value(document.unwrap_or_default()) {
            Ok(seen) => Look::Seen(seen),
            Err(error) => Look::NotChecked(format!("{doing}: the answer cannot be read: {error}")),
        },
        Look::NotChecked(why) => Look::NotChecked(why),
    })
}

async fn notify_lock(session: &mut Session) -> Result<Look<NotifyLock>> {
    let mut sum = NotifyLock::default();
    for n in 0..LOCK_SAMPLES {
        if n > 0 {
            sleep(LOCK_PAUSE).await;
        }
        match ask(session, "the NOTIFY lock", sql::NOTIFY_LOCK, &[]).await? {
            Look::Seen(sample) => sum.add(sample),
            Look::NotChecked(why) => return Ok(Look::NotChecked(why)),
        }
    }
    Ok(Look::Seen(sum))
}

async fn watches(session: &mut Session) -> Result<Look<Vec<Watch>>> {
    let deadline = session.statement_timeout();
    let transaction = match begin(session, "the watches").await? {
        Ok(transaction) => transaction,
        Err(why) => return Ok(Look::NotChecked(why)),
    };
    let watches = match tokio::time::timeout(deadline, watch::watches_in(&transaction)).await {
        Ok(Ok(watches)) => Look::Seen(watches),
        Ok(Err(error)) if error.is_unreachable() => return Err(error),
        Ok(Err(error)) => Look::NotChecked(error.to_string()),
        Err(_) => return Err(Error::timeout("the watches: no answer in time")),
    };
    bounded(deadline, "the watches", transaction.rollback()).await?;
    Ok(watches)
}

/// Runs one question in a read-only transaction. What the server refuses is not checked; a lost session is an error.
async fn within<T>(
    session: &mut Session,
    doing: &str,
    question: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, tokio_postgres::Error>,
) -> Result<Look<T>> {
    let deadline = session.statement_timeout();
    let transaction = match begin(session, doing).await? {
        Ok(transaction) => transaction,
        Err(why) => return Ok(Look::NotChecked(why)),
    };
    let answer = tokio::time::timeout(deadline, question(&transaction)).await;
    let answer = match answer {
        Ok(Ok(answer)) => Look::Seen(answer),
        Ok(Err(error)) if error.as_db_error().is_none() && error.is_closed() => {
            return Err(failure(doing, error));
        }
        Ok(Err(error)) => Look::NotChecked(failure(doing, error).to_string()),
        Err(_) => return Err(Error::timeout(format!("{doing}: no answer in time"))),
    };
    bounded(deadline, doing, transaction.rollback()).await?;
    Ok(answer)
}

/// A read-only transaction with settings of its own; the inner error is the server's refusal.
async fn begin<'a>(session: &'a mut Session, doing: &str) -> Result<Result<Transaction<'a>, String>> {
    let deadline = session.statement_timeout();
    let begun = session
        .client_mut()
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .read_only(true)
        .start();
    let transaction = bounded(deadline, doing, begun).await?;
    let settings = format!(
        "set local search_path = pg_catalog, pg_temp; set local jit = off; set local lock_timeout = '200ms'; \
         set local statement_timeout = {}",
        // The server gives up first, so that its refusal is heard.
        (deadline.as_millis() * 3 / 4).max(1)
    );
    match bounded(deadline, doing, transaction.batch_execute(&settings)).await {
        Ok(()) => Ok(Ok(transaction)),
        Err(error) if error.is_unreachable() || error.is_timeout() => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}

impl From<&SchemaVersion> for Versions {
    fn from(version: &SchemaVersion) -> Self {
        Self {
            schema: version.schema,
            least_reader: version.least_reader,
            functions: version.functions,
            checksum: version.checksum.clone(),
            wake: String::new(),
        }
    }
}
