//! `initdb` once, copies ever after.
//!
//! `initdb` takes half a second, a copy of what it makes a tenth of that. The first cluster of a machine makes
//! the template, under a lock, beside its place, and moves it there whole; so a template is complete or absent.

use std::fs::{self, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::binaries::Binaries;
use super::owner::Owner;
use crate::{Error, Result};

/// The superuser of every cluster.
pub(super) const SUPERUSER: &str = "postgres";

/// Makes `target`, an initialised data directory of `owner`, from the template.
pub(super) fn copy(shared: &Path, binaries: &Binaries, owner: &Owner, target: &Path) -> Result<()> {
    let template = ensure(shared, binaries, owner)?;
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(&template).arg(target);
    run(copy, "copying the template of the data directory")
}

fn ensure(shared: &Path, binaries: &Binaries, owner: &Owner) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    binaries.dir().hash(&mut hasher);
    let name = format!("{}-{}-{:016x}", binaries.version(), owner.name(), hasher.finish());
    let template = shared.join(format!("template-{name}"));
    if template.is_dir() {
        return Ok(template);
    }
    let refused = |error| Error::refused("the template of the data directory cannot be made").because(error);
    let lock = File::create(shared.join(format!("lock-{name}"))).map_err(refused)?;
    lock.lock().map_err(refused)?;
    if template.is_dir() {
        return Ok(template);
    }
    let unfinished = shared.join(format!("unfinished-{name}"));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(refused)?;
    }
    fs::create_dir(&unfinished).map_err(refused)?;
    fs::set_permissions(&unfinished, Permissions::from_mode(0o700)).map_err(refused)?;
    owner.give(&unfinished)?;
    let mut initdb = owner.command(&binaries.program("initdb"));
    initdb.arg("-D").arg(&unfinished);
    initdb.args([
        "-U",
        SUPERUSER,
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "--no-sync",
    ]);
    run(initdb, "initdb")?;
    fs::rename(&unfinished, &template).map_err(refused)?;
    Ok(template)
}

/// Runs a command to its end; the error holds what it wrote.
pub(super) fn run(mut command: Command, what: &str) -> Result<()> {
    let output = command
        .output()
        .map_err(|error| Error::refused(format!("{what} does not start")).because(error))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::refused(format!(
        "{what} failed ({}): {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout).trim(),
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}
