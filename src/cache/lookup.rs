//! What a look at the cache gives.

use std::ops::Deref;

/// Whether a value could be proved fresh when it was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// Every change that was visible within `max_staleness` before has been applied to it.
    Fresh,
    /// The last proof is older than that, or a clock jumped: it may be arbitrarily old
    /// ([`WhenStale::Serve`](crate::config::WhenStale::Serve)).
    Stale,
}

/// What the cache holds under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup<V> {
    /// A value.
    Hit(V, Freshness),
    /// The knowledge that there is none: a load found nothing.
    Absent(Freshness),
    /// Nothing, or nothing that can be proved fresh ([`WhenStale::Bypass`](crate::config::WhenStale::Bypass)).
    Miss,
    /// An entry that cannot be proved fresh and that the policy forbids to serve
    /// ([`WhenStale::Fail`](crate::config::WhenStale::Fail)).
    Stale,
}

impl<V> Lookup<V> {
    /// The value, when there is one to serve.
    pub fn into_value(self) -> Option<V> {
        match self {
            Self::Hit(value, _) => Some(value),
            Self::Absent(_) | Self::Miss | Self::Stale => None,
        }
    }

    /// True for [`Lookup::Hit`].
    pub fn is_hit(&self) -> bool {
        matches!(self, Self::Hit(..))
    }

    /// True for [`Lookup::Miss`].
    pub fn is_miss(&self) -> bool {
        matches!(self, Self::Miss)
    }
}

/// What `get_or_load` gives: the value, or the knowledge that there is none, and whether it is fresh.
///
/// Dereferences to `Option<V>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<V> {
    value: Option<V>,
    freshness: Freshness,
}

impl<V> Answer<V> {
    pub(super) fn new(value: Option<V>, freshness: Freshness) -> Self {
        Self { value, freshness }
    }

    /// The value; `None` when there is none.
    pub fn into_value(self) -> Option<V> {
        self.value
    }

    /// Stale only under [`WhenStale::Serve`](crate::config::WhenStale::Serve).
    pub fn freshness(&self) -> Freshness {
        self.freshness
    }
}

impl<V> Deref for Answer<V> {
    type Target = Option<V>;
    fn deref(&self) -> &Option<V> {
        &self.value
    }
}
