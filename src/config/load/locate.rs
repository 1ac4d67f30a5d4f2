//! On which line of a TOML text a setting stands.

/// Line of `key`, counted from 1, or of the inline table that holds it; `None` when it is written in a way that
/// this does not read, such as inside a multi-line value.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    let mut wanted = key;
    loop {
        if let Some(line) = exact(text, wanted) {
            return Some(line);
        }
        wanted = wanted.rsplit_once('.')?.0;
    }
}

fn exact(text: &str, key: &str) -> Option<usize> {
    let mut section = String::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = plain(
                header
                    .trim_start_matches('[')
                    .split(']')
                    .next()
                    .unwrap_or_default(),
            );
            if section == key {
                return Some(number + 1);
            }
        } else if let Some((name, _)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            let name = plain(name);
            let full = if section.is_empty() {
                name
            } else {
                format!("{section}.{name}")
            };
            if full == key {
                return Some(number + 1);
            }
        }
    }
    None
}

/// A dotted key without spaces and quotes.
fn plain(key: &str) -> String {
    key.chars()
        .filter(|char| !char.is_whitespace() && *char != '"' && *char != '\'')
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_keys_in_every_ordinary_form() {
        let text = "a = 1\n# b = 2\nb = 2 # x = 3\nx.y = 1\n\n[s]\na = 3\nt . \"u\" = 4\n[s.v] # note\nw = 5\ni = { j = 1 }\n[e]";
        let lines = [
            ("a", 1),
            ("b", 3),
            ("x.y", 4),
            ("s.a", 7),
            ("s.t.u", 8),
            ("s.v.w", 10),
            ("s.v.i.j", 11),
            ("e", 12),
        ];
        for (key, line) in lines {
            assert_eq!(line_of(text, key), Some(line), "{key}");
        }
        assert_eq!(line_of(text, "z"), None);
    }
}
