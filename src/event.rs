//! Keys, tags, prefixes and events: values without I/O and without a clock.
//!
//! An [`Event`] is what a writer emits and what the log stores: what changed, and which keys, tags and prefixes
//! went stale. A [`LoggedEvent`] is such an event at its place in the log. An event never carries a value to
//! store, so events commute and may be applied more than once.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::snapshot::Xid;

mod key_text;

#[doc(hidden)]
pub use key_text::check_template;
pub use key_text::{KeyValue, ValueText};

/// Largest key, tag or prefix, in bytes (1 MiB).
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// Newest envelope version that this crate understands; an event of a newer one is applied as a flush.
pub const ENVELOPE_VERSION: i16 = 1;

macro_rules! text_value {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and wraps the text.
            ///
            /// # Errors
            /// Invalid when the text holds U+0000 (PostgreSQL cannot store it) or is over 1 MiB.
            pub fn new(text: impl Into<Arc<str>>) -> Result<Self> {
                let text = text.into();
                check_text($field, &text)?;
                Ok(Self(text))
            }

            /// What the macro of this type makes; the template has been checked when compiled.
            #[doc(hidden)]
            pub fn of_template(template: &str, names: &[&str], values: &[&dyn KeyValue]) -> Self {
                Self(key_text::fill(template, names, values).into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Text that is known to be good because it comes from the log.
            pub(crate) fn stored(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Error;
            fn try_from(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self> {
                Self::new(text)
            }
        }
    };
}

text_value!(
    /// Exact cache key, such as `product:42`.
    Key,
    "key"
);
text_value!(
    /// Group label that entries carry, such as `category:7`.
    Tag,
    "tag"
);
text_value!(
    /// Leading part of a key or of a tag: drops an entry if its key or one of its tags begins with it.
    Prefix,
    "prefix"
);

fn check_text(field: &str, text: &str) -> Result<()> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Error::invalid(format!(
            "{field} of {} bytes is over the limit of {MAX_TEXT_BYTES} bytes (1 MiB): use a shorter {field}, such as a hash of it",
            text.len()
        )));
    }
    if text.contains('\0') {
        return Err(Error::invalid(format!(
            "{field} holds U+0000, which PostgreSQL cannot store: remove it or encode it as %00"
        )));
    }
    Ok(())
}

/// What changed, and which keys, tags and prefixes went stale: the envelope.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// Exact cache keys that went stale.
    pub keys: Vec<Key>,
    /// Entries that carry one of these tags went stale.
    pub tags: Vec<Tag>,
    /// Entries whose key or one of whose tags begins with one of these went stale.
    pub prefixes: Vec<Prefix>,
    /// Everything went stale.
    pub flush: bool,
    /// What happened, such as `queue.updated`.
    pub kind: Option<String>,
    /// What it happened to, such as `queue`.
    pub entity_type: Option<String>,
    /// Which one it happened to.
    pub entity_id: Option<String>,
    /// `{field: {"old": ..., "new": ...}}`.
    pub changes: Option<Value>,
    /// Id of the instance that emitted it, when an instance did.
    pub source: Option<String>,
}

impl Event {
    /// An event of this type, such as `queue.updated`.
    pub fn new(kind: impl Into<String>) -> Self {
        Self {
            kind: Some(kind.into()),
            ..Self::default()
        }
    }

    /// `ENTITY.created` for one entity.
    pub fn created(entity_type: &str, entity_id: impl fmt::Display) -> Self {
        Self::of_entity(entity_type, "created", entity_id)
    }

    /// `ENTITY.updated` for one entity.
    pub fn updated(entity_type: &str, entity_id: impl fmt::Display) -> Self {
        Self::of_entity(entity_type, "updated", entity_id)
    }

    /// `ENTITY.deleted` for one entity.
    pub fn deleted(entity_type: &str, entity_id: impl fmt::Display) -> Self {
        Self::of_entity(entity_type, "deleted", entity_id)
    }

    /// The event that empties everything.
    pub fn flush() -> Self {
        Self {
            flush: true,
            ..Self::default()
        }
    }

    fn of_entity(entity_type: &str, verb: &str, entity_id: impl fmt::Display) -> Self {
        Self {
            kind: Some(format!("{entity_type}.{verb}")),
            entity_type: Some(entity_type.to_owned()),
            entity_id: Some(entity_id.to_string()),
            ..Self::default()
        }
    }

    /// Adds a stale key.
    #[must_use]
    pub fn key(mut self, key: Key) -> Self {
        self.keys.push(key);
        self
    }

    /// Adds a stale tag.
    #[must_use]
    pub fn tag(mut self, tag: Tag) -> Self {
        self.tags.push(tag);
        self
    }

    /// Adds a stale prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: Prefix) -> Self {
        self.prefixes.push(prefix);
        self
    }

    /// Sets `changes`: `{field: {"old": ..., "new": ...}}`.
    #[must_use]
    pub fn changes(mut self, changes: Value) -> Self {
        self.changes = Some(changes);
        self
    }

    /// Type, such as `queue.updated`.
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    /// Type of the entity.
    pub fn entity_type(&self) -> Option<&str> {
        self.entity_type.as_deref()
    }

    /// Id of the entity; `None` when the event covers many rows.
    pub fn entity_id(&self) -> Option<&str> {
        self.entity_id.as_deref()
    }

    /// Checks what the log would refuse.
    ///
    /// # Errors
    /// Invalid when a key, tag or prefix is over 1 MiB, which [`key!`](crate::key) lets pass, and when a prefix is
    /// empty: it would empty everything, and that is said by [`Event::flush`].
    pub fn check(&self) -> Result<()> {
        self.keys
            .iter()
            .try_for_each(|key| check_text("key", key.as_str()))?;
        self.tags
            .iter()
            .try_for_each(|tag| check_text("tag", tag.as_str()))?;
        for prefix in &self.prefixes {
            check_text("prefix", prefix.as_str())?;
            if prefix.as_str().is_empty() {
                return Err(Error::invalid(
                    "an empty prefix would empty everything: emit a flush for that (`pgevict flush`, Event::flush())",
                ));
            }
        }
        Ok(())
    }

    /// True when the event makes nothing stale.
    pub fn is_empty(&self) -> bool {
        !self.flush && self.keys.is_empty() && self.tags.is_empty() && self.prefixes.is_empty()
    }
}

/// How the writer announced an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Announced {
    /// By a `NOTIFY` in its own transaction.
    Notify,
    /// Left to the bell.
    Bell,
    /// Not at all: polling finds it.
    Silent,
}

impl Announced {
    /// From the stored code: `n`, `b` or anything else.
    pub(crate) fn from_code(code: i8) -> Self {
        match code as u8 {
            b'n' => Self::Notify,
            b'b' => Self::Bell,
            _ => Self::Silent,
        }
    }
}

/// An event at its place in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedEvent {
    /// Top-level transaction that wrote it.
    pub xid: Xid,
    /// Number from the log's sequence; repeats after a crash, so never an identity.
    pub id: i64,
    /// Identity of the event, for delivery ids and dedup.
    pub uuid: Uuid,
    /// Envelope version; unknown ones are applied as a flush.
    pub version: i16,
    /// How the writer announced it.
    pub announced: Announced,
    /// Time of the emit, by the database's clock.
    pub created_at: SystemTime,
    /// The envelope.
    pub event: Event,
}

impl LoggedEvent {
    /// True when applying it empties everything: a flush, or an envelope this crate does not know.
    pub fn empties_everything(&self) -> bool {
        self.event.flush || self.version > ENVELOPE_VERSION || self.version < 1
    }
}

impl Deref for LoggedEvent {
    type Target = Event;
    fn deref(&self) -> &Event {
        &self.event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_text_is_refused_with_field_and_cure() {
        let error = Key::new("a\0b").unwrap_err();
        assert!(error.is_invalid());
        assert!(error.to_string().contains("key holds U+0000"), "{error}");
        let error = Tag::new("x".repeat(MAX_TEXT_BYTES + 1)).unwrap_err();
        assert!(error.to_string().starts_with("tag of 1048577 bytes"), "{error}");
        assert!(Prefix::new("x".repeat(MAX_TEXT_BYTES)).is_ok());
    }

    #[test]
    fn builder_fills_the_envelope() {
        let event = Event::updated("queue", 7).key(Key::new("queue:7").unwrap());
        assert_eq!(event.kind(), Some("queue.updated"));
        assert_eq!(
            (event.entity_type(), event.entity_id()),
            (Some("queue"), Some("7"))
        );
        assert!(!event.is_empty());
        assert!(Event::new("x").is_empty());
    }
}
