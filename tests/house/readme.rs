//! The README shows what exists.

use crate::source::{read, root, rust_files};

/// The blocks of this language, in order.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let behind = text.split(&fence).skip(1);
    behind
        .map(|rest| rest.split("\n```").next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn the_library_program_is_the_example() {
    let example = read("examples/library.rs");
    let program: Vec<_> = example
        .lines()
        .skip_while(|line| line.starts_with("//!"))
        .collect();
    let shown = blocks(&read("README.md"), "rust");
    assert_eq!(
        shown.iter().map(|block| block.trim()).collect::<Vec<_>>(),
        [program.join("\n").trim()],
        "README.md and examples/library.rs differ"
    );
}

#[test]
fn every_path_exists() {
    for page in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"] {
        let text = read(page);
        let words = text.split(|char: char| !(char.is_alphanumeric() || "_-./".contains(char)));
        let paths = words.map(|word| word.trim_matches('.')).filter(|word| {
            let folder = word.split('/').next().unwrap_or_default();
            word.contains('/') && ["src", "sql", "tests", "scripts", "examples", "benches"].contains(&folder)
        });
        for path in paths {
            assert!(
                root().join(path).exists(),
                "{page} names {path}, which does not exist"
            );
        }
    }
}

#[test]
fn every_command_exists() {
    let commands = commands();
    assert!(commands.contains(&"migrate".to_owned()), "{commands:?}");
    for page in ["README.md", "CHANGELOG.md"] {
        let text = read(page);
        let shown = blocks(&text, "sh");
        let inline = text.split('`').skip(1).step_by(2).map(str::to_owned);
        let lines = shown.iter().flat_map(|block| block.lines()).map(str::to_owned);
        for line in lines.chain(inline) {
            let Some(command) = command_of(&line) else {
                continue;
            };
            assert!(
                commands.contains(&command),
                "{page}: no command {command} in: {line}"
            );
        }
    }
}

/// `watch` of `pgevict --url URL watch ...`; `None` when the line runs something else.
fn command_of(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let program = words.next()?;
    if program.rsplit('/').next() != Some("pgevict") {
        return None;
    }
    while let Some(word) = words.next() {
        match word {
            "--url" | "--config" => drop(words.next()),
            word if word.starts_with('-') => return None,
            word if word.starts_with(|char: char| char.is_ascii_lowercase()) => return Some(word.to_owned()),
            _ => return None,
        }
    }
    None
}

/// Variants of the `Command` enum, as the command line spells them.
fn commands() -> Vec<String> {
    let text = read("src/cli/mod.rs");
    let variants = text.split("enum Command {").nth(1).unwrap_or_default();
    let variants = variants.split('}').next().unwrap_or_default();
    let names = variants.lines().filter_map(|line| line.trim().split('(').next());
    names
        .filter(|name| name.starts_with(|char: char| char.is_ascii_uppercase()))
        .map(str::to_lowercase)
        .collect()
}

#[test]
fn every_test_that_a_proof_names_exists() {
    let mut all = String::new();
    for folder in ["src", "tests"] {
        for path in rust_files(&root().join(folder)) {
            all += &std::fs::read_to_string(path).unwrap();
        }
    }
    let page = read("ARCHITECTURE.md");
    let shown = page
        .split("*Shown by.*")
        .skip(1)
        .filter_map(|rest| rest.split("\n\n").next());
    let names: Vec<_> = shown
        .flat_map(|list| list.split('`').skip(1).step_by(2))
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(
            all.contains(&format!("fn {name}(")),
            "ARCHITECTURE.md names the test {name}, which does not exist"
        );
    }
}
