//! Removing the schema, the watches' triggers and the roles: what there is, what goes, and what stays and why.
//!
//! Nothing goes that pgevict did not make: what stands in the schema under another name, and what depends on ours from
//! outside, such as a view on the log, is foreign, and refused with its name. Roles go when nobody uses them: no object
//! and no right in any database of the cluster, and no member but those that installing made.

use std::time::Duration;

use serde::Deserialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, IsolationLevel, Transaction};

use super::{FIND, script};
use crate::error::{Error, Result};
use crate::store::failure::{failure, is_lock_timeout};
use crate::store::watch;

/// What [`uninstall`] would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// False when there is no schema `pgevict`.
    pub found: bool,
    /// Watched tables, with their schemas.
    pub watches: Vec<String>,
    /// Size of the schema's tables with their indexes, in bytes.
    pub bytes: i64,
    /// What pgevict did not make, and what removing the schema would take along.
    pub foreign: Vec<String>,
    /// The roles that there are.
    pub roles: Vec<Role>,
}

/// A role of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Why it stays; empty: it goes.
    pub used: Vec<String>,
}

/// What [`uninstall`] removed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Uninstalled {
    /// False when there was no schema `pgevict`.
    pub found: bool,
    /// Number of tables that were watched.
    pub watches: usize,
    /// Roles that are gone.
    pub roles: Vec<String>,
    /// Roles that others use.
    pub kept: Vec<Role>,
    /// SQL for someone who may drop roles, since this role may not; `None` when there is nothing left to drop.
    pub drops: Option<String>,
}

/// What to do with what pgevict did not make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// Refuse, and name it.
    Refuse,
    /// Drop it too.
    Drop,
}

/// What [`uninstall`] would remove; locks and writes nothing.
///
/// # Errors
/// Refused when the role may not list the watches.
pub async fn plan(client: &mut Client) -> Result<Plan> {
    let transaction = begin(client, "planning").await?;
    if !is_there(&transaction).await? {
        return Ok(Plan::default());
    }
    let watches = watch::watches_in(&transaction).await?;
    let row = ask(&transaction, SIZE, &[]).await?;
    let plan = Plan {
        found: true,
        watches: watches.iter().map(watch::Watch::name).collect(),
        bytes: row.try_get(0).map_err(uninstalling)?,
        foreign: foreign(&transaction).await?,
        roles: roles(&transaction).await?,
    };
    transaction.rollback().await.map_err(uninstalling)?;
    Ok(plan)
}

/// Removes the schema `pgevict` with all events, our triggers from every watched table, and the roles that nobody uses.
///
/// Tables are freed one by one, each with a short lock and retries for up to `lock_limit`. What fails leaves the schema in
/// place, with fewer watches: call it again.
///
/// # Errors
/// Refused when the role owns neither the schema nor the watched tables, or when the schema holds what pgevict did not
/// make; the message names it. Timeout when a table stays locked.
pub async fn uninstall(client: &mut Client, lock_limit: Duration) -> Result<Uninstalled> {
    uninstall_with(client, lock_limit, Foreign::Refuse).await
}

/// As [`uninstall`]; says what to do with what pgevict did not make.
///
/// # Errors
/// As [`uninstall`].
pub async fn uninstall_with(
    client: &mut Client,
    lock_limit: Duration,
    others: Foreign,
) -> Result<Uninstalled> {
    let transaction = begin(client, "uninstalling").await?;
    if !is_there(&transaction).await? {
        return Ok(Uninstalled {
            found: false,
            watches: 0,
            roles: Vec::new(),
            kept: Vec::new(),
            drops: None,
        });
    }
    // Before the first watch is gone.
    must_be_ours(&transaction, others).await?;
    let watches = watch::watches_in(&transaction).await?;
    transaction.rollback().await.map_err(uninstalling)?;
    for one in &watches {
        watch::unwatch_target(client, one.target, &one.name(), lock_limit).await?;
    }
    let mut retry = watch::Retry::new(lock_limit);
    loop {
        let transaction = begin(client, "uninstalling").await?;
        must_be_ours(&transaction, others).await?;
        match transaction.batch_execute(DROP).await {
            Ok(()) => {
                let mut done = drop_roles(transaction).await?;
                done.watches = watches.len();
                return Ok(done);
            }
            Err(error) => {
                transaction.rollback().await.map_err(uninstalling)?;
                if !is_lock_timeout(&error) || !retry.pause().await {
                    return Err(uninstalling(error));
                }
            }
        }
    }
}

/// The last step, in the transaction that dropped the schema.
async fn drop_roles(mut transaction: Transaction<'_>) -> Result<Uninstalled> {
    let (mut gone, mut kept, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for mut role in roles(&transaction).await? {
        if !role.used.is_empty() {
            kept.push(role);
            continue;
        }
        let step = transaction.savepoint("role").await.map_err(uninstalling)?;
        match step.batch_execute(&script::drop_role(&role.name)).await {
            Ok(()) => {
                step.commit().await.map_err(uninstalling)?;
                gone.push(role.name);
            }
            Err(error) => {
                let Some(said) = error.as_db_error() else {
                    return Err(uninstalling(error));
                };
                let refused = said.code().code() == INSUFFICIENT_PRIVILEGE;
                role.used.push(format!("cannot be dropped: {}", said.message()));
                step.rollback().await.map_err(uninstalling)?;
                match refused {
                    true => left.push(role.name),
                    // Another database has begun to use it, or has just dropped it.
                    false => kept.push(role),
                }
            }
        }
    }
    transaction.commit().await.map_err(uninstalling)?;
    let drops: String = left.iter().map(|name| script::drop_role(name) + "\n").collect();
    Ok(Uninstalled {
        found: true,
        watches: 0,
        roles: gone,
        kept,
        drops: (!drops.is_empty()).then_some(drops),
    })
}

const INSUFFICIENT_PRIVILEGE: &str = "42501";

async fn must_be_ours(transaction: &Transaction<'_>, others: Foreign) -> Result<()> {
    let foreign = match others {
        Foreign::Refuse => foreign(transaction).await?,
        Foreign::Drop => Vec::new(),
    };
    if foreign.is_empty() {
        return Ok(());
    }
    Err(Error::refused(format!(
        "schema pgevict holds what this pgevict did not make, or something depends on it: {}: drop it first, use the \
         pgevict that made it, or let all of it go with --force",
        foreign.join(", ")
    )))
}

async fn foreign(transaction: &Transaction<'_>) -> Result<Vec<String>> {
    let (relations, functions) = script::names();
    let sql = format!("{PARTS}{FOREIGN}");
    let names = [
        (&relations as _, Type::TEXT_ARRAY),
        (&functions as _, Type::TEXT_ARRAY),
    ];
    ask(transaction, &sql, &names)
        .await?
        .try_get(0)
        .map_err(uninstalling)
}

async fn roles(transaction: &Transaction<'_>) -> Result<Vec<Role>> {
    let sql = format!("{PARTS}{ROLES}");
    let names = script::roles();
    let row = ask(transaction, &sql, &[(&names as _, Type::TEXT_ARRAY)]).await?;
    let document: serde_json::Value = row.try_get(0).map_err(uninstalling)?;
    serde_json::from_value(document)
        .map_err(|error| Error::database("uninstalling: the roles cannot be read").because(error))
}

async fn ask(
    transaction: &Transaction<'_>,
    sql: &str,
    parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)],
) -> Result<tokio_postgres::Row> {
    transaction
        .query_typed_one(sql, parameters)
        .await
        .map_err(uninstalling)
}

async fn is_there(client: &impl GenericClient) -> Result<bool> {
    let rows = client.query_typed(FIND, &[]).await.map_err(uninstalling)?;
    Ok(!rows.is_empty())
}

async fn begin<'a>(client: &'a mut Client, doing: &str) -> Result<Transaction<'a>> {
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .read_only(false)
        .start()
        .await
        .map_err(|error| failure(doing, error))?;
    transaction
        .batch_execute(SETTINGS)
        .await
        .map_err(|error| failure(doing, error))?;
    Ok(transaction)
}

fn uninstalling(error: tokio_postgres::Error) -> Error {
    failure("uninstalling", error)
}

const SETTINGS: &str = "set local lock_timeout = '100ms'; set local statement_timeout = '60s'; \
     set local search_path = pg_catalog, pg_temp; set local jit = off";

const DROP: &str = "drop schema pgevict cascade";

const SIZE: &str = "select coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8 from pg_class c \
     join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'pgevict' and c.relkind in ('r', 'm', 'S')";

/// The schema, all that is in it, and all that is a part of that: indexes, types of rows, triggers on our tables.
const PARTS: &str = "\
with recursive part (classid, objid) as (
  select 'pg_namespace'::regclass::oid, n.oid from pg_namespace n where n.nspname = 'pgevict'
  union
  select d.classid, d.objid from part p
    join pg_depend d on d.refclassid = p.classid and d.refobjid = p.objid
  where d.deptype in ('a', 'i', 'P', 'S') or d.refclassid = 'pg_namespace'::regclass
)";

/// In the schema and of no name of ours ($1: relations and types, $2: functions); or outside, and in need of ours: not the
/// triggers of watches, which are taken off before.
const FOREIGN: &str = ", fired as (
  select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace
  where n.nspname = 'pgevict' and p.proname ~ '^fired_[0-9]+_[0-9a-f]+(_row)?$'
)
select coalesce(array_agg(name order by name), '{}') from (
  select pg_describe_object(d.classid, d.objid, d.objsubid) as name
  from pg_depend d join pg_namespace n on n.oid = d.refobjid
  where d.refclassid = 'pg_namespace'::regclass and n.nspname = 'pgevict' and d.deptype = 'n'
    and not exists (select from pg_class c
      where d.classid = 'pg_class'::regclass and c.oid = d.objid and c.relname = any ($1) and c.relkind in ('r', 'S', 'c'))
    and not exists (select from pg_type t
      where d.classid = 'pg_type'::regclass and t.oid = d.objid and t.typname = any ($1))
    and not exists (select from pg_proc f
      where d.classid = 'pg_proc'::regclass and f.oid = d.objid
        and (f.proname = any ($2) or f.oid in (select oid from fired)))
  union
  select pg_describe_object(d.classid, d.objid, d.objsubid)
  from part p join pg_depend d on d.refclassid = p.classid and d.refobjid = p.objid
  where d.deptype = 'n' and (d.classid, d.objid) not in (select classid, objid from part)
    and not exists (select from pg_trigger t join pg_proc f on f.oid = t.tgfoid
      where d.classid = 'pg_trigger'::regclass and t.oid = d.objid
        and (f.oid in (select oid from fired) or f.oid = to_regproc('pgevict.watch_mark')))
) f";

/// What keeps a role, in all databases; what goes with the schema does not count, nor do the members that installing
/// makes: whoever installs is granted pgevict_owner, and from 16 on whoever creates a role may grant it.
const ROLES: &str = ", ours as (
  select r.oid, r.rolname, w.n from unnest($1) with ordinality w (name, n) join pg_roles r on r.rolname = w.name
), used as (
  select s.refobjid as role, case
      when s.dbid = 0 then 'has rights on ' || pg_describe_object(s.classid, s.objid, s.objsubid)
      when d.datname <> current_database() then 'is used in database ' || d.datname
      else 'is used by ' || pg_describe_object(s.classid, s.objid, s.objsubid)
    end as why
  from pg_shdepend s left join pg_database d on d.oid = s.dbid
  where s.refclassid = 'pg_authid'::regclass and s.refobjid in (select oid from ours)
    and s.classid <> 'pg_auth_members'::regclass
    and not (d.datname is not distinct from current_database() and (s.classid, s.objid) in (select classid, objid from part))
  union
  select o.oid, 'is granted to ' || m.rolname
  from ours o join pg_auth_members a on a.roleid = o.oid join pg_roles m on m.oid = a.member
  where a.member not in (select oid from ours)
    and not (m.rolname = current_user and o.rolname = 'pgevict_owner')
    and not (a.admin_option and not coalesce((to_jsonb(a) ->> 'inherit_option')::boolean, true)
      and not coalesce((to_jsonb(a) ->> 'set_option')::boolean, true))
)
select coalesce(json_agg(json_build_object('name', o.rolname, 'used', (
    select coalesce(json_agg(u.why order by u.why), '[]') from (
      select distinct why from used where role = o.oid order by why limit 5) u)) order by o.n), '[]')
from ours o";
