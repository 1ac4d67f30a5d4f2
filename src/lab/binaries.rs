//! Where the PostgreSQL programs are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Result};

/// Majors looked for under Debian's directory, the newest first.
const MAJORS: [u32; 4] = [18, 17, 16, 15];

/// What a cluster cannot do without.
const NEEDED: [&str; 3] = ["initdb", "postgres", "psql"];

/// A directory with the PostgreSQL programs, and their version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    dir: PathBuf,
    version: String,
    major: u32,
}

impl Binaries {
    /// The first usable directory of: `PG_BIN_DIR`; `$PGEVICT_PG_CACHE/<version>/bin`, or
    /// `.cache/postgresql/<version>/bin` in the current directory or one above it, the newest version first;
    /// `/usr/lib/postgresql/<18 to 15>/bin`; every directory of `PATH`.
    ///
    /// # Errors
    /// Refused when `PG_BIN_DIR` is set but lacks a program, or when no place has them all; the message says
    /// what to install. Starts `postgres --version` once.
    pub fn find() -> Result<Self> {
        if let Some(dir) = env::var_os("PG_BIN_DIR").filter(|dir| !dir.is_empty()) {
            return Self::at(PathBuf::from(dir));
        }
        match candidates().into_iter().find(|dir| missing(dir).is_none()) {
            Some(dir) => Self::at(dir),
            None => Err(Error::refused(
                "no PostgreSQL programs found: run `export PG_BIN_DIR=$(scripts/postgres)`, or install \
                 the package postgresql (15 or newer), or set PG_BIN_DIR to the directory of initdb, postgres and psql",
            )),
        }
    }

    /// The programs in `dir`.
    ///
    /// # Errors
    /// Refused when one is missing or `postgres --version` does not name a version of 15 or newer.
    pub fn at(dir: impl Into<PathBuf>) -> Result<Self> {
        let dir = dir.into();
        if let Some(program) = missing(&dir) {
            return Err(Error::refused(format!(
                "{} has no program `{program}`: PG_BIN_DIR must name the directory of initdb, postgres and psql",
                dir.display()
            )));
        }
        let dir = dir.canonicalize().unwrap_or(dir);
        let output = Command::new(dir.join("postgres")).arg("--version").output();
        let output = output.map_err(|error| {
            Error::refused(format!("{} does not run", dir.join("postgres").display())).because(error)
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (version, major) = parse_version(&text).ok_or_else(|| {
            Error::refused(format!(
                "{} does not say its version: {}{}",
                dir.join("postgres").display(),
                text.trim(),
                String::from_utf8_lossy(&output.stderr).trim()
            ))
        })?;
        if major < 15 {
            return Err(Error::refused(format!(
                "{} is PostgreSQL {version}: 15 or newer is needed",
                dir.display()
            )));
        }
        Ok(Self { dir, version, major })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The version as `postgres --version` prints it, like `18.6`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The major version, like 18.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The path of one program, like `psql`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

fn missing(dir: &Path) -> Option<&'static str> {
    NEEDED.into_iter().find(|program| !dir.join(program).is_file())
}

fn candidates() -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some(cache) = env::var_os("PGEVICT_PG_CACHE").filter(|dir| !dir.is_empty()) {
        found.extend(cached(Path::new(&cache)));
    }
    if let Ok(here) = env::current_dir() {
        for above in here.ancestors() {
            found.extend(cached(&above.join(".cache/postgresql")));
        }
    }
    found.extend(MAJORS.map(|major| PathBuf::from(format!("/usr/lib/postgresql/{major}/bin"))));
    if let Some(path) = env::var_os("PATH") {
        found.extend(env::split_paths(&path));
    }
    found
}

/// `<cache>/<version>/bin` of every version, the newest first.
fn cached(cache: &Path) -> Vec<PathBuf> {
    let Ok(entries) = cache.read_dir() else {
        return Vec::new();
    };
    let mut versions: Vec<(Vec<u32>, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| Some((numbers(entry.file_name().to_str()?)?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, dir)| dir).collect()
}

fn numbers(version: &str) -> Option<Vec<u32>> {
    version.split('.').map(|part| part.parse().ok()).collect()
}

/// Version and major of `postgres (PostgreSQL) 15.18 (Debian 15.18-1)`.
fn parse_version(text: &str) -> Option<(String, u32)> {
    let version = text.split("(PostgreSQL)").nth(1)?.split_whitespace().next()?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((version.to_owned(), digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_postgres_prints() {
        let read = |text| parse_version(text).map(|(version, major)| format!("{version} {major}"));
        assert_eq!(read("postgres (PostgreSQL) 18.6\n").as_deref(), Some("18.6 18"));
        assert_eq!(
            read("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n").as_deref(),
            Some("15.18 15")
        );
        assert_eq!(
            read("postgres (PostgreSQL) 19beta1\n").as_deref(),
            Some("19beta1 19")
        );
        assert_eq!(read("mysqld 8\n"), None);
    }

    #[test]
    fn the_newest_cached_version_comes_first() {
        let cache = tempfile::tempdir().unwrap();
        for version in ["15.19.0", "18.6.0", "9.6", "18.10.0", "not a version"] {
            std::fs::create_dir(cache.path().join(version)).unwrap();
        }
        let names: Vec<_> = cached(cache.path())
            .iter()
            .map(|dir| {
                dir.strip_prefix(cache.path())
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        assert_eq!(names, ["18.10.0/bin", "18.6.0/bin", "15.19.0/bin", "9.6/bin"]);
    }

    #[test]
    fn a_directory_without_the_programs_is_refused_by_name() {
        let empty = tempfile::tempdir().unwrap();
        let error = Binaries::at(empty.path()).unwrap_err();
        assert!(error.is_refused());
        assert!(error.to_string().contains("initdb"), "{error}");
    }
}
