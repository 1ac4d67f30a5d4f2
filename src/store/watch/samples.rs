//! What a definition would make stale, shown on rows that are there: a wrong template is seen before it is installed.

use std::time::Duration;

use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, IsolationLevel, Row, Transaction};

use super::{Headless, WatchDefinition, no_table, resolve};
use crate::error::{Error, Result};
use crate::store::failure::failure;
use crate::store::session::bounded;

/// What one row makes stale when it changes; each text cut after 200 characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// The key, if the definition has one.
    pub key: Option<String>,
    /// The tags, in the order of the templates.
    pub tags: Vec<String>,
    /// The prefixes, in the order of the templates.
    pub prefixes: Vec<String>,
}

/// What [`samples`] found.
#[derive(Debug)]
pub enum Samples {
    /// Up to five rows, whichever come first; none when the table is empty.
    Of(Vec<Sample>),
    /// The rows cannot be read: no right to SELECT, a lock, the deadline. The watch may be installed all the same.
    Unread(Error),
}

/// Deadline of each step, here and at the server.
const DEADLINE: Duration = Duration::from_secs(2);

/// The settings that a watch's trigger function prints under, and bounds: a lock that somebody holds is not waited for.
const SETTINGS: &str = "set local search_path = pg_catalog, pg_temp; set local statement_timeout = '2s'; \
     set local lock_timeout = '200ms'; set local idle_in_transaction_session_timeout = '5s'; set local jit = off; \
     set local timezone = 'UTC'; set local datestyle = 'ISO, YMD'; set local intervalstyle = 'iso_8601'; \
     set local extra_float_digits = 1; set local bytea_output = 'hex'; set local lc_monetary = 'C'";

/// The query over the rows, in the expressions of the watch's trigger function. Neither `changes` nor `fire_on_replica`
/// alters what is stale.
const QUERY: &str = "
select format('select %s, array[%s]::text[], array[%s]::text[] from %I.%I r limit 5',
         coalesce(max(list) filter (where kind = 'key'), 'null'),
         max(list) filter (where kind = 'tags'), max(list) filter (where kind = 'prefixes'),
         definition ->> 'schema', definition ->> 'table')
  from (select pgevict.watch_definition(target => $1::oid::regclass, key => $2, tags => $3, prefixes => $4, columns => $5,
          changes => false, escalate_above => $6, fire_on_replica => false, flush_ok => $7) as definition) d,
       unnest(array['key', 'tags', 'prefixes']) kind,
       lateral (select string_agg(format('left(%s, 200)', t.expression), ', ' order by t.n) as list
          from unnest(pgevict.watch_texts(definition, $1, kind, 'r')) with ordinality t (expression, n)) texts
 group by definition";

/// Renders what a change of rows that are there would make stale, by the expressions that the watch itself would use.
/// Reads only, and takes no lock that a writer would wait for.
///
/// # Errors
/// Invalid: the table, a column or a template is wrong, as [`watch`](super::watch) would say.
pub async fn samples(client: &mut Client, definition: &WatchDefinition) -> Result<Samples> {
    let doing = format!("watching {}", definition.table);
    let target = resolve(client, &definition.table)
        .await?
        .ok_or_else(|| no_table(&definition.table))?;
    let begun = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .read_only(true)
        .start();
    let transaction = bounded(DEADLINE, &doing, begun).await?;
    bounded(DEADLINE, &doing, transaction.batch_execute(SETTINGS)).await?;
    let query = query(&transaction, &doing, target, definition).await?;
    let rows = bounded(
        DEADLINE,
        "reading rows for samples",
        transaction.query_typed(&query, &[]),
    )
    .await;
    bounded(DEADLINE, &doing, transaction.rollback()).await?;
    Ok(match rows.and_then(|rows| rows.iter().map(read).collect()) {
        Ok(samples) => Samples::Of(samples),
        Err(error) => Samples::Unread(error),
    })
}

async fn query(
    transaction: &Transaction<'_>,
    doing: &str,
    target: u32,
    definition: &WatchDefinition,
) -> Result<String> {
    let escalate_above = i32::try_from(definition.escalate_above).unwrap_or(i32::MAX);
    let flush_ok = definition.headless == Headless::Flush;
    let values = [
        (&target as _, Type::OID),
        (&definition.key as _, Type::TEXT),
        (&definition.tags as _, Type::TEXT_ARRAY),
        (&definition.prefixes as _, Type::TEXT_ARRAY),
        (&definition.columns as _, Type::TEXT_ARRAY),
        (&escalate_above as _, Type::INT4),
        (&flush_ok as _, Type::BOOL),
    ];
    let asked = bounded(DEADLINE, doing, transaction.query_typed_one(QUERY, &values)).await?;
    asked.try_get(0).map_err(|error| failure(doing, error))
}

fn read(row: &Row) -> Result<Sample> {
    let column = |error| failure("reading rows for samples", error);
    Ok(Sample {
        key: row.try_get(0).map_err(column)?,
        tags: row.try_get(1).map_err(column)?,
        prefixes: row.try_get(2).map_err(column)?,
    })
}
