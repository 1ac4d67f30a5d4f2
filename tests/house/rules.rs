//! Rules about single files.

use crate::source::{Source, sources};

/// A file of more lines fails; up to `LONG` passes unnoticed.
const TOO_LONG: usize = 450;
const LONG: usize = 400;

/// Where SQL may stand: the store; the lab, which makes servers; the demo, which plays the application.
const SQL_ROOMS: [&str; 3] = ["src/store/", "src/lab/", "src/cli/demo/"];

/// What a string of SQL begins with, in either case.
const SQL: [&str; 11] = [
    "select ",
    "insert into ",
    "delete from ",
    "create ",
    "drop ",
    "alter ",
    "truncate ",
    "set local ",
    "lock table ",
    "grant ",
    "revoke ",
];

/// The same, in lower case only: in upper case our log lines speak of them.
const LOWER_SQL: [&str; 5] = ["listen ", "unlisten ", "notify ", "with ", "begin;"];

#[test]
fn sql_stands_in_the_store_only() {
    let mut wrong = Vec::new();
    for source in sources() {
        if SQL_ROOMS.iter().any(|room| source.path.starts_with(room)) {
            continue;
        }
        for (n, line) in source.strings.lines().enumerate() {
            if is_sql(line) {
                wrong.push(format!("{}:{}: {}", source.path, n + 1, line.trim()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "SQL outside of src/store:\n{}",
        wrong.join("\n")
    );
}

fn is_sql(line: &str) -> bool {
    let line = line.trim_start_matches(|char: char| !char.is_alphabetic());
    let names_ours = line.match_indices("pgevict.").any(|(at, name)| {
        let rest = &line[at + name.len()..];
        rest.starts_with(|char: char| char.is_ascii_lowercase() || char == '_')
    });
    let begins = |word: &str| line.starts_with(word) || line.starts_with(&word.to_uppercase());
    let updates = begins("update ") && line.to_lowercase().contains(" set ");
    names_ours
        || updates
        || SQL.iter().any(|word| begins(word))
        || LOWER_SQL.iter().any(|word| line.starts_with(word))
}

#[test]
fn a_file_can_be_read_in_one_sitting() {
    let mut wrong = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > LONG {
            // Shown by a run with --no-capture.
            println!("{}: {lines} lines, more than {LONG}", source.path);
        }
        if lines > TOO_LONG {
            wrong.push(format!("{}: {lines} lines", source.path));
        }
    }
    assert!(
        wrong.is_empty(),
        "more than {TOO_LONG} lines:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn an_unwrap_has_its_proof() {
    let wrong: Vec<_> = sources().iter().flat_map(unproved).collect();
    assert!(
        wrong.is_empty(),
        "no comment on the line or the one above proves it:\n{}",
        wrong.join("\n")
    );
}

fn unproved(source: &Source) -> Vec<String> {
    let raw: Vec<_> = source.text.lines().collect();
    let mut wrong = Vec::new();
    for (n, code) in source.code.lines().enumerate() {
        let unwraps = code.contains(".unwrap()") || code.contains(".expect(");
        let proved = raw[n].contains("//") || (n > 0 && raw[n - 1].trim_start().starts_with("//"));
        if unwraps && !proved {
            wrong.push(format!("{}:{}: {}", source.path, n + 1, raw[n].trim()));
        }
    }
    wrong
}

#[test]
fn the_rules_can_be_broken() {
    assert!(is_sql("\"select pgevict.emit($1)\"") && is_sql("\"UPDATE t SET a = 1\"") && is_sql("listen x"));
    assert!(!is_sql("\"LISTEN session lost\"") && !is_sql("\"pgevict.\""));
    assert!(!is_sql("\"set listen_url to a direct address\"") && !is_sql("\"pgevict=warn\""));
    let source = |text: &str| Source::of("src/x.rs".to_owned(), vec!["x".to_owned()], text.to_owned());
    assert_eq!(unproved(&source("fn f() {\n    g().unwrap();\n}\n")).len(), 1);
    assert!(
        unproved(&source(
            "fn f() {\n    // Never empty.\n    g().expect(\"x\");\n}\n"
        ))
        .is_empty()
    );
    assert!(
        unproved(&source(
            "#[cfg(test)]\nmod tests {\n    fn f() { g().unwrap() }\n}\n"
        ))
        .is_empty()
    );
}
