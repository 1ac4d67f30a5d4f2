//! What a judgement is made of.

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It will hurt, or does already.
    Fault,
    /// Good to know; nothing has to be done.
    Note,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Names the kind for programs; never changes.
    pub code: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What it is.
    pub what: String,
    /// Why it hurts.
    pub why: &'static str,
    /// What to do: a command, SQL, or a setting to change.
    pub cure: String,
}

/// What could not be looked at, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Skipped {
    /// Name of the check.
    pub check: &'static str,
    /// Why.
    pub why: String,
}

/// The judgement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// All findings, in the order of the checks.
    pub findings: Vec<Finding>,
    /// What was not checked.
    pub not_checked: Vec<Skipped>,
    /// Checks that found nothing, notes aside.
    pub ok: Vec<&'static str>,
}

impl Report {
    /// False when something will hurt.
    pub fn is_well(&self) -> bool {
        self.findings.iter().all(|finding| finding.level == Level::Note)
    }
}

/// What one check comes to.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) findings: Vec<Finding>,
    pub(super) not_checked: Vec<String>,
}

impl Checked {
    pub(super) fn fault(
        &mut self,
        code: &'static str,
        what: impl Into<String>,
        why: &'static str,
        cure: impl Into<String>,
    ) {
        self.add(Level::Fault, code, what.into(), why, cure.into());
    }

    pub(super) fn note(
        &mut self,
        code: &'static str,
        what: impl Into<String>,
        why: &'static str,
        cure: impl Into<String>,
    ) {
        self.add(Level::Note, code, what.into(), why, cure.into());
    }

    fn add(&mut self, level: Level, code: &'static str, what: String, why: &'static str, cure: String) {
        self.findings.push(Finding {
            code,
            level,
            what,
            why,
            cure,
        });
    }
}
