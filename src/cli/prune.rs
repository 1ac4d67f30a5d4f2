//! `pgevict prune`.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::{Place, print};

/// Removes old events that every live instance has read. For cron, where no instance runs.
#[derive(Debug, Args)]
#[command(
    after_help = "What is older than the retention is known from earlier runs, or from a running instance: the first
run removes nothing.

Examples:
  pgevict prune
  pgevict prune --retention 10m --json"
)]
pub(super) struct Prune {
    /// How long an event is kept at least, such as 90s, 10m, 1h; else the setting warden.retention.
    #[arg(long, value_name = "TIME", value_parser = crate::cli::time)]
    retention: Option<std::time::Duration>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Prune {
    pub(super) async fn run(self, place: &Place) -> Result<()> {
        let warden = place.config()?.warden;
        let retention = self.retention.unwrap_or(warden.retention);
        let pruned = place
            .admin()
            .await?
            .prune(retention, warden.retention_max)
            .await?;
        if self.json {
            print(json!({ "deleted": pruned.deleted, "steps": pruned.steps }))?;
        } else {
            print(format!(
                "pruned {} events older than {}",
                pruned.deleted,
                humantime::format_duration(retention)
            ))?;
        }
        Ok(())
    }
}
