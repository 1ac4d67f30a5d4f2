use tokio_postgres::config::Host;

use super::*;

fn parse(text: &str) -> Result<Address> {
    Address::parse_with(text, |name| (name == "USER").then(|| "me".to_owned()))
}

fn good(text: &str) -> tokio_postgres::Config {
    parse(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .to_postgres()
        .clone()
}

fn refused(text: &str) -> String {
    let error = parse(text).expect_err(text);
    assert!(error.is_invalid());
    error.to_string()
}

fn password(config: &tokio_postgres::Config) -> &str {
    std::str::from_utf8(config.get_password().unwrap_or_default()).unwrap()
}

#[test]
fn both_forms_say_the_same() {
    for text in [
        "postgresql://app:secret@db.local:6543/shop?application_name=a%20b&connect_timeout=3",
        "postgres://app:secret@db.local:6543/shop?application_name=a%20b&connect_timeout=3",
        "postgresql:///shop?host=db.local&port=6543&user=app&password=secret&application_name=a b&connect_timeout=3",
        "host=db.local port=6543 user=app password=secret dbname=shop application_name='a b' connect_timeout=3",
        "  host = db.local  port=6543\nuser=app password = secret dbname=shop application_name=a\\ b connect_timeout=3 ",
    ] {
        let config = good(text);
        assert_eq!(config.get_hosts(), [Host::Tcp("db.local".into())], "{text}");
        assert_eq!(config.get_ports(), [6543]);
        assert_eq!(
            (config.get_user(), config.get_dbname()),
            (Some("app"), Some("shop"))
        );
        assert_eq!(password(&config), "secret");
        assert_eq!(config.get_application_name(), Some("a b"));
        assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(
            parse(text).unwrap().redacted(),
            "postgresql://app@db.local:6543/shop"
        );
    }
}

#[test]
fn what_is_missing_has_libpqs_default() {
    for text in ["", "postgresql://", "postgresql:///", "host='' port=''"] {
        assert_eq!(
            parse(text).unwrap().redacted(),
            "postgresql://me@localhost:5432/me",
            "{text}"
        );
    }
    assert_eq!(
        parse("user=app").unwrap().redacted(),
        "postgresql://app@localhost:5432/app"
    );
    let pguser = |name: &str| matches!(name, "PGUSER" | "USER").then(|| name.to_lowercase());
    assert_eq!(
        Address::parse_with("", pguser).unwrap().redacted(),
        "postgresql://pguser@localhost:5432/pguser"
    );
    let nobody = Address::parse_with("", |_| None).unwrap();
    assert_eq!(nobody.redacted(), "postgresql://localhost:5432");
    assert_eq!(good("").get_application_name(), Some("pgevict"));
    assert_eq!(
        good("fallback_application_name=x").get_application_name(),
        Some("x")
    );
}

#[test]
fn sockets_and_ip_addresses() {
    for text in [
        "host=/run/pg user=u",
        "postgresql://u@%2Frun%2Fpg",
        "postgresql:///u?host=/run/pg&user=u",
    ] {
        assert_eq!(good(text).get_hosts(), [Host::Unix("/run/pg".into())], "{text}");
        assert_eq!(
            parse(text).unwrap().redacted(),
            "postgresql://u@%2Frun%2Fpg:5432/u"
        );
    }
    let six = good("postgresql://u@[::1]:7000/d");
    assert_eq!(
        (six.get_hosts(), six.get_ports()),
        (&[Host::Tcp("::1".into())][..], &[7000][..])
    );
    assert_eq!(
        parse("postgresql://u@[::1]/d").unwrap().redacted(),
        "postgresql://u@[::1]:5432/d"
    );
    let addr = good("host=db.local hostaddr=10.0.0.7");
    assert_eq!(addr.get_hostaddrs(), ["10.0.0.7".parse::<IpAddr>().unwrap()]);
    assert_eq!(
        good("hostaddr=10.0.0.7").get_hosts(),
        [Host::Tcp("10.0.0.7".into())]
    );
}

#[test]
fn odd_passwords_arrive_whole() {
    for odd in [
        "p@ss:/?#[]",
        "a b",
        "it's",
        "\"",
        "\\",
        "%41",
        "пароль",
        "日本\u{1F600}",
        "a=b&c",
        " lead",
        "x\ty",
        "+",
    ] {
        let quoted = odd.replace('\\', "\\\\").replace('\'', "\\'");
        assert_eq!(
            password(&good(&format!("host=h password='{quoted}' user=u"))),
            odd
        );
        let mut encoded = String::new();
        odd.bytes().for_each(|byte| encoded += &format!("%{byte:02x}"));
        assert_eq!(password(&good(&format!("postgresql://u:{encoded}@h/d"))), odd);
        assert_eq!(
            password(&good(&format!("postgresql://u@h/d?password={encoded}"))),
            odd
        );
        let shown = parse(&format!("postgresql://u:{encoded}@h/d")).unwrap();
        assert_eq!(
            format!("{shown} {shown:?}"),
            "postgresql://u@h:5432/d Address(postgresql://u@h:5432/d)"
        );
    }
    // An @ or : in a URL's password does no harm unencoded either.
    assert_eq!(password(&good("postgresql://u:p@s:s@h/d")), "p@s:s");
    assert_eq!(good("postgresql://u%40corp:x@h/d%2Fe").get_user(), Some("u@corp"));
    assert_eq!(good("postgresql://u%40corp:x@h/d%2Fe").get_dbname(), Some("d/e"));
}

#[test]
fn no_message_holds_a_secret() {
    for text in [
        "postgresql://u:hunter2/x@h/d",
        "postgresql://u:hunter2?x@h/d",
        "postgresql://u:hunter2#x@h/d",
        "postgresql://u:hunter2?hunter2=hunter2@h/d",
        "postgresql://u:hunter2%@h/d",
        "postgresql://u:hunter2%zz@h/d",
        "postgresql://u:hunter2%ff@h/d",
        "postgresql://u:hunter2%00@h/d",
        "postgresql://u:x@h:hunter2/d",
        "postgresql://u:x@h/d?hunter2",
        "postgresql://u:x@h/d?hunter2=1",
        "postgresql://u:x@h/d?port=hunter2",
        "postgresql://u:x@h/d?sslmode=hunter2",
        "postgresql://u:x@h/d?target_session_attrs=hunter2",
        "postgresql://u:x@h/d?password=hunter2&tcp_user_timeout=hunter2",
        "postgresql://u:x@h/d#hunter2",
        "postgresql://u:hunter2@a,b/d",
        "postgresql://u:hunter2@::1/d",
        "postgresql://u:hunter2@[::1/d",
        "postgres:/u:hunter2@h/d",
        "mysql://u:hunter2@h/d",
        "password=a hunter2 host=h",
        "password=a hunter2=",
        "password='hunter2",
        "hunter2='x",
        "hunter2",
        "=hunter2",
        "password=x host='hunter2 @h'",
        "hostaddr=hunter2",
        // The value of host is what follows, as in libpq.
        "host= password=hunter2",
    ] {
        let error = parse(text).expect_err(text);
        let all = format!("{error} {error:?}");
        assert!(!all.contains("hunter"), "{text}: {all}");
    }
}

#[test]
fn what_is_not_supported_is_named_with_a_cure() {
    for (key, _) in UNSUPPORTED {
        let message = refused(&format!("host=h {key}=x"));
        assert!(
            message.contains(key) && message.contains("not supported"),
            "{message}"
        );
        assert_eq!(refused(&format!("postgresql://h/d?{key}=x")), message);
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        let message = refused(&format!("sslmode={mode}"));
        assert!(
            message.contains(mode) && message.contains("not supported yet"),
            "{message}"
        );
    }
    for mode in ["disable", "allow", "prefer"] {
        good(&format!("sslmode={mode}"));
    }
    assert!(refused("postgresql://h/d?ssl=true").contains("sslmode"));
    for text in [
        "host=a,b",
        "postgresql://a,b/d",
        "postgresql://a:1,b:2/d",
        "port=1,2",
        "hostaddr=10.0.0.1,10.0.0.2",
    ] {
        assert!(refused(text).contains("several hosts"), "{text}");
    }
    for primary in ["primary", "standby", "prefer-standby"] {
        assert!(refused(&format!("target_session_attrs={primary}")).contains("not supported yet"));
    }
    assert!(refused("sslnegotiation=direct").contains("sslnegotiation"));
    assert!(refused("channel_binding=require").contains("channel_binding"));
    assert!(refused("client_encoding=latin1").contains("UTF8"));
    assert!(refused("host=@abstract").contains("abstract"));
    assert!(refused("appliction_name=x").contains("did you mean application_name"));
    good(
        "client_encoding=UTF8 channel_binding=prefer sslnegotiation=postgres target_session_attrs=read-write",
    );
}

#[test]
fn tcp_settings_are_libpqs_and_its_units() {
    let config = good("tcp_user_timeout=5000 keepalives_idle=60 keepalives_interval=7 keepalives_count=4");
    assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_secs(5)));
    assert_eq!(config.get_keepalives_idle(), Duration::from_secs(60));
    assert_eq!(config.get_keepalives_interval(), Some(Duration::from_secs(7)));
    assert_eq!(config.get_keepalives_retries(), Some(4));
    let config = good("");
    assert!(config.get_keepalives());
    assert_eq!(config.get_keepalives_idle(), Duration::from_secs(10));
    assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_secs(20)));
    assert_eq!(good("tcp_user_timeout=0").get_tcp_user_timeout(), None);
    assert!(!good("keepalives=0").get_keepalives());
    assert!(refused("tcp_user_timeout=20s").contains("milliseconds"));
    for text in [
        "port=0",
        "port=65536",
        "port=-1",
        "connect_timeout=0",
        "connect_timeout=x",
        "keepalives=x",
    ] {
        refused(text);
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(postgresql://)?[a-z0-9:/?#@%&=' \\\\,\\[\\]é]{0,40}") {
        let _ = parse(&text);
    }

    #[test]
    fn the_printed_form_can_be_read_again(user in "[^\0]{1,8}", host in "[a-z0-9.-]{1,9}", dbname in "[^\0]{1,8}") {
        let quote = |text: &str| text.replace('\\', "\\\\").replace('\'', "\\'");
        let address = parse(&format!("user='{}' host={host} dbname='{}'", quote(&user), quote(&dbname))).unwrap();
        let again = parse(address.redacted()).unwrap();
        proptest::prop_assert_eq!(again.to_postgres().get_user(), Some(user.as_str()));
        proptest::prop_assert_eq!(again.to_postgres().get_dbname(), Some(dbname.as_str()));
        proptest::prop_assert_eq!(again.redacted(), address.redacted());
    }
}
