use tokio_postgres::config::Host;
#[cfg(feature = "tls")]
use tokio_postgres::config::{ChannelBinding, SslMode, SslNegotiation};

use super::fields::UNSUPPORTED;
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
        "postgresql://u:hunter2@a,b:x/d",
        "postgresql://u:hunter2@a:1,b:2/d?hostaddr=10.0.0.1",
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
    for target in ["standby", "prefer-standby", "read-only"] {
        let message = refused(&format!("target_session_attrs={target}"));
        assert!(
            message.contains(target) && message.contains("primary only"),
            "{message}"
        );
    }
    assert!(refused("target_session_attrs=x").contains("primary or read-write"));
    assert!(refused("load_balance_hosts=x").contains("disable or random"));
    assert!(refused("client_encoding=latin1").contains("UTF8"));
    assert!(refused("host=@abstract").contains("abstract"));
    assert!(refused("appliction_name=x").contains("did you mean application_name"));
    good(
        "client_encoding=UTF8 channel_binding=prefer sslnegotiation=postgres target_session_attrs=read-write \
         load_balance_hosts=random sslcompression=0",
    );
    for target in ["primary", "any"] {
        good(&format!("target_session_attrs={target}"));
    }
}

#[test]
fn several_hosts_keep_their_order_and_their_ports() {
    for (text, shown) in [
        ("host=a,b port=1,2", "a:1,b:2"),
        ("host=a,b port=7", "a:7,b:7"),
        ("host=a,b port=,2", "a:5432,b:2"),
        ("host=a,,b", "a:5432,localhost:5432,b:5432"),
        ("hostaddr=10.0.0.1,::1 port=1,2", "10.0.0.1:1,[::1]:2"),
        ("host=/run/pg,b", "%2Frun%2Fpg:5432,b:5432"),
        ("postgresql://a:1,b:2", "a:1,b:2"),
        ("postgresql://a,b:2/me", "a:5432,b:2"),
        ("postgresql://[::1]:1,b", "[::1]:1,b:5432"),
        ("postgresql://a,b?port=3", "a:3,b:3"),
        ("postgresql://?host=a,b&port=1,2", "a:1,b:2"),
    ] {
        let address = parse(text).unwrap();
        assert_eq!(
            address.redacted(),
            format!("postgresql://me@{shown}/me"),
            "{text}"
        );
        let again = parse(address.redacted()).unwrap();
        assert_eq!(again.redacted(), address.redacted());
        assert_eq!(address.to_postgres().get_hosts().len(), address.servers().len());
    }
    let address = parse("host=a,b hostaddr=10.0.0.1, port=1,2").unwrap();
    let at = address.at(&address.servers()[1], Some([10, 0, 0, 2].into()));
    assert_eq!(
        (at.get_hosts(), at.get_ports()),
        (&[Host::Tcp("b".into())][..], &[2][..])
    );
    assert_eq!(at.get_hostaddrs(), [IpAddr::from([10, 0, 0, 2])]);
    assert_eq!(
        address.redacted_at(&address.servers()[1]),
        "postgresql://me@b:2/me"
    );
    assert!(refused("port=1,2").contains("port in the address: has 2 items, but there are 1 hosts"));
    assert!(refused("host=a,b,c port=1,2").contains("3 hosts"));
    assert!(refused("host=a,b hostaddr=10.0.0.1").contains("hostaddr"));
}

#[test]
fn variables_fill_what_the_address_leaves_out() {
    let env = |name: &str| {
        let value = match name {
            "PGHOST" => "env1,env2",
            "PGPORT" => "7000",
            "PGUSER" => "envuser",
            "PGDATABASE" => "envdb",
            "PGPASSWORD" => "envpw",
            "PGSSLMODE" => "disable",
            "PGCONNECT_TIMEOUT" => "7",
            "PGTARGETSESSIONATTRS" => "primary",
            "PGAPPNAME" => "ignored",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let address = Address::parse_with("", env).unwrap();
    assert_eq!(
        address.redacted(),
        "postgresql://envuser@env1:7000,env2:7000/envdb"
    );
    assert_eq!(password(address.to_postgres()), "envpw");
    assert!(!address.has_own_password());
    assert_eq!(address.tls().mode, Mode::Disable);
    assert_eq!(address.attempt_timeout(), Some(Duration::from_secs(7)));
    assert_eq!(address.to_postgres().get_application_name(), Some("pgevict"));
    let full = "postgresql://u:p@h:1/d?sslmode=prefer&connect_timeout=2";
    let address = Address::parse_with(full, env).unwrap();
    assert_eq!(address.redacted(), "postgresql://u@h:1/d");
    assert_eq!(password(address.to_postgres()), "p");
    assert!(address.has_own_password());
    assert_eq!(address.tls().mode, Mode::Prefer);
    let placed = Address::parse_with("hostaddr=10.0.0.1 port=1", env).unwrap();
    assert_eq!(placed.redacted(), "postgresql://envuser@10.0.0.1:1/envdb");

    let one = |name: &'static str, value: &'static str| {
        Address::parse_with("user=u", move |asked| (asked == name).then(|| value.to_owned()))
    };
    let error = |name, value| one(name, value).unwrap_err().to_string();
    assert_eq!(
        error("PGPORT", "hunter2"),
        "PGPORT: must be a number from 1 to 65535"
    );
    assert!(error("PGSSLMODE", "hunter2").starts_with("PGSSLMODE: must be disable"));
    assert!(error("PGTARGETSESSIONATTRS", "standby").starts_with("PGTARGETSESSIONATTRS: standby"));
    assert!(error("PGSERVICE", "x").contains("service files are not supported"));
}

#[cfg(feature = "tls")]
#[test]
fn tls_means_what_it_means_in_libpq() {
    let tls = |text: &str| {
        Address::parse_with(text, |name| (name == "HOME").then(|| "/home/me".to_owned()))
            .unwrap()
            .tls()
            .clone()
    };
    let default = tls("host=h");
    assert_eq!(default.mode, Mode::Prefer);
    assert_eq!(
        default.roots,
        Roots::Default(Some("/home/me/.postgresql/root.crt".into()))
    );
    let client = default.client.unwrap();
    assert!(!client.named && client.key == *"/home/me/.postgresql/postgresql.key");
    assert!(default.sni && !tls("sslsni=0").sni);
    let named = tls("sslmode=verify-ca sslrootcert=/ca sslcert=/c");
    assert_eq!(
        (named.mode, named.roots),
        (Mode::VerifyCa, Roots::File("/ca".into()))
    );
    assert!(named.client.unwrap().named);
    assert_eq!(tls("sslrootcert=system").mode, Mode::VerifyFull);
    assert_eq!(tls("sslrootcert=system").roots, Roots::System);
    assert_eq!(tls("postgresql://h/d?ssl=true").mode, Mode::Require);
    assert!(refused("sslrootcert=system sslmode=require").contains("sslmode=verify-full"));
    assert!(refused("sslnegotiation=direct").contains("sslmode=require"));
    assert!(refused("sslcert=/c").contains("sslkey"));
    assert!(refused("channel_binding=x").contains("channel_binding"));
    let config = good("sslnegotiation=direct sslmode=verify-full channel_binding=require");
    assert_eq!(config.get_ssl_negotiation(), SslNegotiation::Direct);
    assert_eq!(config.get_ssl_mode(), SslMode::Require);
    assert_eq!(config.get_channel_binding(), ChannelBinding::Require);
}

#[cfg(not(feature = "tls"))]
#[test]
fn without_the_feature_whoever_asks_for_tls_is_told_its_name() {
    for text in [
        "sslmode=require",
        "sslmode=verify-ca",
        "sslmode=verify-full",
        "channel_binding=require",
        "sslrootcert=/ca",
        "sslcert=/c sslkey=/k",
        "postgresql://h/d?ssl=true",
    ] {
        assert!(
            refused(text).contains("enable the crate's feature `tls`"),
            "{text}"
        );
    }
    for text in [
        "sslmode=disable sslrootcert=/ca",
        "sslmode=allow",
        "sslmode=prefer",
    ] {
        good(text);
    }
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
