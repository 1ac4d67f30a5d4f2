//! The sources as text: which are tests, what is code, what stands in strings, and which files a file names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A file below `src/`.
pub(crate) struct Source {
    /// From the root of the repository.
    pub(crate) path: String,
    /// Module path within its crate; empty for `lib.rs` and `main.rs`.
    pub(crate) module: Vec<String>,
    /// As it is.
    pub(crate) text: String,
    /// Without comments, strings and inline test modules; line breaks kept.
    pub(crate) code: String,
    /// What stands in strings outside of test modules; line breaks kept.
    pub(crate) strings: String,
}

/// A path that a file names, from the root of its crate, and how it was written.
pub(crate) struct Named {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
    /// Began with `crate`.
    pub(crate) absolute: bool,
    /// Behind `pub use`: handed on, not used.
    pub(crate) handed_on: bool,
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The Rust files below a folder, in order.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    walk(folder, &mut paths);
    paths.sort();
    paths
}

/// Every file below `src/` that is no test, in order.
pub(crate) fn sources() -> Vec<Source> {
    let paths = rust_files(&root().join("src"));
    let mut sources: Vec<_> = paths.iter().map(|path| Source::read(path)).collect();
    let tests: Vec<Vec<String>> = sources.iter().flat_map(Source::test_files).collect();
    sources.retain(|source| !tests.iter().any(|test| source.module.starts_with(test)));
    sources
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

impl Source {
    fn read(path: &Path) -> Self {
        let path = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let text = read(&path);
        let module = path["src/".len()..path.len() - ".rs".len()].split('/');
        let mut module: Vec<_> = module.map(str::to_owned).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        Self::of(path, module, text)
    }

    pub(crate) fn of(path: String, module: Vec<String>, text: String) -> Self {
        let (mut code, mut strings) = take_apart(&text);
        while let Some((from, until)) = inline_test(&code) {
            code = blank(&code, from, until);
            strings = blank(&strings, from, until);
        }
        Self {
            path,
            module,
            text,
            code,
            strings,
        }
    }

    /// Modules declared as `#[cfg(test)] mod name;`.
    fn test_files(&self) -> Vec<Vec<String>> {
        let lines: Vec<_> = self.code.lines().map(str::trim).collect();
        let declared = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]");
        declared
            .filter_map(|pair| pair[1].strip_prefix("mod ")?.strip_suffix(';'))
            .map(|name| self.module.iter().cloned().chain([name.to_owned()]).collect())
            .collect()
    }

    /// Every path that begins with `crate`, `super` or `self`; behind `pub use` also those of child modules.
    pub(crate) fn named(&self) -> Vec<Named> {
        let tokens = tokens(&self.code);
        let mut named = Vec::new();
        let mut n = 0;
        while n < tokens.len() {
            let (word, line) = &tokens[n];
            let handed_on = word == "use" && n > 0 && matches!(tokens[n - 1].0.as_str(), "pub" | ")");
            let begins = matches!(word.as_str(), "crate" | "super" | "self")
                && tokens.get(n + 1).is_some_and(|(next, _)| next == "::")
                && (n == 0 || tokens[n - 1].0 != "$");
            if !handed_on && !begins {
                n += 1;
                continue;
            }
            let mut leaves = Vec::new();
            let from = if handed_on { n + 1 } else { n };
            n = tree(&tokens, from, &[], &mut leaves).max(from);
            for leaf in leaves {
                let absolute = leaf.first().is_some_and(|first| first == "crate");
                named.push(Named {
                    path: self.rooted(&leaf),
                    line: *line,
                    absolute,
                    handed_on,
                });
            }
        }
        named
    }

    fn rooted(&self, path: &[String]) -> Vec<String> {
        let mut base = self.module.clone();
        let mut rest = path;
        while let Some((first, more)) = rest.split_first() {
            match first.as_str() {
                "crate" => base.clear(),
                "super" => drop(base.pop()),
                "self" => {}
                _ => break,
            }
            rest = more;
        }
        base.extend_from_slice(rest);
        base
    }
}

/// Which file a path leads to, re-exports followed.
pub(crate) struct Files {
    by_module: BTreeMap<Vec<String>, String>,
    handed_on: BTreeMap<Vec<String>, Vec<String>>,
}

impl Files {
    pub(crate) fn of(sources: &[Source]) -> Self {
        let mut files = Self {
            by_module: BTreeMap::new(),
            handed_on: BTreeMap::new(),
        };
        for source in sources.iter().filter(|source| source.path != "src/main.rs") {
            files.by_module.insert(source.module.clone(), source.path.clone());
            for named in source.named().into_iter().filter(|named| named.handed_on) {
                let name = named.path.last().cloned();
                let here = source.module.iter().cloned().chain(name).collect();
                files.handed_on.insert(here, named.path);
            }
        }
        files
    }

    /// The file that defines what the path names.
    pub(crate) fn find(&self, path: &[String]) -> Option<&str> {
        for length in (1..=path.len()).rev() {
            if let Some(elsewhere) = self.handed_on.get(&path[..length])
                && elsewhere != path
            {
                return self.find(elsewhere);
            }
            if let Some(file) = self.by_module.get(&path[..length]) {
                return Some(file);
            }
        }
        self.by_module.get(&Vec::new()).map(String::as_str)
    }
}

/// Code and strings of a Rust text, each with the rest blanked out.
fn take_apart(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let (mut code, mut strings) = (String::new(), String::new());
    let mut n = 0;
    while n < chars.len() {
        let rest = &chars[n..];
        let (length, is_string) = match rest {
            ['/', '/', ..] => (rest.iter().take_while(|char| **char != '\n').count(), false),
            ['/', '*', ..] => (block_comment(rest), false),
            ['"', ..] => (string(rest), true),
            ['r', '"' | '#', ..] if n == 0 || !is_word(chars[n - 1]) => (raw_string(rest), true),
            ['\'', '\\', ..] => (
                3 + rest[3..].iter().take_while(|char| **char != '\'').count(),
                false,
            ),
            ['\'', _, '\'', ..] => (3, false),
            _ => (0, false),
        };
        for char in &rest[..length.max(1)] {
            let gap = if *char == '\n' { '\n' } else { ' ' };
            code.push(if length == 0 { *char } else { gap });
            strings.push(if is_string && length > 0 { *char } else { gap });
        }
        n += length.max(1);
    }
    (code, strings)
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn string(rest: &[char]) -> usize {
    let mut n = 1;
    while n < rest.len() && rest[n] != '"' {
        n += if rest[n] == '\\' { 2 } else { 1 };
    }
    (n + 1).min(rest.len())
}

/// 0 when it is none.
fn raw_string(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|char| **char == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let end: Vec<char> = std::iter::once('"')
        .chain(std::iter::repeat_n('#', hashes))
        .collect();
    let body = &rest[hashes + 2..];
    let found = body.windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |at| hashes + 2 + at + end.len())
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut n) = (0, 0);
    while n < rest.len() {
        match rest[n..] {
            ['/', '*', ..] => (depth, n) = (depth + 1, n + 2),
            ['*', '/', ..] => (depth, n) = (depth - 1, n + 2),
            _ => n += 1,
        }
        if depth == 0 {
            break;
        }
    }
    n
}

/// Where `#[cfg(test)] mod name { ... }` begins and ends, in characters.
fn inline_test(code: &str) -> Option<(usize, usize)> {
    let marker = "#[cfg(test)]\nmod ";
    let at = code.find(marker)?;
    let open = at + code[at..].find('{')?;
    if code[at + marker.len()..open].contains(';') {
        // A module in a file of its own; look behind it.
        let behind = at + marker.len();
        return inline_test(&code[behind..]).map(|(from, until)| {
            let skipped = code[..behind].chars().count();
            (from + skipped, until + skipped)
        });
    }
    let mut depth = 0;
    for (n, char) in code[open..].char_indices() {
        depth += i32::from(char == '{') - i32::from(char == '}');
        if depth == 0 {
            let until = open + n + 1;
            return Some((code[..at].chars().count(), code[..until].chars().count()));
        }
    }
    None
}

fn blank(text: &str, from: usize, until: usize) -> String {
    let blanked = |(n, char): (usize, char)| {
        if (from..until).contains(&n) && char != '\n' {
            ' '
        } else {
            char
        }
    };
    text.chars().enumerate().map(blanked).collect()
}

/// Words and signs, each with its line; `::` is one sign.
fn tokens(code: &str) -> Vec<(String, usize)> {
    let mut tokens: Vec<(String, usize)> = Vec::new();
    for (n, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = match first {
                _ if is_word(first) => rest.find(|char| !is_word(char)).unwrap_or(rest.len()),
                ':' if rest.starts_with("::") => 2,
                _ => first.len_utf8(),
            };
            tokens.push((rest[..length].to_owned(), n + 1));
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// Reads a path or a tree of paths; gives the place behind it.
fn tree(tokens: &[(String, usize)], mut n: usize, base: &[String], leaves: &mut Vec<Vec<String>>) -> usize {
    let mut path = base.to_vec();
    loop {
        match tokens.get(n).map(|(token, _)| token.as_str()) {
            Some("{") => {
                n += 1;
                while let Some((token, _)) = tokens.get(n) {
                    match token.as_str() {
                        "}" => return n + 1,
                        "," => n += 1,
                        _ => n = tree(tokens, n, &path, leaves).max(n + 1),
                    }
                }
                return n;
            }
            Some(word) if word.starts_with(is_word) || word == "*" => {
                // `self` at the end of a tree is the module itself.
                if word != "self" || path.is_empty() {
                    path.push(word.to_owned());
                }
                n += 1;
            }
            _ => {
                leaves.push(path);
                return n;
            }
        }
        match tokens.get(n).map(|(token, _)| token.as_str()) {
            Some("::") => n += 1,
            Some("as") => {
                leaves.push(path);
                return n + 2;
            }
            _ => {
                leaves.push(path);
                return n;
            }
        }
    }
}

#[test]
fn comments_strings_and_tests_are_told_apart() {
    let text = "use crate::a::{B, c::{D, self}}; // crate::x\nfn f<'a>() { g(\"crate::y {\", '\"', r#\"z\"#); }\n\
                #[cfg(test)]\nmod tests {\n    use crate::w;\n}\npub(crate) use child::E as F;\n";
    let source = Source::of("src/m.rs".to_owned(), vec!["m".to_owned()], text.to_owned());
    let named: Vec<_> = source.named().iter().map(|named| named.path.join("::")).collect();
    assert_eq!(named, ["a::B", "a::c::D", "a::c", "m::child::E"]);
    assert!(source.strings.contains("crate::y {") && source.strings.contains("r#\"z\"#"));
    assert_eq!(source.code.lines().count(), text.lines().count());
}
