use std::path::PathBuf;

use super::fields::FIELDS;
use super::*;

mod shipped;

/// Everything but what no settings hold by default, comparable.
fn parts(config: &Config) -> impl PartialEq + std::fmt::Debug + use<> {
    // Complete on purpose: a new field must be compared too.
    let Config {
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
        cache,
    } = config.clone();
    let secret = |secret: Option<SecretString>| secret.map(|secret| secret.expose_secret().to_owned());
    (
        (
            secret(url),
            secret(listen_url),
            password_file,
            instance_id,
            enabled,
        ),
        (max_staleness, session, wake, feed, warden, emit, cache),
    )
}

fn pairs(pairs: &[(&str, &str)]) -> std::vec::IntoIter<(String, String)> {
    pairs
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect::<Vec<_>>()
        .into_iter()
}

fn load(text: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config> {
    let file = File::new(text);
    Config::load(Some(&file.0), pairs(env), pairs(flags))
}

/// The problems of a load, a line each, with the file called FILE.
fn problems(text: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Vec<String> {
    let file = File::new(text);
    let error = Config::load(Some(&file.0), pairs(env), pairs(flags)).unwrap_err();
    assert!(error.is_invalid());
    let text = error.to_string().replace(&file.0.display().to_string(), "FILE");
    let text = text.replace("a setting cannot be used: ", "x\n");
    text.lines().skip(1).map(|line| line.trim().to_owned()).collect()
}

/// A file of its own that goes away with its name.
struct File(PathBuf);

impl File {
    fn new(text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pgevict-{}.toml", uuid::Uuid::new_v4()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn flags_win_over_variables_over_the_file_over_defaults() {
    let file = "max_staleness = \"7s\"\n[cache]\nttl = \"1m\"\ncapacity = 7\n[feed]\npoll = \"300ms\"";
    let env = [
        ("PGEVICT_CACHE__TTL", "2m"),
        ("PGEVICT_CACHE__CAPACITY", "8"),
        ("PGEVICT_MAX_STALENESS", "9s"),
    ];
    let config = load(file, &env, &[("cache.ttl", "3m")]).unwrap();
    assert_eq!(config.cache.ttl, Duration::from_secs(180));
    assert_eq!(config.cache.capacity, 8);
    assert_eq!(config.max_staleness, Duration::from_secs(9));
    assert_eq!(config.feed.poll, Duration::from_millis(300));
    assert_eq!(config.feed.page_min, 500);
}

#[test]
fn every_setting_can_come_from_a_variable() {
    let other = |key: &str| match key {
        "url" | "listen_url" => "postgresql://h/d",
        "instance_id" => "web-1",
        "enabled" | "warden.enabled" | "wake.listen" => "false",
        "cache.when_stale" => "fail",
        key if key.ends_with("page_min") || key.ends_with("capacity") || key.ends_with("max_loads") => "400",
        key if key.ends_with("page_max") || key.ends_with("bound") => "4000",
        "session.backoff_min" => "90ms",
        "session.backoff_max" => "4s",
        "feed.poll_unproved" => "40ms",
        "feed.poll" | "emit.window" => "400ms",
        "max_staleness" => "6s",
        _ => "11s",
    };
    let name = |key: &str| format!("PGEVICT_{}", key.to_uppercase().replace('.', "__"));
    let env = FIELDS
        .iter()
        .map(|field| (name(field.key), other(field.key).to_owned()));
    let one = Config::load(None, env, None).unwrap();
    let flags = FIELDS
        .iter()
        .map(|field| (field.key.to_owned(), other(field.key).to_owned()));
    let two = Config::load(None, pairs(&[]), flags).unwrap();
    assert_eq!(parts(&one), parts(&two));
    assert!(!one.enabled && one.cache.when_stale == WhenStale::Fail && one.feed.page_min == 400);
    assert_eq!(one.instance_id.as_deref(), Some("web-1"));
}

#[test]
fn database_url_is_the_last_resort() {
    let url = |config: Config| config.address().unwrap().redacted().to_owned();
    let env = ("DATABASE_URL", "postgresql://u@last/d");
    assert_eq!(url(load("", &[env], &[]).unwrap()), "postgresql://u@last:5432/d");
    assert_eq!(
        url(load("url = \"host=file user=u\"", &[env], &[]).unwrap()),
        "postgresql://u@file:5432/u"
    );
    let own = ("PGEVICT_URL", "host=own user=u");
    assert_eq!(
        url(load("", &[env, own], &[]).unwrap()),
        "postgresql://u@own:5432/u"
    );
    assert_eq!(
        url(load("", &[env, ("PGEVICT_URL", "")], &[]).unwrap()),
        "postgresql://u@last:5432/d"
    );
    let none = load("", &[], &[]).unwrap().address().unwrap_err();
    assert!(none.is_invalid() && none.to_string().contains("DATABASE_URL"));
    let found = problems("", &[("DATABASE_URL", "mysql://u:hunter2@h/d")], &[]);
    assert!(
        found[0].starts_with("DATABASE_URL: url: the address must begin with postgresql://"),
        "{found:?}"
    );
}

#[test]
fn the_listen_address_defaults_to_the_other() {
    let config = Config::from_url("postgresql://u:p@h/d").unwrap();
    assert_eq!(
        config.listen_address().unwrap().redacted(),
        "postgresql://u@h:5432/d"
    );
    let config = load(
        "url = \"host=pool user=u\"\nlisten_url = \"host=direct user=u\"",
        &[],
        &[],
    )
    .unwrap();
    assert_eq!(
        config.listen_address().unwrap().redacted(),
        "postgresql://u@direct:5432/u"
    );
    assert!(!format!("{:?}", Config::from_url("postgresql://u:hunter2@h/d").unwrap()).contains("hunter2"));
    assert!(Config::from_url("port=1,2").unwrap_err().is_invalid());
}

#[test]
fn a_password_has_one_place() {
    let file = ("PGEVICT_PASSWORD_FILE", "/run/p");
    let config = load("url = \"postgresql://u@h/d\"", &[file], &[]).unwrap();
    assert_eq!(config.password_file, Some(PathBuf::from("/run/p")));
    let found = problems("url = \"postgresql://u:hunter2@h/d\"", &[file], &[]);
    assert_eq!(
        found,
        ["PGEVICT_PASSWORD_FILE: password_file: url holds a password too: remove one of the two"]
    );
    let found = problems(
        "url = \"host=h\"\nlisten_url = \"host=h password=x\"\npassword_file = \"/p\"",
        &[],
        &[],
    );
    assert_eq!(
        found,
        ["FILE:3: password_file: listen_url holds a password too: remove one of the two"]
    );
}

#[test]
fn every_problem_is_reported_at_once_with_origin_key_and_cure() {
    let file = "\
max_staleness = 5
enabled = \"yes\"
instance_id = \"__shared__\"
[session]
statement_timeout = \"250\"
conect_timeout = \"1s\"
[feed]
poll = \"often\"
page_min = \"500\"
page_max = 0
heartbeat = \"1h\"
[cache]
capacity = -1
when_stale = \"maybe\"
[cahce]
ttl = \"1m\"
";
    let env = [
        ("PGEVICT_URL", "postgresql://u:hunter2@h/d?sslmode=on"),
        ("PGEVICT_CACHE_TTL", "1m"),
        ("PGEVICT_CACHE__LOAD_TIMEOUT", "30"),
        ("PGEVICT_WAKE__PROBE_TIMEOUT", "0s"),
        ("PGEVICT_COLOUR", "red"),
        ("HOME", "/"),
    ];
    let flags = [
        ("cache.max_loads", "many"),
        ("listen_url", "host='hunter2"),
        ("poll", "1s"),
    ];
    let mut found = problems(file, &env, &flags);
    found.sort();
    let mut expected = [
        "FILE:1: max_staleness: 5 has no unit: write \"5ms\" for milliseconds or \"5s\" for seconds",
        "FILE:2: enabled: \"yes\" is of the wrong type: write true or false, without quotes",
        "FILE:3: instance_id: __shared__ is reserved for shared consumers: choose another name",
        "FILE:5: session.statement_timeout: 250 has no unit: write \"250ms\" for milliseconds or \"250s\" for seconds",
        "FILE:6: session.conect_timeout: unknown setting: did you mean session.connect_timeout?",
        "FILE:8: feed.poll: \"often\" is not a time: write whole numbers with units, such as \"250ms\", \"5s\" or \"1m 30s\"",
        "FILE:9: feed.page_min: \"500\" is of the wrong type: write a whole number, without quotes",
        "FILE:10: feed.page_max: 0 is too little: at least 1",
        "FILE:11: feed.heartbeat: 1h is too much: at most 20s",
        "FILE:13: cache.capacity: -1 is not a whole number in range",
        "FILE:14: cache.when_stale: \"maybe\" is none of \"bypass\", \"serve\", \"fail\"",
        "FILE:16: cahce.ttl: unknown setting: did you mean cache.ttl?",
        "PGEVICT_URL: url: sslmode in the address: must be disable, allow, prefer, require, verify-ca or verify-full",
        "PGEVICT_CACHE_TTL: unknown setting: did you mean PGEVICT_CACHE__TTL?",
        "PGEVICT_CACHE__LOAD_TIMEOUT: cache.load_timeout: 30 has no unit: write \"30ms\" for milliseconds or \"30s\" for seconds",
        "PGEVICT_WAKE__PROBE_TIMEOUT: wake.probe_timeout: 0s is too little: at least 10ms",
        "PGEVICT_COLOUR: unknown setting: remove it; config.toml in the repository lists all",
        "command line: cache.max_loads: \"many\" is not a whole number in range",
        "command line: listen_url: host in the address: its closing quote is missing",
        "command line: poll: unknown setting: did you mean feed.poll?",
    ];
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let one = |text: &str| problems(text, &[], &[]).join("\n");
    let found = one("max_staleness = \"900ms\"");
    assert!(
        found.starts_with("FILE:1: max_staleness: 900ms is less than two polls")
            && found.contains("raise it to 1s or more"),
        "{found}"
    );
    assert!(load("max_staleness = \"1s\"", &[], &[]).is_ok());
    assert!(one("[feed]\npoll = \"3s\"").starts_with("max_staleness: 5s is less than two polls"));
    assert!(
        one("[feed]\npoll_unproved = \"600ms\"")
            .contains("feed.poll_unproved: 600ms is more than feed.poll (500ms)")
    );
    assert!(
        one("[feed]\npage_min = 9\npage_max = 8")
            .starts_with("FILE:2: feed.page_min: 9 is more than feed.page_max (8)")
    );
    assert!(one("[session]\nbackoff_max = \"50ms\"").contains("session.backoff_min: 100ms is more"));
    assert!(
        one("[warden]\nretention_max = \"10m\"")
            .contains("warden.retention: 1h is more than warden.retention_max (10m)")
    );
}

#[test]
fn instance_ids_are_bounded() {
    let check = |id: &str| {
        Config {
            instance_id: Some(id.to_owned()),
            ..Config::default()
        }
        .check()
    };
    for id in ["", "__shared__", &"x".repeat(201), "a\0b"] {
        assert!(
            check(id).unwrap_err().to_string().contains("instance_id: "),
            "{id:?}"
        );
    }
    for id in ["a", "web 1", "é", &"x".repeat(200)] {
        check(id).unwrap();
    }
}

#[test]
fn a_file_that_is_not_toml_is_refused_without_quoting_it() {
    for text in [
        "enabled = true\nurl = \"postgresql://u:hunter2\"@h\"",
        "enabled = true\nurl = hunter2",
        "a = 1\na = 2 # hunter2",
    ] {
        let error = load(text, &[], &[]).unwrap_err();
        let all = format!("{error} {error:?}");
        assert!(
            !all.contains("hunter") && all.contains(".toml:2: not TOML"),
            "{all}"
        );
    }
    let error = Config::load(Some(&PathBuf::from("/nonexistent.toml")), pairs(&[]), None).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /nonexistent.toml");
}

#[test]
fn odd_shapes_are_reported_not_ignored() {
    let one = |text: &str| problems(text, &[], &[]).join("\n");
    assert!(one("cache = 5").contains("FILE:1: cache: is a section, not a setting: set cache.ttl"));
    assert!(one("cache = { ttl = \"0s\" }").starts_with("FILE:1: cache.ttl: 0s is too little"));
    assert!(one("[nonsense]").contains("FILE:1: nonsense: unknown setting"));
    assert!(one("url = 5").contains("FILE:1: url: must be text in quotes"));
    assert!(one("[url]\nx = 5").contains("url.x: unknown setting"));
    assert!(one("[cache]\nttl = [\"5s\"]").contains("a list is of the wrong type"));
    assert!(one("[feed]\npage_max = 99999999999").contains("99999999999 is not a whole number in range"));
    assert!(one("[cache]\nttl = 1.5").contains("1.5 is of the wrong type"));
    assert!(one("[cache]\nttl = \"1.5\"").contains("write \"1ms\""));
    load("[cache]\n[feed]", &[], &[]).unwrap();
    // What Kubernetes sets for a service of this name, and the command's own variables.
    let env = [
        "PGEVICT_SERVICE_HOST",
        "PGEVICT_SERVICE_PORT_HTTP",
        "PGEVICT_PORT",
        "PGEVICT_PORT_80_TCP",
        "PGEVICT_CONFIG",
        "PGEVICT_LOG",
    ];
    load("", &env.map(|name| (name, "x")), &[]).unwrap();
}
