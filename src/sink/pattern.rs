//! Which events a handler or a stream wants, by type.

use std::fmt;

use crate::error::{Error, Result};
use crate::event::Event;

/// A type (`queue.updated`), all types that begin alike (`queue.*`), or every event (`*`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Invalid when it is empty or has a `*` anywhere but at its end.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        if text.is_empty() || text.strip_suffix('*').unwrap_or(&text).contains('*') {
            return Err(Error::invalid(format!(
                "pattern {text:?}: use a type such as queue.updated, a leading part such as queue.*, or * for all"
            )));
        }
        Ok(Self(text))
    }

    /// True when the event's type fits. An event without a type fits `*` only.
    pub fn matches(&self, event: &Event) -> bool {
        match (self.0.strip_suffix('*'), event.kind()) {
            (Some(""), _) => true,
            (Some(head), Some(kind)) => kind.starts_with(head),
            (None, Some(kind)) => kind == self.0,
            (_, None) => false,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_leading_and_all() {
        let fits = |pattern: &str, kind: &str| Pattern::new(pattern).unwrap().matches(&Event::new(kind));
        assert!(fits("queue.updated", "queue.updated"));
        assert!(!fits("queue.updated", "queue.updated2"));
        assert!(fits("queue.*", "queue.deleted"));
        assert!(!fits("queue.*", "queues.deleted"));
        assert!(fits("caché", "caché") && fits("caché*", "caché.x") && !fits("caché", "cache"));
        assert!(fits("*", "anything"));
        assert!(Pattern::new("*").unwrap().matches(&Event::default()));
        assert!(!Pattern::new("queue.*").unwrap().matches(&Event::default()));
    }

    #[test]
    fn odd_patterns_are_refused() {
        for bad in ["", "a*b", "**", "*a", "*a*"] {
            assert!(Pattern::new(bad).is_err(), "{bad}");
        }
    }
}
