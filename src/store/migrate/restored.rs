//! What a restore leaves behind, for a migration to mend.
//!
//! A full restore is whole. One without data has empty tables; one without rights (`--no-acl`) has roles that may do
//! nothing; one with `--disable-triggers` has switched off what guards our tables, and not switched it on for everybody.

use tokio_postgres::GenericClient;

use super::SchemaVersion;
use crate::error::{Error, Result};
use crate::store::failure::failure;

/// What `migrate` writes on `pgevict.meta`, before the version: a dump without data still tells it.
pub(super) const NOTE: &str = "pgevict schema version ";

/// False when a guard does not stand in every session, or a role of ours has no way into the schema.
pub(super) async fn is_whole(client: &impl GenericClient) -> Result<bool> {
    let row = client.query_typed_one(WHOLE, &[]).await.map_err(looking)?;
    row.try_get(0).map_err(looking)
}

/// The version of tables whose one row is missing.
///
/// # Errors
/// Refused when nothing tells it.
pub(super) async fn without_rows(client: &impl GenericClient) -> Result<SchemaVersion> {
    let row = client.query_typed_one(NOTED, &[]).await.map_err(looking)?;
    let note: Option<String> = row.try_get(0).map_err(looking)?;
    let schema = note
        .as_deref()
        .and_then(|note| note.strip_prefix(NOTE)?.parse().ok())
        .ok_or_else(|| Error::refused("pgevict.meta is empty: uninstall pgevict and migrate again"))?;
    Ok(SchemaVersion {
        schema,
        least_reader: schema,
        functions: 0,
        checksum: String::new(),
    })
}

const WHOLE: &str = "select not exists ( \
       select from pg_catalog.pg_trigger t join pg_catalog.pg_class c on c.oid = t.tgrelid \
       join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
       where n.nspname = 'pgevict' and (t.tgname in ('drop_foreign', 'keep_first', 'note_deletion', 'note_truncation') \
           and t.tgenabled <> 'A' or t.tgname = 'drop_applied' and t.tgenabled <> 'R')) \
     and not exists ( \
       select from pg_catalog.pg_roles r \
       where r.rolname in ('pgevict_emitter', 'pgevict_reader', 'pgevict_instance', 'pgevict_admin') \
         and not pg_catalog.has_schema_privilege(r.rolname, 'pgevict', 'usage'))";

const NOTED: &str = "select pg_catalog.obj_description('pgevict.meta'::pg_catalog.regclass, 'pg_class')";

fn looking(error: tokio_postgres::Error) -> Error {
    failure("looking whether what is installed is whole", error)
}
