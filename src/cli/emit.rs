//! `pgevict emit` and `pgevict flush`.

use anyhow::{Context, Result};
use clap::Args;
use pgevict::{Event, Key, Prefix, Tag};

use super::{Place, print};

/// Emits one event in a transaction of its own.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pgevict emit --key product:42
  pgevict emit --prefix product: --type product.imported
  pgevict emit --tag queue:user-tasks --type queue.updated --entity-type queue --entity-id user-tasks \\
      --changes '{\"max_retries\": {\"old\": 3, \"new\": 5}}'")]
pub(super) struct Emit {
    /// Exact cache key that went stale; may be given several times.
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// Tag whose entries went stale; may be given several times.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Leading part of keys or tags that went stale; may be given several times.
    #[arg(long = "prefix", value_name = "PREFIX")]
    prefixes: Vec<String>,
    /// What happened, such as queue.updated.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// What it happened to, such as queue.
    #[arg(long)]
    entity_type: Option<String>,
    /// Which one it happened to.
    #[arg(long)]
    entity_id: Option<String>,
    /// Changed fields, as JSON {"field": {"old": ..., "new": ...}}.
    #[arg(long, value_name = "JSON")]
    changes: Option<String>,
}

impl Emit {
    pub(super) async fn run(self, place: &Place) -> Result<()> {
        let mut event = Event::default();
        for key in self.keys {
            event.keys.push(Key::new(key)?);
        }
        for tag in self.tags {
            event.tags.push(Tag::new(tag)?);
        }
        for prefix in self.prefixes {
            event.prefixes.push(Prefix::new(prefix)?);
        }
        event.kind = self.kind;
        event.entity_type = self.entity_type;
        event.entity_id = self.entity_id;
        if let Some(text) = self.changes {
            let changes: serde_json::Value = serde_json::from_str(&text).context("--changes is not JSON")?;
            anyhow::ensure!(
                changes.is_object(),
                "--changes has to be an object, such as {{\"price\": {{\"old\": 1, \"new\": 2}}}}"
            );
            event.changes = Some(changes);
        }
        let xid = place.admin().await?.emit(&event).await?;
        print(format!("emitted in transaction {xid}"))?;
        Ok(())
    }
}

/// Emits the event that empties every cache.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  pgevict flush")]
pub(super) struct Flush {}

impl Flush {
    pub(super) async fn run(self, place: &Place) -> Result<()> {
        let xid = place.admin().await?.emit(&Event::flush()).await?;
        print(format!("flush emitted in transaction {xid}"))?;
        Ok(())
    }
}
