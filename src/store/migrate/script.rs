//! The SQL files in the order they are run, and what is put around them.

use std::fmt::Write;

use super::SchemaVersion;

/// Version of the functions; grows by one with every release that changes one of them, and never falls.
const FUNCTIONS_VERSION: i32 = 5;

/// Oldest schema version a binary may know and still use the tables as they are after the last migration.
const LEAST_READER: i32 = 1;

/// Key of the advisory lock that one migration at a time holds: "pgevict" in ASCII.
const LOCK_KEY: i64 = 0x0070_6765_7669_6374;

/// The roles that `roles.sql` grants to. The owner's absence is no loss: whoever migrated owns everything then.
pub(super) const ROLE_NAMES: [&str; 4] = [
    "pgevict_emitter",
    "pgevict_reader",
    "pgevict_instance",
    "pgevict_admin",
];

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(include_str!(concat!("../../../sql/", $path))),*]
    };
}

const OWNER: &str = include_str!("../../../sql/owner.sql");

/// Migration n takes the tables from version n to n + 1.
const MIGRATIONS: &[&str] = files![
    "migrations/0001_log.sql",
    "migrations/0002_retention.sql",
    "migrations/0003_checked.sql",
];

/// What is applied anew when anything in it changes; a function stands behind those that it names in its declaration
/// or, being written in SQL, in its body.
const FUNCTIONS: &[&str] = files![
    "functions/escape.sql",
    "functions/base_of.sql",
    "functions/plain_type.sql",
    "functions/text_of.sql",
    "functions/key.sql",
    "functions/texts_differ.sql",
    "functions/announce.sql",
    "functions/announcing.sql",
    "functions/check_texts.sql",
    "functions/emit.sql",
    "functions/flush.sql",
    "functions/evict_prefix.sql",
    "functions/set_wake.sql",
    "functions/void_log.sql",
    "functions/found_epoch.sql",
    "functions/establish.sql",
    "functions/epoch_new.sql",
    "functions/epoch_adopt.sql",
    "functions/mark.sql",
    "functions/beat_heart.sql",
    "functions/release_warden.sql",
    "functions/leave.sql",
    "functions/claim_warden.sql",
    "functions/covers.sql",
    "functions/note_horizon.sql",
    "functions/advance_pruned.sql",
    "functions/prune.sql",
    "functions/prune_all.sql",
    "functions/note_deletion.sql",
    "functions/note_truncation.sql",
    "functions/drop_foreign.sql",
    "functions/keep_first.sql",
    "functions/drop_applied.sql",
    "functions/template.sql",
    "functions/template_head.sql",
    "functions/heads.sql",
    "functions/emit_heads.sql",
    "functions/oversized.sql",
    "functions/in_place.sql",
    "functions/pairs.sql",
    "functions/watch_texts.sql",
    "functions/watch_types.sql",
    "functions/watch_same.sql",
    "functions/watch_placed.sql",
    "functions/watch_key.sql",
    "functions/watch_key_types.sql",
    "functions/watch_pairable.sql",
    "functions/watch_query.sql",
    "functions/json_of.sql",
    "functions/watch_changes.sql",
    "functions/watch_source.sql",
    "functions/watch_token.sql",
    "functions/watch_by_row.sql",
    "functions/watch_row_source.sql",
    "functions/watch_mark.sql",
    "functions/watch_make.sql",
    "functions/watch_build.sql",
    "functions/watch_functions.sql",
    "functions/watch_sweep.sql",
    "functions/watch_rebuild.sql",
    "functions/watch_rows_state.sql",
    "functions/watch_state.sql",
    "functions/watch_reason.sql",
    "functions/watch_fingerprints.sql",
    "functions/note_watch.sql",
    "functions/check_watches.sql",
    "functions/watch_lock.sql",
    "functions/watch_parts.sql",
    "functions/watch_rows.sql",
    "functions/watch_clear.sql",
    "functions/watch_definition.sql",
    "functions/watch.sql",
    "functions/unwatch.sql",
    "functions/watch_status.sql",
    "triggers/guards.sql",
    "roles.sql",
];

const ROLES: &str = include_str!("../../../sql/roles.sql");

/// What this binary installs.
pub(super) fn version() -> SchemaVersion {
    SchemaVersion {
        schema: schema_version(),
        least_reader: LEAST_READER,
        functions: FUNCTIONS_VERSION,
        checksum: checksum(FUNCTIONS),
    }
}

pub(super) fn schema_version() -> i32 {
    MIGRATIONS.len() as i32
}

/// FNV-1a over the files: tells one text from another, on every platform and in every release alike.
fn checksum(files: &[&str]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in files.iter().flat_map(|file| file.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// Settings of the migration's transaction: whatever the role or the database has set, the scripts mean the same.
pub(super) fn settings() -> String {
    "set local search_path = pg_catalog, pg_temp;\n\
     set local standard_conforming_strings = on;\n\
     set local statement_timeout = '60s';\n\
     set local lock_timeout = '60s';\n"
        .to_owned()
}

/// Waits for another migration of this database.
pub(super) fn lock() -> String {
    format!("select pg_catalog.pg_advisory_xact_lock({LOCK_KEY});\n")
}

/// From schema version `from` (0: nothing installed) to this binary's, functions and rights included.
pub(super) fn upgrade(from: i32) -> String {
    let version = version();
    let mut script = String::from(OWNER);
    if from > 0 {
        // A restore without data leaves tables without their one row.
        let _ = writeln!(
            script,
            "\ninsert into pgevict.meta (schema_version, least_reader, pruned) \
             select {from}, 0, pg_catalog.pg_current_snapshot() where not exists (select from pgevict.meta);"
        );
    }
    if from > 1 {
        script.push_str(
            "insert into pgevict.warden select where not exists (select from pgevict.warden);\n\
             insert into pgevict.sweep select where not exists (select from pgevict.sweep);\n",
        );
    }
    for migration in MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or(0)) {
        script.push_str(migration);
    }
    if from == 0 {
        script.push_str(
            "\ninsert into pgevict.meta (schema_version, least_reader, pruned) \
             values (0, 0, pg_catalog.pg_current_snapshot());\n",
        );
    }
    for function in FUNCTIONS {
        script.push('\n');
        script.push_str(function);
    }
    script.push_str("\nselect pgevict.watch_rebuild();\n");
    // Writing to a String never fails.
    let _ = write!(
        script,
        "\nupdate pgevict.meta set schema_version = {}, least_reader = {}, functions_version = {}, \
         functions_checksum = '{}' where one;\n\
         comment on table pgevict.meta is '{}{}';\n",
        version.schema,
        version.least_reader,
        version.functions,
        version.checksum,
        super::restored::NOTE,
        version.schema
    );
    if from == 0 {
        // Without statistics the planner takes a table of one row for one of thousands.
        script.push_str(
            "select pgevict.establish();\n\
             analyze pgevict.meta, pgevict.epoch, pgevict.event, pgevict.heartbeat;\n",
        );
    }
    script
}

/// A first installation as one script.
pub(super) fn install() -> String {
    format!(
        "-- pgevict {}: installs schema version {}, for a database without it. Run it with psql -v ON_ERROR_STOP=1\n\
         -- as a role that may create the schema and, if possible, roles.\n\
         begin transaction isolation level read committed;\n{}{}{}commit;\n",
        env!("CARGO_PKG_VERSION"),
        schema_version(),
        settings(),
        lock(),
        upgrade(0)
    )
}

/// Names of the relations and types, and those of the functions, that the scripts of this version make.
pub(super) fn names() -> (Vec<String>, Vec<String>) {
    let relations = [
        "create table ",
        "create unlogged table ",
        "create sequence ",
        "create unlogged sequence ",
        "create type ",
    ];
    let functions = ["create or replace function "];
    (made(MIGRATIONS, &relations), made(FUNCTIONS, &functions))
}

/// The names in schema pgevict behind one of these beginnings of a line.
fn made(files: &[&str], beginnings: &[&str]) -> Vec<String> {
    let lines = files.iter().flat_map(|file| file.lines());
    let made = lines.flat_map(|line| beginnings.iter().filter_map(|begin| line.strip_prefix(begin)));
    made.filter_map(|rest| rest.trim_start_matches("if not exists ").strip_prefix("pgevict."))
        .map(|name| {
            let is_part = |char: char| char.is_alphanumeric() || char == '_';
            name.chars().take_while(|char| is_part(*char)).collect()
        })
        .collect()
}

/// All roles of ours, members before what they are members of.
pub(super) fn roles() -> Vec<&'static str> {
    ROLE_NAMES
        .iter()
        .rev()
        .copied()
        .chain(["pgevict_owner"])
        .collect()
}

/// Drops one role of ours.
pub(super) fn drop_role(name: &str) -> String {
    format!("drop role {name};")
}

/// Makes roles that are missing and grants them their rights.
pub(super) fn grants(missing: &[String]) -> String {
    let mut script = String::new();
    for role in missing {
        let _ = writeln!(script, "create role {role} nologin;");
    }
    script.push_str(
        "grant pgevict_reader to pgevict_instance;\n\
         grant pgevict_emitter, pgevict_instance to pgevict_admin;\n",
    );
    script.push_str(ROLES);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sql_file_is_installed() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
        let mut count = 0;
        for part in ["functions", "triggers", "migrations"] {
            for entry in std::fs::read_dir(folder.join(part)).unwrap() {
                let path = entry.unwrap().path();
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(
                    FUNCTIONS.contains(&text.as_str()) || MIGRATIONS.contains(&text.as_str()),
                    "{} is in no list",
                    path.display()
                );
                count += 1;
            }
        }
        // roles.sql is the one file of the list that lies beside the folders.
        assert_eq!(count + 1, FUNCTIONS.len() + MIGRATIONS.len());
    }

    #[test]
    fn watches_announce_as_emit_does() {
        let of = |name: &str, from: &str, to: &str| {
            let file = FUNCTIONS
                .iter()
                .find(|file| file.starts_with(&format!("-- pgevict.{name}()")));
            let text = file.and_then(|file| Some(file.split_once(from)?.1.split_once(to)?.0));
            text.unwrap().to_owned()
        };
        assert_eq!(
            of("announce", "return ", ";"),
            of("announcing", "$expression$", "::\"char\"$expression$")
        );
    }

    #[test]
    fn functions_have_a_header_and_a_pinned_path_and_no_backslash_in_a_plain_string() {
        for file in FUNCTIONS
            .iter()
            .filter(|file| file.contains("create or replace function"))
        {
            assert!(file.starts_with("-- pgevict."), "no header: {file}");
            assert_eq!(
                file.matches("create or replace function").count(),
                file.matches("set search_path = pg_catalog, pg_temp").count(),
                "a path is not pinned: {file}"
            );
            for line in file.lines().filter(|line| line.contains('\\')) {
                assert!(
                    line.contains("E'"),
                    "means another thing under standard_conforming_strings = off: {line}"
                );
            }
        }
    }
}
