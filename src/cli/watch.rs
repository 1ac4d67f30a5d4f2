//! `pgevict watch`, `unwatch` and `watches`.

use std::time::SystemTime;

use anyhow::Result;
use clap::Args;
use pgevict::store::watch::{Headless, Replicated, Sample, Samples, WatchDefinition, WatchState, Watched};
use serde_json::json;

use super::{Locking, Place, print};

/// Watches a table: its writes make keys, tags and prefixes stale. Shows first what a change of rows that are there would
/// make stale. May run at each start.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pgevict watch products --key 'product:{id}' --tag 'category:{category_id}'
  pgevict watch products --key 'product:{id}' --dry-run
  pgevict watch shop.orders --key 'order:{id}' --column status --column total")]
pub(super) struct Watch {
    /// The table, as in SQL.
    table: String,
    /// Template of the key of one row, such as 'product:{id}'.
    #[arg(long, value_name = "TEMPLATE")]
    key: Option<String>,
    /// Template of a tag; may be given several times.
    #[arg(long = "tag", value_name = "TEMPLATE")]
    tags: Vec<String>,
    /// Template of a prefix; may be given several times.
    #[arg(long = "prefix", value_name = "TEMPLATE")]
    prefixes: Vec<String>,
    /// An UPDATE counts only if this column (or one of a template) changed; may be given several times.
    #[arg(long = "column", value_name = "COLUMN")]
    columns: Vec<String>,
    /// One event for each row, with its primary key and the old and new values of what changed.
    #[arg(long)]
    changes: bool,
    /// A statement that changes more rows makes one event with the literal heads of all templates.
    #[arg(long, value_name = "ROWS")]
    escalate_above: Option<u32>,
    /// Allows a template that begins with a placeholder: TRUNCATE and large changes then empty every cache.
    #[arg(long)]
    flush_ok: bool,
    /// Tells of rows that logical replication brings, too, each by an event of its own.
    #[arg(long)]
    fire_on_replica: bool,
    /// Shows what would be watched, and what some rows would make stale; installs nothing.
    #[arg(long)]
    dry_run: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    locking: Locking,
}

impl Watch {
    pub(super) async fn run(self, place: &Place) -> Result<()> {
        let (dry_run, json) = (self.dry_run, self.json);
        let mut admin = place.admin_locking(&self.locking).await?;
        let definition = self.definition();
        let samples = admin.samples(&definition).await?;
        if !json {
            if dry_run {
                print(format!(
                    "{} would be watched:{}",
                    definition.table,
                    templates(&definition)
                ))?;
            }
            print(shown(&definition.table, &samples))?;
        }
        let (said, done) = match dry_run {
            true => ("", "dry_run"),
            false => match admin.watch(&definition).await? {
                Watched::Installed => ("is now watched", "installed"),
                Watched::Replaced => ("is now watched anew", "replaced"),
                Watched::Unchanged => ("is watched so already", "unchanged"),
            },
        };
        if json {
            let (samples, unread) = match &samples {
                Samples::Of(samples) => (samples.as_slice(), None),
                Samples::Unread(error) => (&[][..], Some(error.to_string())),
            };
            print(json!({ "done": done, "definition": definition, "samples": samples, "unread": unread }))?;
        } else if !dry_run {
            print(format!("{} {said}", definition.table))?;
        }
        Ok(())
    }

    fn definition(self) -> WatchDefinition {
        let mut definition = WatchDefinition::new(self.table);
        definition.key = self.key;
        definition.tags = self.tags;
        definition.prefixes = self.prefixes;
        definition.columns = (!self.columns.is_empty()).then_some(self.columns);
        definition.changes = self.changes;
        if let Some(rows) = self.escalate_above {
            definition.escalate_above = rows;
        }
        if self.flush_ok {
            definition.headless = Headless::Flush;
        }
        if self.fire_on_replica {
            definition.replicated = Replicated::Tell;
        }
        definition
    }
}

fn templates(definition: &WatchDefinition) -> String {
    texts(definition.key.as_deref(), &definition.tags, &definition.prefixes)
}

fn texts(key: Option<&str>, tags: &[String], prefixes: &[String]) -> String {
    let key = key.map(|key| format!("  key {key}"));
    let tags = tags.iter().map(|tag| format!("  tag {tag}"));
    let prefixes = prefixes.iter().map(|prefix| format!("  prefix {prefix}"));
    key.into_iter().chain(tags).chain(prefixes).collect()
}

fn shown(table: &str, samples: &Samples) -> String {
    match samples {
        Samples::Unread(error) => format!("no samples: {error}"),
        Samples::Of(samples) if samples.is_empty() => format!("{table} has no rows yet: no samples"),
        Samples::Of(samples) => {
            let line = |sample: &Sample| {
                let texts = texts(sample.key.as_deref(), &sample.tags, &sample.prefixes);
                format!("\n{texts}")
            };
            let lines: String = samples.iter().map(line).collect();
            format!("rows of {table} make stale:{lines}")
        }
    }
}

/// Takes the watch off a table.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  pgevict unwatch products")]
pub(super) struct Unwatch {
    /// The table, as in SQL.
    table: String,
    #[command(flatten)]
    locking: Locking,
}

impl Unwatch {
    pub(super) async fn run(self, place: &Place) -> Result<()> {
        let was = place
            .admin_locking(&self.locking)
            .await?
            .unwatch(&self.table)
            .await?;
        let said = if was {
            "is no longer watched"
        } else {
            "was not watched"
        };
        print(format!("{} {said}", self.table))?;
        Ok(())
    }
}

/// Lists the watches; exit code 1 when one of them is not whole.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pgevict watches
  pgevict watches --json")]
pub(super) struct Watches {
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

impl Watches {
    pub(super) async fn run(self, place: &Place) -> Result<bool> {
        let watches = place.admin().await?.watches().await?;
        let whole = watches.iter().all(|watch| watch.state == WatchState::Ok);
        if self.json {
            let list: Vec<_> = watches
                .iter()
                .map(|watch| {
                    json!({
                        "schema": watch.schema,
                        "table": watch.table,
                        "key": watch.definition.key,
                        "tags": watch.definition.tags,
                        "prefixes": watch.definition.prefixes,
                        "columns": watch.definition.columns,
                        "changes": watch.definition.changes,
                        "escalate_above": watch.definition.escalate_above,
                        "fire_on_replica": watch.definition.replicated == Replicated::Tell,
                        "state": state(watch.state),
                        "reason": watch.reason,
                        "cure": watch.cure,
                        "since": watch.since.map(since),
                        "detached": watch.detached,
                    })
                })
                .collect();
            print(json!({ "watches": list }))?;
            return Ok(whole);
        }
        for watch in &watches {
            let definition = &watch.definition;
            let mut line = format!("{:8} {}", state(watch.state), watch.name());
            if let Some(key) = &definition.key {
                line += &format!("  key {key}");
            }
            for (name, templates) in [("tag", &definition.tags), ("prefix", &definition.prefixes)] {
                for template in templates {
                    line += &format!("  {name} {template}");
                }
            }
            if definition.changes {
                line += "  changes";
            }
            print(line)?;
            if let (Some(reason), Some(cure)) = (&watch.reason, &watch.cure) {
                let since = watch.since.map(|at| format!(", since {}", since(at)));
                print(format!("         {reason}{}: {cure}", since.unwrap_or_default()))?;
            }
            for partition in &watch.detached {
                print(format!("         detached and not watched any more: {partition}"))?;
            }
        }
        if watches.is_empty() {
            print("no table is watched")?;
        }
        Ok(whole)
    }
}

fn since(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

fn state(state: WatchState) -> &'static str {
    match state {
        WatchState::Ok => "ok",
        WatchState::Drifted => "drifted",
        WatchState::Missing => "missing",
    }
}
