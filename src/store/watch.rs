//! Watching tables: every change becomes an event, whoever writes it.
//!
//! The rules are those of the SQL function `pgevict.watch`. What it cannot do itself is here: a lock that was not to be
//! had ends its transaction, so trying again takes a new one.

use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, IsolationLevel, Row};

use crate::error::{Error, Result};
use crate::store::failure::{failure, is_lock_timeout};

mod retry;
mod samples;

pub(super) use retry::Retry;
pub use samples::{Sample, Samples, samples};

/// How long to try for the lock on a table, unless told otherwise: the default of `session.lock_limit`.
pub const LOCK_LIMIT: Duration = Duration::from_secs(60);

/// What to watch, and what its rows make stale.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WatchDefinition {
    /// The table as in SQL, found along the `search_path` unless it names a schema: `products`, `shop."Order"`.
    pub table: String,
    /// Template of the key of one row, such as `product:{id}`.
    pub key: Option<String>,
    /// Templates of tags, such as `category:{category_id}`.
    pub tags: Vec<String>,
    /// Templates of prefixes, such as `tenant:{tenant_id}:`.
    pub prefixes: Vec<String>,
    /// An UPDATE counts only if one of these columns or of those in templates changed; `None`: any column.
    pub columns: Option<Vec<String>>,
    /// One event for each row, with its primary key as [`entity_id`](crate::Event::entity_id) and old and new values as
    /// [`changes`](crate::Event::changes); false: one event for each statement and 1,000 rows, without them.
    #[serde(default)]
    pub changes: bool,
    /// A statement that changes more rows (0 to 1,000,000) makes one event with the literal heads of all templates.
    pub escalate_above: u32,
    /// What to do with a template that begins with a placeholder.
    pub headless: Headless,
    /// What to do with rows that logical replication brings.
    #[serde(default)]
    pub replicated: Replicated,
}

/// What logical replication applies, and what is written under `session_replication_role = replica`, fires no ordinary
/// trigger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replicated {
    /// Such a change is not told.
    #[default]
    Ignore,
    /// It is told: one event for each row that is applied.
    Tell,
}

/// A template that begins with a placeholder has no literal head, so that a TRUNCATE or a large change can only empty
/// every cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Headless {
    /// Such a template is an error.
    Refuse,
    /// Every cache is emptied then.
    Flush,
}

/// What [`watch`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// The table was not watched before.
    Installed,
    /// It was watched otherwise, or its watch was not whole.
    Replaced,
    /// It is watched just so: nothing was locked and nothing written.
    Unchanged,
}

/// State of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchState {
    /// Triggers and columns are as they were installed.
    Ok,
    /// They are not; every change drops the literal heads of all templates. Watch the table again.
    Drifted,
    /// The table or its triggers are gone: nothing tells of changes.
    Missing,
}

/// A watch as the database has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Watch {
    /// Number (oid) of the table.
    pub target: u32,
    /// Schema of the table.
    pub schema: String,
    /// Name of the table.
    pub table: String,
    /// What is watched.
    pub definition: WatchDefinition,
    /// Whether the watch works.
    pub state: WatchState,
    /// Why it does not, and what to do; both `None` when it does.
    pub reason: Option<String>,
    /// See `reason`.
    pub cure: Option<String>,
    /// When the warden first saw it so; `None` when it has not looked.
    pub since: Option<SystemTime>,
    /// Partitions that were detached and still exist: what is written there is told by nobody.
    pub detached: Vec<String>,
}

impl WatchDefinition {
    /// A watch of this table that makes nothing stale yet.
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            key: None,
            tags: Vec::new(),
            prefixes: Vec::new(),
            columns: None,
            changes: false,
            escalate_above: 1_000,
            headless: Headless::Refuse,
            replicated: Replicated::Ignore,
        }
    }

    /// Sets the template of keys.
    #[must_use]
    pub fn key(mut self, template: impl Into<String>) -> Self {
        self.key = Some(template.into());
        self
    }

    /// Adds a template of tags.
    #[must_use]
    pub fn tag(mut self, template: impl Into<String>) -> Self {
        self.tags.push(template.into());
        self
    }

    /// Adds a template of prefixes.
    #[must_use]
    pub fn prefix(mut self, template: impl Into<String>) -> Self {
        self.prefixes.push(template.into());
        self
    }

    /// Asks for one event for each row, with its old and new values.
    #[must_use]
    pub fn with_changes(mut self) -> Self {
        self.changes = true;
        self
    }
}

impl Watch {
    /// Schema and table, for people.
    pub fn name(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }
}

/// Watches a table; see `pgevict.watch` for every rule and refusal. May run at each start: the same watch again locks
/// and writes nothing.
///
/// Waits for the lock on the table in tries of 100 ms, apart from each other, for up to `lock_limit` (see
/// [`LOCK_LIMIT`]): whoever writes to the table queues up behind a waiting try.
///
/// # Errors
/// Invalid: the table, a column or a template is wrong; the message names it and the cure. Refused: missing rights.
/// Timeout: the lock was not to be had; the message names who held it.
pub async fn watch(
    client: &mut Client,
    definition: &WatchDefinition,
    lock_limit: Duration,
) -> Result<Watched> {
    let doing = format!("watching {}", definition.table);
    let target = resolve(client, &definition.table)
        .await?
        .ok_or_else(|| no_table(&definition.table))?;
    let escalate_above = i32::try_from(definition.escalate_above).unwrap_or(i32::MAX);
    let flush_ok = definition.headless == Headless::Flush;
    let fire_on_replica = definition.replicated == Replicated::Tell;
    let row = with_lock(
        client,
        &doing,
        target,
        lock_limit,
        WATCH,
        &[
            (&target, Type::OID),
            (&definition.key, Type::TEXT),
            (&definition.tags, Type::TEXT_ARRAY),
            (&definition.prefixes, Type::TEXT_ARRAY),
            (&definition.columns, Type::TEXT_ARRAY),
            (&definition.changes, Type::BOOL),
            (&escalate_above, Type::INT4),
            (&flush_ok, Type::BOOL),
            (&fire_on_replica, Type::BOOL),
        ],
    )
    .await?;
    match row.get(0) {
        "installed" => Ok(Watched::Installed),
        "replaced" => Ok(Watched::Replaced),
        _ => Ok(Watched::Unchanged),
    }
}

/// Takes the watch off a table, also one that is gone. False: it was not watched.
///
/// # Errors
/// As [`watch`]; a table that neither exists nor was watched is invalid.
pub async fn unwatch(client: &mut Client, table: &str, lock_limit: Duration) -> Result<bool> {
    let target = match resolve(client, table).await? {
        Some(target) => target,
        None => recorded(client, table).await?.ok_or_else(|| no_table(table))?,
    };
    unwatch_target(client, target, table, lock_limit).await
}

pub(super) async fn unwatch_target(
    client: &mut Client,
    target: u32,
    name: &str,
    lock_limit: Duration,
) -> Result<bool> {
    let doing = format!("unwatching {name}");
    let row = with_lock(
        client,
        &doing,
        target,
        lock_limit,
        UNWATCH,
        &[(&target, Type::OID)],
    )
    .await?;
    Ok(row.get(0))
}

/// All watches, by schema and table.
///
/// # Errors
/// Refused without the role `pgevict_admin`.
pub async fn watches(client: &Client) -> Result<Vec<Watch>> {
    watches_in(client).await
}

/// As [`watches`], also within a transaction.
pub(super) async fn watches_in(client: &impl GenericClient) -> Result<Vec<Watch>> {
    let rows = client
        .query_typed(WATCHES, &[])
        .await
        .map_err(|error| failure("listing the watches", error))?;
    rows.iter().map(read_watch).collect()
}

const WATCH: &str = "select pgevict.watch($1::oid::regclass, $2, $3, $4, $5, $6, escalate_above => $7, flush_ok => $8, \
     fire_on_replica => $9)";

const UNWATCH: &str = "select pgevict.unwatch($1::oid::regclass)";

/// What an older installation does not say is null.
const WATCHES: &str = "select target, schema_name, table_name, definition, state, \
     pg_catalog.format('%I.%I', schema_name, table_name), said ->> 'reason', said ->> 'cure', \
     (said ->> 'since')::timestamptz, \
     array(select pg_catalog.jsonb_array_elements_text(said -> 'detached')) \
     from pgevict.watch_status() s cross join lateral pg_catalog.to_jsonb(s) said";

const RESOLVE: &str = "select pg_catalog.to_regclass($1)::oid";

const RECORDED: &str =
    "select target from pgevict.watch where $1 in (table_name, schema_name || '.' || table_name)";

/// READ COMMITTED and bounded in every wait: while a try holds the lock, also at its commit, writers wait.
const BOUNDS: &str = "set local lock_timeout = '200ms'; set local idle_in_transaction_session_timeout = '1s'; \
     set local statement_timeout = '60s'; set local jit = off";

const HOLDERS: &str = "select 'process ' || a.pid || ' (' || coalesce(nullif(a.application_name, ''), a.usename, '?') \
     || ', ' || coalesce(a.state, '?') || coalesce(' for ' || (extract(epoch from clock_timestamp() - a.xact_start))::int8 \
     || ' s', '') || ')' \
     from pg_catalog.pg_locks l join pg_catalog.pg_stat_activity a on a.pid = l.pid \
     where l.relation = $1 and l.granted and l.pid <> pg_backend_pid() \
     and l.database = (select oid from pg_catalog.pg_database where datname = current_database()) \
     order by a.xact_start limit 3";

async fn with_lock(
    client: &mut Client,
    doing: &str,
    target: u32,
    lock_limit: Duration,
    statement: &str,
    parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)],
) -> Result<Row> {
    let started = Instant::now();
    let mut retry = Retry::new(lock_limit);
    loop {
        match attempt(client, statement, parameters).await {
            Ok(row) => return Ok(row),
            Err(error) if is_lock_timeout(&error) => {
                if !retry.pause().await {
                    let holders = holders(client, target).await;
                    return Err(Error::timeout(format!(
                        "{doing}: the table stayed locked for {:.1} s, in {} tries of 100 ms{holders}: end what holds it, \
                         or try at a quieter time",
                        started.elapsed().as_secs_f64(),
                        retry.tries(),
                    ))
                    .because(error));
                }
            }
            Err(error) => return Err(failure(doing, error)),
        }
    }
}

async fn attempt(
    client: &mut Client,
    statement: &str,
    parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)],
) -> Result<Row, tokio_postgres::Error> {
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .read_only(false)
        .start()
        .await?;
    transaction.batch_execute(BOUNDS).await?;
    let row = transaction.query_typed_one(statement, parameters).await?;
    transaction.commit().await?;
    Ok(row)
}

async fn holders(client: &Client, target: u32) -> String {
    let Ok(rows) = client.query_typed(HOLDERS, &[(&target, Type::OID)]).await else {
        return String::new();
    };
    let names: Vec<String> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(", by {}", names.join(", "))
    }
}

async fn resolve(client: &Client, table: &str) -> Result<Option<u32>> {
    client
        .query_typed_one(RESOLVE, &[(&table, Type::TEXT)])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(|error| failure(&format!("table {table:?}"), error))
}

async fn recorded(client: &Client, table: &str) -> Result<Option<u32>> {
    client
        .query_typed(RECORDED, &[(&table, Type::TEXT)])
        .await
        .map(|rows| rows.first().map(|row| row.get(0)))
        .map_err(|error| failure(&format!("table {table:?}"), error))
}

fn no_table(table: &str) -> Error {
    Error::invalid(format!(
        "table {table:?} does not exist: check the name, and name its schema if it is not on the search_path"
    ))
}

fn read_watch(row: &Row) -> Result<Watch> {
    #[derive(Deserialize)]
    struct Stored {
        key: Option<String>,
        tags: Vec<String>,
        prefixes: Vec<String>,
        columns: Option<Vec<String>>,
        #[serde(default)]
        changes: bool,
        escalate_above: u32,
        flush_ok: bool,
        #[serde(default)]
        fire_on_replica: bool,
    }
    let column = |error| failure("listing the watches", error);
    let schema: String = row.try_get(1).map_err(column)?;
    let table: String = row.try_get(2).map_err(column)?;
    let definition: serde_json::Value = row.try_get(3).map_err(column)?;
    let stored: Stored = serde_json::from_value(definition).map_err(|error| {
        Error::database(format!(
            "the watch of {schema}.{table} cannot be read: watch it again"
        ))
        .because(error)
    })?;
    let state: &str = row.try_get(4).map_err(column)?;
    Ok(Watch {
        target: row.try_get(0).map_err(column)?,
        definition: WatchDefinition {
            table: row.try_get(5).map_err(column)?,
            key: stored.key,
            tags: stored.tags,
            prefixes: stored.prefixes,
            columns: stored.columns,
            changes: stored.changes,
            escalate_above: stored.escalate_above,
            headless: if stored.flush_ok {
                Headless::Flush
            } else {
                Headless::Refuse
            },
            replicated: if stored.fire_on_replica {
                Replicated::Tell
            } else {
                Replicated::Ignore
            },
        },
        schema,
        table,
        state: match state {
            "ok" => WatchState::Ok,
            "missing" => WatchState::Missing,
            _ => WatchState::Drifted,
        },
        reason: row.try_get(6).map_err(column)?,
        cure: row.try_get(7).map_err(column)?,
        since: row.try_get(8).map_err(column)?,
        detached: row.try_get(9).map_err(column)?,
    })
}
