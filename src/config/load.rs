//! Loading: flags win over the environment, that over the file, that over the defaults.

use std::path::Path;

use ::config::{FileFormat, Map, Source, Value, ValueKind};
use secrecy::SecretString;

use super::check::{Problem, report};
use super::fields::{self, FIELDS, Slot};
use super::nearest::nearest;
use super::{Config, WhenStale};
use crate::error::{Error, Result};

mod locate;

const PREFIX: &str = "PGEVICT_";

/// Variables of other meaning: the command's own, and what Kubernetes sets for a service named `pgevict`.
const NOT_SETTINGS: &[&str] = &["CONFIG", "LOG"];
const NOT_SETTINGS_FROM: &[&str] = &["SERVICE_", "PORT_"];

impl Config {
    /// Reads settings: `overrides` (key such as `cache.ttl`, value) win over `env`, that over `file`, that over the
    /// defaults.
    ///
    /// Variables are `PGEVICT_` and the key in upper case, levels joined by two underscores: `PGEVICT_URL`,
    /// `PGEVICT_MAX_STALENESS`, `PGEVICT_CACHE__TTL`; an empty one counts as not set. `DATABASE_URL` is taken for
    /// `url` when nothing else sets it. What is not in the variable's prefix is not looked at, nor is
    /// `PGEVICT_CONFIG`, `PGEVICT_LOG`, `PGEVICT_SERVICE_*` and `PGEVICT_PORT*`.
    ///
    /// # Errors
    /// Invalid when the file cannot be read, or with every problem of every source, one a line, each with its
    /// origin (`FILE:LINE`, variable, command line), its key and the cure. Secrets are not in it.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        overrides: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        let mut problems = Vec::new();
        let text = match file {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| Error::invalid(format!("cannot read {}", path.display())).because(error))?,
            None => String::new(),
        };
        let file_name = file.map(|path| path.display().to_string()).unwrap_or_default();

        let mut database_url = None;
        let mut variables = Layer::default();
        for (name, value) in env.filter(|(_, value)| !value.is_empty()) {
            if name == "DATABASE_URL" {
                database_url = Some(value);
            } else if let Some(key) = variable_key(&name) {
                variables.add(key, name, value, &mut problems);
            }
        }
        let mut flags = Layer::default();
        for (key, value) in overrides {
            flags.add(key, "command line".to_owned(), value, &mut problems);
        }

        let merged = ::config::Config::builder()
            .add_source(::config::File::from_str(&text, FileFormat::Toml))
            .add_source(variables)
            .add_source(flags)
            .build()
            .map_err(|error| malformed(&file_name, &error))?;
        let mut leaves = Vec::new();
        flatten(String::new(), merged.cache, &mut leaves);
        // The merge keeps no order: that of the table, then unknown keys by name.
        leaves.sort_by_cached_key(|(key, _)| {
            (
                FIELDS.iter().position(|f| f.key == key).unwrap_or(usize::MAX),
                key.clone(),
            )
        });

        let in_file = |key: &str| match locate::line_of(&text, key) {
            Some(line) => format!("{file_name}:{line}"),
            None => file_name.clone(),
        };
        let mut config = Self::default();
        let mut origins = Map::new();
        for (key, value) in leaves {
            let from_file = value.origin().is_none();
            let origin = value.origin().map_or_else(|| in_file(&key), str::to_owned);
            let what = match fields::find(&key) {
                Some(field) => set((field.slot)(&mut config), value.kind, from_file).err(),
                None => Some(unknown(&key, Spelling::File)),
            };
            problems.extend(what.map(|what| Problem {
                origin: Some(origin.clone()),
                ..Problem::new(&key, what)
            }));
            origins.insert(key, origin);
        }
        if let Some(url) = database_url.filter(|_| config.url.is_none() && !origins.contains_key("url")) {
            config.url = Some(url.into());
            origins.insert("url".to_owned(), "DATABASE_URL".to_owned());
        }
        for mut problem in config.problems() {
            problem.origin = problem.key.as_ref().and_then(|key| origins.get(key)).cloned();
            problems.push(problem);
        }
        report(&problems)?;
        Ok(config)
    }
}

/// `cache.ttl` of `PGEVICT_CACHE__TTL`; `None` for what is no setting.
fn variable_key(name: &str) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?;
    let other = NOT_SETTINGS.contains(&rest)
        || rest == "PORT"
        || NOT_SETTINGS_FROM.iter().any(|prefix| rest.starts_with(prefix));
    (!other).then(|| rest.to_lowercase().replace("__", "."))
}

fn variable_name(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "__"))
}

/// Settings that came as text, each with its origin.
#[derive(Debug, Clone, Default)]
struct Layer(Map<String, Value>);

impl Layer {
    fn add(&mut self, key: String, origin: String, text: String, problems: &mut Vec<Problem>) {
        if fields::find(&key).is_some() {
            self.0.insert(key, Value::new(Some(&origin), text));
            return;
        }
        let (key, what) = match origin.starts_with(PREFIX) {
            true => (None, unknown(&key, Spelling::Variable)),
            false => (Some(key.clone()), unknown(&key, Spelling::File)),
        };
        problems.push(Problem {
            origin: Some(origin),
            key,
            what,
        });
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ::config::ConfigError> {
        Ok(self.0.clone())
    }
}

/// How the reader of a message writes a key.
#[derive(Clone, Copy)]
enum Spelling {
    File,
    Variable,
}

fn unknown(key: &str, spelling: Spelling) -> String {
    let show = |key: &str| match spelling {
        Spelling::File => key.to_owned(),
        Spelling::Variable => variable_name(key),
    };
    let section = format!("{key}.");
    if let Some(field) = FIELDS.iter().find(|field| field.key.starts_with(&section)) {
        return format!(
            "is a section, not a setting: set {} or another of it",
            show(field.key)
        );
    }
    let last = |key: &str| key.rsplit('.').next().map(str::to_owned);
    let moved = FIELDS
        .iter()
        .find(|field| last(field.key) == last(key))
        .map(|field| field.key);
    match nearest(key, FIELDS.iter().map(|field| field.key)).or(moved) {
        Some(near) => format!("unknown setting: did you mean {}?", show(near)),
        None => "unknown setting: remove it; config.toml in the repository lists all".to_owned(),
    }
}

/// The leaves of the merged tree with their paths.
fn flatten(path: String, value: Value, leaves: &mut Vec<(String, Value)>) {
    match value.kind {
        // An empty section says nothing, an unknown one must be reported.
        ValueKind::Table(table) if !table.is_empty() => {
            for (key, value) in table {
                let path = if path.is_empty() {
                    key
                } else {
                    format!("{path}.{key}")
                };
                flatten(path, value, leaves);
            }
        }
        ValueKind::Table(_)
            if path.is_empty() || FIELDS.iter().any(|f| f.key.starts_with(&format!("{path}."))) => {}
        _ => leaves.push((path, value)),
    }
}

/// Writes a value to its place; the error says what to write instead. Text from outside the file may stand for
/// any type; in the file the type must be right.
fn set(slot: Slot<'_>, value: ValueKind, from_file: bool) -> Result<(), String> {
    match (slot, value) {
        (Slot::Switch(slot), ValueKind::Boolean(value)) => *slot = value,
        (Slot::Switch(slot), ValueKind::String(text)) if !from_file => {
            *slot = text
                .parse()
                .map_err(|_| format!("{text:?} is neither true nor false"))?;
        }
        (Slot::Switch(_), value) => return Err(wrong_type(&value, "true or false, without quotes")),
        (Slot::Text(slot), ValueKind::String(text)) => *slot = Some(text),
        (Slot::File(slot), ValueKind::String(text)) => *slot = Some(text.into()),
        (Slot::Text(_) | Slot::File(_), value) => return Err(wrong_type(&value, "text in quotes")),
        (Slot::Secret(slot), ValueKind::String(text)) => *slot = Some(SecretString::from(text)),
        (Slot::Secret(_), _) => return Err("must be text in quotes".to_owned()),
        (Slot::Time(slot), ValueKind::String(text)) => *slot = time(&text)?,
        (Slot::Time(_), ValueKind::I64(number)) => return Err(no_unit(&number.to_string())),
        (Slot::Time(_), value) => {
            return Err(wrong_type(
                &value,
                "a time in quotes, such as \"250ms\" or \"5s\"",
            ));
        }
        (Slot::Count(mut slot), ValueKind::I64(number)) => {
            let fits = u64::try_from(number).is_ok_and(|number| slot.set(number));
            fits.then_some(()).ok_or_else(|| no_count(&number.to_string()))?;
        }
        (Slot::Count(mut slot), ValueKind::String(text)) if !from_file => {
            let fits = text.parse().is_ok_and(|number| slot.set(number));
            fits.then_some(()).ok_or_else(|| no_count(&format!("{text:?}")))?;
        }
        (Slot::Count(_), value) => return Err(wrong_type(&value, "a whole number, without quotes")),
        (Slot::WhenStale(slot), ValueKind::String(text)) => {
            *slot = match text.as_str() {
                "bypass" => WhenStale::Bypass,
                "serve" => WhenStale::Serve,
                "fail" => WhenStale::Fail,
                _ => return Err(format!("{text:?} is none of \"bypass\", \"serve\", \"fail\"")),
            };
        }
        (Slot::WhenStale(_), value) => {
            return Err(wrong_type(&value, "one of \"bypass\", \"serve\", \"fail\""));
        }
    }
    Ok(())
}

fn time(text: &str) -> Result<std::time::Duration, String> {
    humantime::parse_duration(text).map_err(|_| match text.parse::<f64>() {
        Ok(_) => no_unit(text),
        Err(_) => format!(
            "{text:?} is not a time: write whole numbers with units, such as \"250ms\", \"5s\" or \"1m 30s\""
        ),
    })
}

fn no_unit(number: &str) -> String {
    let whole = number
        .trim_start_matches(['-', '+'])
        .split('.')
        .next()
        .filter(|text| !text.is_empty());
    let whole = whole.unwrap_or("1");
    format!("{number} has no unit: write \"{whole}ms\" for milliseconds or \"{whole}s\" for seconds")
}

fn no_count(shown: &str) -> String {
    format!("{shown} is not a whole number in range")
}

fn wrong_type(value: &ValueKind, wanted: &str) -> String {
    let found = match value {
        ValueKind::Boolean(value) => value.to_string(),
        ValueKind::I64(value) => value.to_string(),
        ValueKind::Float(value) => value.to_string(),
        ValueKind::String(value) => format!("{value:?}"),
        ValueKind::Array(_) => "a list".to_owned(),
        ValueKind::Table(_) => "a section".to_owned(),
        _ => "this".to_owned(),
    };
    format!("{found} is of the wrong type: write {wanted}")
}

/// A file that is not TOML. The parser's message quotes the line, which may hold a password: only place and cause
/// are kept.
fn malformed(file_name: &str, error: &::config::ConfigError) -> Error {
    let cause = match error {
        ::config::ConfigError::FileParse { cause, .. } => cause.to_string(),
        other => other.to_string(),
    };
    let mut lines = cause.lines().filter(|line| !line.trim().is_empty());
    let place = lines
        .next()
        .and_then(|first| first.split_once("at line "))
        .map(|(_, place)| place);
    let line = place.and_then(|place| place.split(',').next());
    match line.filter(|line| line.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(line) => Error::invalid(format!(
            "{file_name}:{line}: not TOML: check quotes, brackets and `=` here, and that no key is set twice"
        )),
        None => Error::invalid(format!(
            "{file_name}: not TOML that can be read: check quotes, brackets and `=`"
        )),
    }
}
