//! `pgevict doctor`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use pgevict::store::doctor::{self, Facts, Level, Look, Report};
use serde_json::json;

use super::{Outcome, Place, print};

/// Looks for what will hurt, and says what to do about it. Changes nothing.
#[derive(Debug, Args)]
#[command(
    after_help = "It connects as an instance does, over url and listen_url, and needs pgevict_reader; what the role may not see is
\"not checked\". Exit code 1: something was found; 3: an address cannot be reached.

Examples:
  pgevict doctor
  pgevict doctor --json"
)]
pub(super) struct Doctor {
    /// A transaction that has been writing for longer is named.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::cli::time)]
    long: Duration,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(super) async fn run(self, place: &Place) -> Result<Outcome> {
        let config = place.config()?;
        let facts = doctor::examine(&config, self.long).await?;
        let report = doctor::judge(&facts, config.warden.retention);
        if self.json {
            let place = match &facts.place {
                Look::Seen(place) => json!({
                    "database": place.database,
                    "role": place.role,
                    "server_version": place.version,
                }),
                Look::NotChecked(_) => json!({}),
            };
            print(json!({
                "place": place,
                "findings": report.findings,
                "not_checked": report.not_checked,
                "ok": report.ok,
            }))?;
        } else {
            tell(&facts, &report)?;
        }
        Ok(outcome(&facts, &report))
    }
}

fn outcome(facts: &Facts, report: &Report) -> Outcome {
    let mut errors = facts
        .addresses
        .iter()
        .filter_map(|address| address.error.as_ref());
    if errors.any(|error| error.is_unreachable() || error.is_timeout()) {
        Outcome::Unreachable
    } else if report.is_well() {
        Outcome::Well
    } else {
        Outcome::Finding
    }
}

fn tell(facts: &Facts, report: &Report) -> Result<()> {
    if let Look::Seen(place) = &facts.place {
        let version = (place.version / 10_000, place.version % 10_000);
        print(format!(
            "database {} on PostgreSQL {}.{}, as {}",
            place.database, version.0, version.1, place.role
        ))?;
    }
    if let Look::Seen(log) = &facts.log {
        print(format!(
            "log {:.1} MiB, instances alive {}, warden {}",
            log.bytes as f64 / 1_048_576.0,
            log.instances,
            log.warden.as_deref().unwrap_or("none")
        ))?;
    }
    for finding in &report.findings {
        let level = match finding.level {
            Level::Fault => "FOUND",
            Level::Note => "note",
        };
        print(format!(
            "\n{level}  {}\n  {}\n  why:  {}\n  cure: {}",
            finding.code, finding.what, finding.why, finding.cure
        ))?;
    }
    if !report.findings.is_empty() {
        print("")?;
    }
    for skipped in &report.not_checked {
        print(format!("not checked: {} ({})", skipped.check, skipped.why))?;
    }
    if !report.ok.is_empty() {
        print(format!("ok: {}", report.ok.join(", ")))?;
    }
    Ok(())
}
