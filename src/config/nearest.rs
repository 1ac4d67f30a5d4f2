//! The known name that a misspelt one most resembles.

/// The most similar of `names`, if it is similar enough to suggest it.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are no misspellings, and the distance takes quadratic time.
    if word.len() > 60 {
        return None;
    }
    let (distance, name) = names
        .map(|name| (distance(word, name), name))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + name.len() / 5).then_some(name)
}

/// Levenshtein's distance: letters to insert, delete or replace.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, from) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], n + 1);
        for (m, to) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[m + 1];
            row[m + 1] = replaced.min(row[m] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (one, other, expected) in [
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("poll", "poll", 0),
            ("a", "b", 1),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn only_what_is_similar_is_suggested() {
        let names = ["poll", "page_min", "statement_timeout"];
        let near = |word| nearest(word, names.into_iter());
        assert_eq!(near("pol"), Some("poll"));
        assert_eq!(near("pagemin"), Some("page_min"));
        assert_eq!(near("statement_timout"), Some("statement_timeout"));
        assert_eq!(near("colour"), None);
        assert_eq!(near(&"x".repeat(1000)), None);
    }
}
