//! What values are allowed, alone and together.

use std::fmt;

use humantime::format_duration;
use secrecy::{ExposeSecret, SecretString};

use super::fields::{Extremes, FIELDS, Slot};
use super::{Address, Config};
use crate::error::{Error, Result};

/// Longest `instance_id`, in bytes.
const MAX_INSTANCE_ID_BYTES: usize = 200;

/// The instance id under which the cursors of shared consumers are kept.
const SHARED: &str = "__shared__";

/// One thing wrong with the settings.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// `FILE:LINE`, the variable's name or the command line, once known.
    pub(super) origin: Option<String>,
    /// The setting, when one is to blame.
    pub(super) key: Option<String>,
    /// What is wrong and how to cure it; never the value of a secret.
    pub(super) what: String,
}

impl Problem {
    pub(super) fn new(key: &str, what: impl Into<String>) -> Self {
        Self {
            origin: None,
            key: Some(key.to_owned()),
            what: what.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.origin, &self.key].into_iter().flatten() {
            write!(f, "{part}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// One error that holds every problem, a line each.
pub(super) fn report(problems: &[Problem]) -> Result<()> {
    match problems {
        [] => Ok(()),
        [one] => Err(Error::invalid(format!("a setting cannot be used: {one}"))),
        many => {
            let mut text = format!("{} settings cannot be used:", many.len());
            many.iter().for_each(|problem| text += &format!("\n  {problem}"));
            Err(Error::invalid(text))
        }
    }
}

impl Config {
    /// Checks every value alone and together, for settings that a program filled itself.
    ///
    /// # Errors
    /// Invalid with every problem, one a line, each with its key and the cure. Secrets are not in it.
    pub fn check(&self) -> Result<()> {
        report(&self.problems())
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        // The table hands out places to write to; nothing is written here.
        let mut copy = self.clone();
        for field in FIELDS {
            let what = match ((field.slot)(&mut copy), field.extremes) {
                (Slot::Time(value), Extremes::Time(least, most)) => {
                    outside(*value, least, most, |time| format_duration(time).to_string())
                }
                (Slot::Count(value), Extremes::Count(least, most)) => {
                    outside(value.get(), least, most, |count| count.to_string())
                }
                (Slot::Secret(Some(url)), _) => address(url),
                _ => None,
            };
            problems.extend(what.map(|what| Problem::new(field.key, what)));
        }
        if let Some(what) = self.instance_id.as_deref().and_then(instance_id) {
            problems.push(Problem::new("instance_id", what));
        }
        problems.extend(
            self.password_file()
                .map(|what| Problem::new("password_file", what)),
        );
        self.together(&mut problems);
        problems
    }

    /// One place for the password: else an old one in an address would win or lose unnoticed.
    fn password_file(&self) -> Option<String> {
        let file = self.password_file.as_ref()?;
        if file.as_os_str().is_empty() {
            return Some("is empty: name a file, or remove it".to_owned());
        }
        let addresses = [("url", &self.url), ("listen_url", &self.listen_url)];
        let twice = addresses.into_iter().find(|(_, url)| {
            let address = url
                .as_ref()
                .and_then(|url| Address::parse(url.expose_secret()).ok());
            address.is_some_and(|address| address.has_own_password())
        });
        twice.map(|(key, _)| format!("{key} holds a password too: remove one of the two"))
    }

    /// Rules over two settings; not asked when one of the two is wrong already.
    fn together(&self, problems: &mut Vec<Problem>) {
        let mut rule = |holds: bool, key: &str, other: &str, what: String| {
            let wrong = |key: &str| problems.iter().any(|problem| problem.key.as_deref() == Some(key));
            if !holds && !wrong(key) && !wrong(other) {
                problems.push(Problem::new(key, what));
            }
        };
        let shown = format_duration;
        let (staleness, poll) = (self.max_staleness, self.feed.poll);
        rule(
            staleness >= poll.saturating_mul(2),
            "max_staleness",
            "feed.poll",
            format!(
                "{} is less than two polls, so hits would turn stale between them: raise it to {} or more, or lower \
                 feed.poll ({})",
                shown(staleness),
                shown(poll.saturating_mul(2)),
                shown(poll)
            ),
        );
        let unproved = self.feed.poll_unproved;
        rule(
            unproved <= poll,
            "feed.poll_unproved",
            "feed.poll",
            format!(
                "{} is more than feed.poll ({}): lower it",
                shown(unproved),
                shown(poll)
            ),
        );
        let (first, longest) = (self.session.backoff_min, self.session.backoff_max);
        rule(
            first <= longest,
            "session.backoff_min",
            "session.backoff_max",
            format!(
                "{} is more than session.backoff_max ({}): lower it",
                shown(first),
                shown(longest)
            ),
        );
        let (retention, most) = (self.warden.retention, self.warden.retention_max);
        rule(
            retention <= most,
            "warden.retention",
            "warden.retention_max",
            format!(
                "{} is more than warden.retention_max ({}): lower it",
                shown(retention),
                shown(most)
            ),
        );
        let (page_min, page_max) = (self.feed.page_min, self.feed.page_max);
        rule(
            page_min <= page_max,
            "feed.page_min",
            "feed.page_max",
            format!("{page_min} is more than feed.page_max ({page_max}): lower it"),
        );
    }
}

fn outside<T: PartialOrd>(value: T, least: T, most: T, show: impl Fn(T) -> String) -> Option<String> {
    if value < least {
        Some(format!("{} is too little: at least {}", show(value), show(least)))
    } else if value > most {
        Some(format!("{} is too much: at most {}", show(value), show(most)))
    } else {
        None
    }
}

fn address(url: &SecretString) -> Option<String> {
    Address::parse(url.expose_secret())
        .err()
        .map(|error| error.to_string())
}

fn instance_id(id: &str) -> Option<String> {
    if id.is_empty() {
        Some("is empty: give a name that is unique in the fleet, or remove it".to_owned())
    } else if id == SHARED {
        Some(format!(
            "{SHARED} is reserved for shared consumers: choose another name"
        ))
    } else if id.len() > MAX_INSTANCE_ID_BYTES {
        Some(format!("has {} bytes: at most {MAX_INSTANCE_ID_BYTES}", id.len()))
    } else if id.contains('\0') {
        Some("holds U+0000, which PostgreSQL cannot store: remove it".to_owned())
    } else {
        None
    }
}
