//! The processes of one server, read from `/proc`.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Kills the postmaster and all it forked, with no chance to react: as when the machine loses power.
///
/// The postmaster is stopped first, so that it neither forks nor cleans up while its children die. Returns the
/// processes that were killed.
pub(super) fn kill_all(postmaster: Pid) -> Vec<Pid> {
    let _ = kill_process(postmaster, Signal::STOP);
    let mut killed = children(postmaster);
    for &pid in &killed {
        let _ = kill_process(pid, Signal::KILL);
    }
    let _ = kill_process(postmaster, Signal::KILL);
    killed.push(postmaster);
    killed
}

/// The process is there and not a zombie: it may still hold the server's shared memory.
pub(super) fn is_alive(pid: Pid) -> bool {
    matches!(stat(&pid.as_raw_nonzero().to_string()), Some((state, _)) if state != "Z" && state != "X")
}

fn children(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let parent = parent.as_raw_nonzero().get();
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str()?;
            let pid = name.parse().ok()?;
            let (_, above) = stat(name)?;
            if above == parent { Pid::from_raw(pid) } else { None }
        })
        .collect()
}

/// State and parent of a process.
fn stat(pid: &str) -> Option<(String, i32)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The program's name stands in parentheses and may hold some itself, hence the last one counts.
fn parse_stat(line: &str) -> Option<(String, i32)> {
    let mut fields = line.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.to_owned();
    Some((state, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stat_line_is_read_past_a_name_with_parentheses() {
        assert_eq!(parse_stat("42 (a (b) c) S 7 42 42 0"), Some(("S".into(), 7)));
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn this_process_is_alive_and_a_child_of_its_parent() {
        let me = rustix::process::getpid();
        assert!(is_alive(me));
        let parent = rustix::process::getppid().unwrap();
        assert!(children(parent).contains(&me));
    }
}
