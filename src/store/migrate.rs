//! Installing, upgrading and removing the schema `pgevict`.
//!
//! One transaction does it all, under an advisory lock, so any number of processes may call [`migrate`] at once. When
//! nothing is new, one SELECT says so: no lock, no DDL. Migrations make tables and are never changed once released;
//! functions are applied anew whenever their text differs from what is installed, but never over newer ones.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, IsolationLevel};

use crate::error::{Error, Result};
use crate::store::failure::failure;
use crate::store::session::must_be_fit;

mod restored;
mod script;
mod uninstall;

pub use uninstall::{Foreign, Plan, Role, Uninstalled, plan, uninstall, uninstall_with};

/// What is installed in a database.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaVersion {
    /// Version of the tables.
    pub schema: i32,
    /// Oldest version a binary may know and still use these tables.
    pub least_reader: i32,
    /// Version of the functions.
    pub functions: i32,
    /// Checksum of the functions' text.
    pub checksum: String,
}

/// What [`migrate`] found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// What was installed before; `None` for a first installation.
    pub before: Option<SchemaVersion>,
    /// What is installed now.
    pub now: SchemaVersion,
    /// False when nothing was new, so that nothing was written.
    pub changed: bool,
    /// What is installed comes from a newer pgevict: it was left as it is.
    pub newer: bool,
    /// SQL for someone who may create roles, since this role may not; `None` when all roles are there.
    pub grants: Option<String>,
}

/// Installs or upgrades the schema `pgevict`; safe from many processes at once, and free when nothing is new.
///
/// # Errors
/// Refused: the server is older than 15 or a standby, the role may not create the schema or is no member of its
/// owner, or the tables need a newer binary. Timeout: another migration held its lock for over a minute.
pub async fn migrate(client: &mut Client) -> Result<Migrated> {
    check_server(client).await?;
    let found = installed(client).await?;
    if let Some(version) = found
        && !has_work(client, Some(&version)).await?
    {
        return Ok(Migrated {
            newer: is_newer(&version),
            before: Some(version.clone()),
            now: version,
            changed: false,
            grants: None,
        });
    }

    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .read_only(false)
        .start()
        .await
        .map_err(migrating)?;
    transaction
        .batch_execute(&script::settings())
        .await
        .map_err(migrating)?;
    transaction
        .batch_execute(&script::lock())
        .await
        .map_err(|error| failure("waiting for another migration of this database", error))?;
    // Another process may have done it while this one waited.
    let before = installed(&transaction).await?;
    let changed = has_work(&transaction, before.as_ref()).await?;
    if changed {
        let from = before.as_ref().map_or(0, |version| version.schema);
        transaction
            .batch_execute(&script::upgrade(from))
            .await
            .map_err(migrating)?;
    }
    let now = installed(&transaction).await?.unwrap_or_else(script::version);
    let grants = missing_roles(&transaction).await?;
    transaction.commit().await.map_err(migrating)?;
    Ok(Migrated {
        newer: is_newer(&now),
        before,
        now,
        changed,
        grants,
    })
}

/// What is installed; `None` without the schema `pgevict`.
///
/// # Errors
/// Refused when the role may not read `pgevict.meta`.
pub async fn installed(client: &impl GenericClient) -> Result<Option<SchemaVersion>> {
    let reading = |error| failure("reading what is installed", error);
    // Unnamed statements: `url` may be a pooler, where a prepared one may meet another session.
    if client.query_typed(FIND, &[]).await.map_err(reading)?.is_empty() {
        return Ok(None);
    }
    let rows = client.query_typed(READ, &[]).await.map_err(reading)?;
    let Some(row) = rows.first() else {
        return restored::without_rows(client).await.map(Some);
    };
    let column = |error| failure("reading what is installed", error);
    Ok(Some(SchemaVersion {
        schema: row.try_get(0).map_err(column)?,
        least_reader: row.try_get(1).map_err(column)?,
        functions: row.try_get(2).map_err(column)?,
        checksum: row.try_get(3).map_err(column)?,
    }))
}

/// The SQL that [`migrate`] runs in a database without pgevict, for whoever wants to read it or run it by hand.
pub fn print() -> String {
    script::install()
}

/// What this binary installs.
pub(crate) fn ours() -> SchemaVersion {
    script::version()
}

/// Version of the tables that this binary knows.
pub(crate) fn schema_version() -> i32 {
    script::schema_version()
}

const FIND: &str = "select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
     where n.nspname = 'pgevict' and c.relname = 'meta'";

const READ: &str =
    "select schema_version, least_reader, functions_version, functions_checksum from pgevict.meta where one";

const SERVER: &str =
    "select pg_catalog.current_setting('server_version_num')::int4, pg_catalog.pg_is_in_recovery()";

const MISSING_ROLES: &str = "select w.name from pg_catalog.unnest($1) with ordinality w (name, n) \
     where not exists (select from pg_catalog.pg_roles r where r.rolname = w.name) order by w.n";

fn migrating(error: tokio_postgres::Error) -> Error {
    failure("migrating", error)
}

async fn check_server(client: &Client) -> Result<()> {
    let row = client
        .query_typed_one(SERVER, &[])
        .await
        .map_err(|error| failure("asking for the server's version", error))?;
    must_be_fit(row.get(0), row.get(1), "the server")
}

/// True when something is older than this binary's, or a restore has left something broken that is not newer.
async fn has_work(client: &impl GenericClient, found: Option<&SchemaVersion>) -> Result<bool> {
    if needs_work(found)? {
        return Ok(true);
    }
    Ok(!found.is_some_and(is_newer) && !restored::is_whole(client).await?)
}

/// True when tables or functions are older than this binary's.
fn needs_work(found: Option<&SchemaVersion>) -> Result<bool> {
    let Some(found) = found else {
        return Ok(true);
    };
    let ours = script::version();
    if found.least_reader > ours.schema {
        return Err(Error::refused(format!(
            "the database has schema version {}, which needs a pgevict that knows version {} at least; this one knows \
             {}: use a newer pgevict",
            found.schema, found.least_reader, ours.schema
        )));
    }
    Ok(found.schema < ours.schema || (!is_newer(found) && found.checksum != ours.checksum))
}

/// True when a newer binary was here: what it installed is left alone.
fn is_newer(found: &SchemaVersion) -> bool {
    let ours = script::version();
    found.schema > ours.schema || found.functions > ours.functions
}

async fn missing_roles(client: &impl GenericClient) -> Result<Option<String>> {
    let rows = client
        .query_typed(
            MISSING_ROLES,
            &[(&script::ROLE_NAMES.as_slice(), Type::TEXT_ARRAY)],
        )
        .await
        .map_err(migrating)?;
    let missing: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    Ok((!missing.is_empty()).then(|| script::grants(&missing)))
}
