//! `pgevict tail`: follows the events.

use std::time::SystemTime;

use anyhow::Result;
use clap::Args;
use pgevict::sink::Pattern;
use pgevict::{Delivery, Event, LoggedEvent, Pgevict};
use serde_json::{Value, json};

use super::{Place, print};

/// Follows events from now on, until interrupted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pgevict tail
  pgevict tail --prefix product: --type 'product.*'
  pgevict tail --json | jq .keys")]
pub(super) struct Tail {
    /// Only events that concern keys or tags beginning so; may be given several times.
    #[arg(long = "prefix", value_name = "PREFIX")]
    prefixes: Vec<String>,
    /// Only events of this type, such as queue.updated or queue.*; may be given several times.
    #[arg(long = "type", value_name = "PATTERN")]
    types: Vec<String>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Ends after so many events.
    #[arg(long, value_name = "EVENTS")]
    count: Option<u64>,
}

impl Tail {
    pub(super) async fn run(self, place: &Place) -> Result<()> {
        let types = self
            .types
            .iter()
            .map(Pattern::new)
            .collect::<Result<Vec<_>, _>>()?;
        let config = place.config()?;
        anyhow::ensure!(
            config.enabled,
            "enabled = false: nothing would be followed; set it to true (PGEVICT_ENABLED)"
        );
        // An address that cannot work is told at once, not after the time that an instance may take to start.
        drop(place.admin().await?);
        let pgevict = Pgevict::builder(config).start().await?;
        let mut events = pgevict.subscribe();
        if !self.json {
            print("# following; ctrl-c ends")?;
        }
        let followed = tokio::select! {
            followed = self.follow(&mut events, &types) => followed,
            signal = tokio::signal::ctrl_c() => Ok(signal?),
        };
        pgevict.shutdown().await;
        followed
    }

    async fn follow(&self, events: &mut pgevict::Subscription, types: &[Pattern]) -> Result<()> {
        let mut left = self.count;
        while left != Some(0)
            && let Some(delivery) = events.next().await
        {
            match delivery {
                Delivery::Event(event) if self.passes(&event, types) => {
                    print(if self.json {
                        envelope(&event).to_string()
                    } else {
                        line(&event)
                    })?;
                    left = left.map(|left| left - 1);
                }
                Delivery::Event(_) => {}
                Delivery::Reset(cause) if self.json => print(json!({"reset": cause.as_str()}))?,
                Delivery::Reset(cause) => print(format!("reset ({})", cause.as_str()))?,
            }
        }
        Ok(())
    }

    /// An event passes if a key or tag of it begins with a filter, or a prefix of it begins with the filter or the
    /// reverse. A flush always passes.
    fn passes(&self, event: &LoggedEvent, types: &[Pattern]) -> bool {
        if event.empties_everything() {
            return true;
        }
        let typed = types.is_empty() || types.iter().any(|pattern| pattern.matches(event));
        typed && (self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| concerns(event, prefix)))
    }
}

fn concerns(event: &Event, prefix: &str) -> bool {
    event.keys.iter().any(|key| key.as_str().starts_with(prefix))
        || event.tags.iter().any(|tag| tag.as_str().starts_with(prefix))
        || event
            .prefixes
            .iter()
            .any(|stale| stale.as_str().starts_with(prefix) || prefix.starts_with(stale.as_str()))
}

fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

fn line(event: &LoggedEvent) -> String {
    let mut line = time(event.created_at);
    line += "  ";
    let kind = event.kind().unwrap_or(if event.flush { "flush" } else { "-" });
    // Escaped or quoted, so that a line break in a text cannot pass for a line of ours.
    line += &kind.escape_debug().to_string();
    for (name, texts) in [
        ("keys", texts(&event.keys)),
        ("tags", texts(&event.tags)),
        ("prefixes", texts(&event.prefixes)),
    ] {
        if !texts.is_empty() {
            let shown: Vec<_> = texts.iter().take(10).map(|text| format!("{text:?}")).collect();
            line += &format!("  {name} {}", shown.join(" "));
            if texts.len() > shown.len() {
                line += &format!(" and {} more", texts.len() - shown.len());
            }
        }
    }
    line
}

fn texts<T: AsRef<str>>(values: &[T]) -> Vec<&str> {
    values.iter().map(AsRef::as_ref).collect()
}

/// The envelope; 64-bit numbers are strings.
fn envelope(event: &LoggedEvent) -> Value {
    json!({
        "v": event.version,
        "uuid": event.uuid,
        "xid": event.xid.to_string(),
        "id": event.id.to_string(),
        "type": event.kind,
        "entity_type": event.entity_type,
        "entity_id": event.entity_id,
        "keys": texts(&event.keys),
        "tags": texts(&event.tags),
        "prefixes": texts(&event.prefixes),
        "flush": event.flush,
        "changes": event.changes,
        "source": event.source,
        "created_at": time(event.created_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_an_event_can_pass_for_a_line_of_ours() {
        let event = LoggedEvent {
            xid: pgevict::snapshot::Xid(1),
            id: 1,
            uuid: Default::default(),
            version: 1,
            announced: pgevict::event::Announced::Silent,
            created_at: SystemTime::UNIX_EPOCH,
            event: Event::new("a.b\nreset (epoch)\x1b[2J")
                .key(pgevict::Key::new("k\nreset (epoch)").unwrap()),
        };
        let line = line(&event);
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(line.contains("a.b"), "{line:?}");
    }
}
