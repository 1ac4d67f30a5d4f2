//! `config.toml` and the table of settings are complete and say the same.

use super::super::fields::{self, Extremes};
use super::*;

const SHIPPED: &str = include_str!("../../../config.toml");

fn shipped() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config.toml")
}

#[test]
fn the_shipped_file_says_the_defaults() {
    let loaded = Config::load(Some(&shipped()), pairs(&[]), None).unwrap();
    assert_eq!(parts(&loaded), parts(&Config::default()));
    // As part of an application's own settings it reads the same.
    let own = ::config::Config::builder()
        .add_source(::config::File::from(shipped()))
        .build()
        .unwrap();
    assert_eq!(
        parts(&own.try_deserialize::<Config>().unwrap()),
        parts(&Config::default())
    );
    Config::default().check().unwrap();
}

/// The table names each field of the tree. Complete by the compiler: a pattern without `..` per struct.
#[test]
fn the_table_is_complete() {
    macro_rules! keys {
        ($section:literal, $value:expr, $kind:ident { $($field:ident),* }) => {{
            let $kind { $($field: _),* } = $value;
            [$(concat!($section, stringify!($field))),*]
        }};
    }
    let Config {
        session,
        wake,
        feed,
        warden,
        emit,
        cache,
        ..
    } = Config::default();
    let mut keys: Vec<&str> = Vec::new();
    let top = keys!(
        "",
        Config::default(),
        Config {
            url,
            listen_url,
            password_file,
            instance_id,
            enabled,
            max_staleness,
            session,
            wake,
            feed,
            warden,
            emit,
            cache
        }
    );
    keys.extend(
        top.into_iter()
            .filter(|key| !["session", "wake", "feed", "warden", "emit", "cache"].contains(key)),
    );
    keys.extend(keys!(
        "session.",
        session,
        SessionConfig {
            connect_timeout,
            statement_timeout,
            lock_limit,
            backoff_min,
            backoff_max
        }
    ));
    keys.extend(keys!(
        "wake.",
        wake,
        WakeConfig {
            listen,
            probe_interval,
            probe_timeout
        }
    ));
    keys.extend(keys!(
        "feed.",
        feed,
        FeedConfig {
            poll,
            poll_unproved,
            page_min,
            page_max,
            heartbeat,
            sync_timeout
        }
    ));
    keys.extend(keys!(
        "warden.",
        warden,
        WardenConfig {
            enabled,
            claim,
            chores,
            check_interval,
            retention,
            retention_max
        }
    ));
    keys.extend(keys!("emit.", emit, EmitConfig { window, bound }));
    keys.extend(keys!(
        "cache.",
        cache,
        CacheConfig {
            ttl,
            capacity,
            when_stale,
            load_timeout,
            max_loads
        }
    ));
    assert_eq!(keys, FIELDS.iter().map(|field| field.key).collect::<Vec<_>>());
}

/// Every setting stands in the shipped file, under a comment that states its extremes.
#[test]
fn the_shipped_file_documents_every_setting() {
    let (mut section, mut comment, mut seen) = (String::new(), String::new(), Vec::new());
    for line in SHIPPED.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.replace(']', ".");
        }
        let key = line
            .trim_start_matches("# ")
            .split_once(" = ")
            .map(|(name, _)| format!("{section}{name}"));
        if let Some(field) = key.and_then(|key| fields::find(&key)) {
            let extremes = match field.extremes {
                Extremes::Time(least, most) => {
                    let show = humantime::format_duration;
                    format!("at least {}, at most {}.", show(least), show(most))
                }
                Extremes::Count(least, most) => format!("at least {least}, at most {most}."),
                Extremes::None => String::new(),
            };
            assert!(
                comment.contains(&extremes),
                "{}: {extremes:?} in {comment:?}",
                field.key
            );
            assert!(comment.contains("Default"), "{}: {comment:?}", field.key);
            seen.push(field.key);
        }
        match line.starts_with('#') {
            true => comment += line,
            false => comment.clear(),
        }
    }
    assert_eq!(seen, FIELDS.iter().map(|field| field.key).collect::<Vec<_>>());
}
