//! TLS on real servers: every `sslmode`, who is believed, and how we prove who we are.

use pgevict::lab::{Cluster, ClusterOptions};
use pgevict::store::Admin;
use pgevict::{Config, Error};

use super::pooler::LENT;
use crate::support::app::{App, PATIENCE, key, slow_poll};
use crate::support::certs::{Authority, set_mode};
use crate::support::{World, text};

const ADMIN: &str = "pgevict/admin/cli";

/// A server for `localhost` only.
fn server(authority: &Authority) -> ClusterOptions {
    let pair = authority.issue(&["localhost"], "a server");
    ClusterOptions::new().tls(pair.certificate, pair.key)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Session {
    Plain,
    Encrypted,
}
use Session::{Encrypted, Plain};

/// Opens a session as the command does and asks the server what it sees.
async fn session(cluster: &Cluster, url: &str) -> Result<Session, Error> {
    let admin = Admin::connect(&Config::from_url(url)?).await?;
    let db = cluster.connect().await.unwrap();
    let seen = text(
        &db,
        &format!(
            "select ssl::text from pg_stat_ssl join pg_stat_activity using (pid) where application_name = '{ADMIN}'"
        ),
    )
    .await;
    drop(admin);
    // The next session must not meet this one.
    let gone = format!("select count(*) from pg_stat_activity where application_name = '{ADMIN}'");
    while text(&db, &gone).await != "0" {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    match seen.as_str() {
        "true" => Ok(Encrypted),
        "false" => Ok(Plain),
        other => panic!("{other:?}"),
    }
}

async fn refused(cluster: &Cluster, url: &str, words: &[&str]) {
    let error = session(cluster, url).await.expect_err(url);
    assert!(error.is_refused() || error.is_invalid(), "{url}: {error:?}");
    for word in words {
        assert!(error.to_string().contains(word), "{url}: {word:?} in {error}");
    }
}

#[tokio::test]
async fn each_sslmode_believes_whom_libpq_believes() {
    let (ours, other) = (Authority::new(), Authority::new());
    let cluster = server(&ours).start().await.unwrap();
    let right = format!("&sslrootcert={}", ours.root().display());
    let wrong = format!("&sslrootcert={}", other.root().display());
    let url = |host: &str, mode: &str, root: &str| {
        let port = cluster.port();
        format!("postgresql://postgres@{host}:{port}/postgres?sslmode={mode}{root}")
    };
    // 127.0.0.1 is the same server under a name that it has no certificate for.
    for (host, mode, root, expected) in [
        ("localhost", "disable", "", Plain),
        ("localhost", "disable", &*wrong, Plain),
        ("localhost", "allow", "", Plain),
        ("localhost", "prefer", "", Encrypted),
        ("127.0.0.1", "prefer", &right, Encrypted),
        ("localhost", "prefer", &wrong, Plain),
        ("127.0.0.1", "require", "", Encrypted),
        ("127.0.0.1", "require", &right, Encrypted),
        ("127.0.0.1", "verify-ca", &right, Encrypted),
        ("localhost", "verify-full", &right, Encrypted),
    ] {
        let url = url(host, mode, root);
        assert_eq!(session(&cluster, &url).await.expect(&url), expected, "{url}");
    }
    for (host, mode, root, word) in [
        (
            "localhost",
            "require",
            &*wrong,
            "not signed by an authority in sslrootcert",
        ),
        ("localhost", "verify-ca", &wrong, "not signed by"),
        ("localhost", "verify-full", &wrong, "not signed by"),
        ("127.0.0.1", "verify-full", &right, "not for this host"),
        ("localhost", "verify-ca", "", "sslrootcert"),
        ("localhost", "verify-full", "", "sslrootcert"),
        (
            "localhost",
            "require",
            "&sslrootcert=/nonexistent",
            "/nonexistent",
        ),
    ] {
        refused(&cluster, &url(host, mode, root), &[word]).await;
    }
}

#[tokio::test]
async fn a_server_that_refuses_one_way_is_tried_the_other_way() {
    let authority = Authority::new();
    let rules = |kind: &str| format!("local all all trust\n{kind} all all all trust\n");
    let url = |cluster: &Cluster, mode: &str| format!("{}?sslmode={mode}", cluster.url());

    let bare = Cluster::start().await.unwrap();
    assert_eq!(session(&bare, &url(&bare, "prefer")).await.unwrap(), Plain);
    refused(&bare, &url(&bare, "require"), &["does not support TLS"]).await;

    let only = server(&authority).file("pg_hba.conf", rules("hostssl"));
    let only = only.start().await.unwrap();
    assert_eq!(session(&only, &url(&only, "allow")).await.unwrap(), Encrypted);
    refused(&only, &url(&only, "disable"), &["pg_hba.conf"]).await;
    let socket = format!(
        "{}?sslmode=verify-full&sslrootcert=/nonexistent",
        only.socket_url()
    );
    assert_eq!(
        session(&only, &socket).await.unwrap(),
        Plain,
        "sockets are never encrypted"
    );

    let never = server(&authority).file("pg_hba.conf", rules("hostnossl"));
    let never = never.start().await.unwrap();
    assert_eq!(session(&never, &url(&never, "prefer")).await.unwrap(), Plain);
    refused(&never, &url(&never, "require"), &["pg_hba.conf"]).await;
}

/// As `openssl req -x509` makes it: it calls itself an authority.
fn self_signed(until: i32) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[tokio::test]
async fn a_self_signed_certificate_that_is_named_is_believed() {
    let (pem, key) = self_signed(2100);
    let options = ClusterOptions::new().tls(pem.clone(), key);
    let cluster = options.start().await.unwrap();
    let other = Authority::new();
    let file = other.file("server.crt", &pem);
    let url = |host: &str, file: &std::path::Path| {
        let (port, file) = (cluster.port(), file.display());
        format!("postgresql://postgres@{host}:{port}/postgres?sslmode=verify-full&sslrootcert={file}")
    };
    assert_eq!(
        session(&cluster, &url("localhost", &file)).await.unwrap(),
        Encrypted
    );
    refused(&cluster, &url("127.0.0.1", &file), &["not for this host"]).await;
    refused(&cluster, &url("localhost", &other.root()), &["certificate"]).await;

    let (pem, key) = self_signed(2020);
    let options = ClusterOptions::new().tls(pem.clone(), key);
    let cluster = options.start().await.unwrap();
    let file = other.file("old.crt", &pem);
    let url = format!(
        "postgresql://postgres@localhost:{}/postgres?sslmode=verify-ca&sslrootcert={}",
        cluster.port(),
        file.display()
    );
    refused(&cluster, &url, &["expired"]).await;
}

#[tokio::test]
async fn a_password_can_be_bound_to_the_channel() {
    let authority = Authority::new();
    let cluster = server(&authority).password("s3cret").start().await.unwrap();
    let url = |query: &str| format!("{}?{query}", cluster.url());
    for query in [
        "sslmode=require&channel_binding=require",
        "sslmode=require&channel_binding=disable",
        "sslmode=require",
    ] {
        assert_eq!(
            session(&cluster, &url(query)).await.unwrap(),
            Encrypted,
            "{query}"
        );
    }
    refused(
        &cluster,
        &url("sslmode=disable&channel_binding=require"),
        &["channel binding"],
    )
    .await;
    let wrong = url("sslmode=prefer").replace("s3cret", "hunter2");
    let error = session(&cluster, &wrong).await.unwrap_err();
    let all = format!("{error} {error:?}");
    assert!(error.is_refused() && !all.contains("hunter2"), "{all}");
    // A wrong password is not sent a second time, unencrypted.
    assert_eq!(cluster.log().matches("password authentication failed").count(), 1);
}

#[tokio::test]
async fn direct_negotiation_needs_a_server_that_knows_it() {
    let authority = Authority::new();
    let cluster = server(&authority).start().await.unwrap();
    let url = format!(
        "postgresql://postgres@localhost:{}/postgres?sslmode=verify-full&sslrootcert={}&sslnegotiation=direct",
        cluster.port(),
        authority.root().display()
    );
    let found = session(&cluster, &url).await;
    if cluster.major_version() >= 17 {
        assert_eq!(found.unwrap(), Encrypted);
    } else {
        let error = found.unwrap_err();
        assert!(error.is_unreachable() || error.is_refused(), "{error:?}");
    }
}

#[tokio::test]
async fn a_client_certificate_opens_the_door() {
    let authority = Authority::new();
    let cluster = server(&authority)
        .file("ca.crt", authority.pem())
        .setting("ssl_ca_file", "ca.crt")
        .file("pg_hba.conf", "local all all trust\nhostssl all all all cert\n")
        .start()
        .await
        .unwrap();
    let pair = authority.issue(&[], "postgres");
    let cert = authority.file("client.crt", &pair.certificate);
    let key = authority.file("client.key", &pair.key);
    let url = |rest: &str| format!("{}?sslmode=require{rest}", cluster.url());
    let ours = format!("&sslcert={}&sslkey={}", cert.display(), key.display());
    assert_eq!(session(&cluster, &url(&ours)).await.unwrap(), Encrypted);
    refused(&cluster, &url(""), &["certificate"]).await;

    let stranger = Authority::new();
    let pair = stranger.issue(&[], "postgres");
    let theirs = format!(
        "&sslcert={}&sslkey={}",
        stranger.file("client.crt", &pair.certificate).display(),
        stranger.file("client.key", &pair.key).display()
    );
    refused(&cluster, &url(&theirs), &["certificate"]).await;

    let mixed = format!(
        "&sslcert={}&sslkey={}",
        cert.display(),
        stranger.file("client.key", &pair.key).display()
    );
    refused(&cluster, &url(&mixed), &["sslkey", "client.key", "client.crt"]).await;
    set_mode(&key, 0o644);
    refused(&cluster, &url(&ours), &["client.key", "chmod 0600"]).await;
    let garbage = stranger.file(
        "client.key",
        "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n",
    );
    let garbled = format!("&sslcert={}&sslkey={}", cert.display(), garbage.display());
    let error = session(&cluster, &url(&garbled)).await.unwrap_err();
    let all = format!("{error} {error:?}");
    assert!(all.contains("client.key") && !all.contains("hunter2"), "{all}");
}

#[tokio::test]
async fn every_session_of_an_instance_is_encrypted() {
    let authority = Authority::new();
    let world = World::with(server(&authority).password("s3cret")).await;
    world.make_kv().await;
    let url = format!(
        "postgresql://postgres:s3cret@localhost:{}/postgres?sslmode=verify-full&sslrootcert={}",
        world.cluster.port(),
        authority.root().display()
    );
    let mut app = App::start_at(&world, &url, "a", slow_poll).await;
    app.until_proved(PATIENCE).await;
    app.get("k").await;
    world.set("k", "v2").await;
    app.applied("k").await;
    assert!(app.cache.get(&key("k")).into_value().is_none());
    let plain = "select count(*) from pg_stat_ssl join pg_stat_activity using (pid) \
                 where application_name like 'pgevict/%' and not ssl";
    assert_eq!(world.text(plain).await, "0");
    // A session that a pooler lends ends each statement by COMMIT; these are known to be direct.
    assert_eq!(world.text(LENT).await, "0");
    app.pgevict.shutdown().await;
}

/// What the platform trusts is told by a variable, so the command is asked.
#[tokio::test]
async fn the_platforms_authorities_can_be_trusted() {
    let (ours, other) = (Authority::new(), Authority::new());
    let world = World::with(server(&ours)).await;
    let url = format!(
        "postgresql://postgres@localhost:{}/postgres?sslrootcert=system",
        world.cluster.port()
    );
    for (authority, code) in [(&ours, 0), (&other, 4)] {
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_pgevict"))
            .args(["--url", &url, "watches"])
            .env("SSL_CERT_FILE", authority.root())
            .env_remove("SSL_CERT_DIR")
            .output()
            .await
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
}
