//! A room of `src/` uses the rooms above it, never one below; and no circle among files.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Files, Source, read, sources};

/// The rooms, ground floor first. A room may use the rooms before it in this list.
///
/// `snapshot` stands before `event`: the place of an event in the log is a transaction id.
const ORDER: [&str; 14] = [
    "error", "snapshot", "event", "config", "status", "sink", "cache", "store", "wake", "emit", "feed",
    "lab", "instance", "cli",
];

/// What the root of the crate hands on that is no re-export: the macros of `event`.
const MACROS: [&str; 3] = ["key", "tag", "prefix"];

fn floor(room: &str) -> Option<usize> {
    ORDER.iter().position(|known| *known == room)
}

/// Room of a file; `None` for `lib.rs`, which is the map, and `main.rs`, which only starts `cli`.
fn room_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("src/")?;
    let room = rest.split('/').next()?;
    let room = room.strip_suffix(".rs").unwrap_or(room);
    (!matches!(room, "lib" | "main")).then_some(room)
}

/// Rooms that a file uses, with the line of the first use.
fn uses(source: &Source, files: &Files) -> BTreeMap<String, usize> {
    let mut used = BTreeMap::new();
    let mut add = |path: &[String], line: usize| {
        if path.first().is_some_and(|first| MACROS.contains(&first.as_str())) && path.len() == 1 {
            used.entry("event".to_owned()).or_insert(line);
        } else if let Some(room) = files.find(path).and_then(room_of) {
            used.entry(room.to_owned()).or_insert(line);
        }
    };
    for named in source.named() {
        add(&named.path, named.line);
    }
    used
}

#[test]
fn a_room_uses_only_the_rooms_before_it() {
    let sources = sources();
    let files = Files::of(&sources);
    let mut wrong = Vec::new();
    for source in &sources {
        let Some(room) = room_of(&source.path) else {
            continue;
        };
        let Some(here) = floor(room) else {
            wrong.push(format!(
                "{}: the room {room} has no place in the order",
                source.path
            ));
            continue;
        };
        for (used, line) in uses(source, &files) {
            if floor(&used).is_some_and(|there| there > here) {
                wrong.push(format!("{}:{line}: {room} -> {used}", source.path));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "a room uses a room below it:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn no_circle_among_files() {
    let sources = sources();
    let files = Files::of(&sources);
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in &sources {
        let named = source.named();
        let named = named.iter().filter(|named| named.absolute && !named.handed_on);
        let used = named.filter_map(|named| files.find(&named.path));
        let others = used.filter(|other| *other != source.path && *other != "src/lib.rs");
        edges.entry(&source.path).or_default().extend(others);
    }
    let mut done = BTreeSet::new();
    for start in edges.keys() {
        if let Some(circle) = circle(start, &edges, &mut Vec::new(), &mut done) {
            panic!("files in a circle: {}", circle.join(" -> "));
        }
    }
}

fn circle<'a>(
    file: &'a str,
    edges: &BTreeMap<&'a str, BTreeSet<&'a str>>,
    way: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<&'a str>> {
    if let Some(at) = way.iter().position(|before| *before == file) {
        return Some(way[at..].iter().copied().chain([file]).collect());
    }
    if done.contains(file) {
        return None;
    }
    way.push(file);
    for next in edges.get(file).into_iter().flatten() {
        if let Some(found) = circle(next, edges, way, done) {
            return Some(found);
        }
    }
    way.pop();
    done.insert(file);
    None
}

#[test]
fn the_architecture_page_has_the_same_order() {
    let page = read("ARCHITECTURE.md");
    let line = ORDER.map(|room| format!("`{room}`")).join(" < ");
    assert!(page.contains(&line), "ARCHITECTURE.md lacks the line\n{line}");
}
