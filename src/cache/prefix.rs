//! Prefixes filed by their length, so that finding those of a text costs one look-up a length, not one a prefix.

use std::collections::{BTreeMap, HashMap};

use crate::event::Prefix;

/// A map from prefixes to `T` that is asked with texts.
#[derive(Debug)]
pub(super) struct ByLength<T>(BTreeMap<usize, HashMap<Prefix, T>>);

impl<T> Default for ByLength<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> ByLength<T> {
    /// What is filed under the prefix, made now if there is nothing. The flag says that it was made.
    pub(super) fn at(&mut self, prefix: &Prefix) -> (&mut T, bool)
    where
        T: Default,
    {
        use std::collections::hash_map::Entry;
        match self
            .0
            .entry(prefix.as_str().len())
            .or_default()
            .entry(prefix.clone())
        {
            Entry::Occupied(entry) => (entry.into_mut(), false),
            Entry::Vacant(entry) => (entry.insert(T::default()), true),
        }
    }

    /// Everything filed under a prefix of `text`.
    pub(super) fn of<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a T> {
        self.0
            .range(..=text.len())
            .filter_map(|(length, filed)| filed.get(text.get(..*length)?))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = (Prefix, T)> {
        self.0.into_values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_exactly_the_prefixes_of_a_text() {
        let mut prefixes = ByLength::<u8>::default();
        for (n, prefix) in ["", "a", "ab", "ax", "é", "abcd"].iter().enumerate() {
            *prefixes.at(&Prefix::stored(*prefix)).0 = n as u8;
        }
        let found = |text: &str| prefixes.of(text).copied().collect::<Vec<_>>();
        assert_eq!(found("abc"), [0, 1, 2]);
        assert_eq!(found(""), [0]);
        assert_eq!(found("èa"), [0], "a length inside a character matches nothing");
        assert_eq!(found("éa"), [0, 4]);
    }
}
