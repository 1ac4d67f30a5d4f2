//! The password in a file: read at every connect, never shown.

use std::time::Duration;

use pgevict::Config;
use pgevict::lab::ClusterOptions;
use pgevict::store::Admin;

use crate::support::World;
use crate::support::app::{App, PATIENCE};
use crate::support::certs::set_mode;

#[tokio::test]
async fn a_new_password_is_used_at_the_next_reconnect() {
    let world = World::with(ClusterOptions::new().password("first-s3cret")).await;
    world.make_kv().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "first-s3cret\n").unwrap();
    let url = format!(
        "postgresql://postgres@127.0.0.1:{}/postgres",
        world.cluster.port()
    );
    let mut app = App::start_at(&world, &url, "a", |config| {
        config.password_file = Some(file.clone())
    })
    .await;
    app.until_proved(PATIENCE).await;

    world.run("alter role postgres password 'second-s3cret'").await;
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name like 'pgevict/%'";
    world.text(end).await;
    app.until_lost(PATIENCE).await;
    // The old one no longer opens; the cause is told by the status.
    app.until(|status| status.degraded.is_some(), PATIENCE).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    std::fs::write(&file, "second-s3cret").unwrap();
    app.until(|status| status.degraded.is_none(), PATIENCE).await;
    app.until_proved(PATIENCE).await;
    world.set("k", "v2").await;
    app.applied("k").await;
    assert!(!format!("{:?}", app.pgevict.status()).contains("s3cret"));
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn errors_name_the_file_and_not_what_it_holds() {
    let world = World::with(ClusterOptions::new().password("right")).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let url = format!(
        "postgresql://postgres@127.0.0.1:{}/postgres",
        world.cluster.port()
    );
    let mut config = Config::from_url(url).unwrap();
    config.password_file = Some(file.clone());
    let error = Admin::connect(&config).await.unwrap_err();
    assert!(
        error.is_invalid() && error.to_string().contains("cannot read password_file"),
        "{error:?}"
    );
    for (contents, word) in [("", "is empty"), ("\n", "is empty"), ("hunter2\0", "zero byte")] {
        std::fs::write(&file, contents).unwrap();
        let error = Admin::connect(&config).await.unwrap_err();
        let all = format!("{error} {error:?}");
        assert!(
            all.contains(word) && all.contains(&*file.to_string_lossy()),
            "{all}"
        );
        assert!(!all.contains("hunter2"), "{all}");
    }
    std::fs::write(&file, "hunter2").unwrap();
    let error = Admin::connect(&config).await.unwrap_err();
    assert!(
        error.is_refused() && !format!("{error} {error:?}").contains("hunter2"),
        "{error:?}"
    );
    for contents in ["right", "right\n", "right\r\n"] {
        std::fs::write(&file, contents).unwrap();
        Admin::connect(&config).await.unwrap();
    }
}

#[tokio::test]
async fn the_table_of_libpq_is_read_if_nobody_else_can() {
    let guarded = ClusterOptions::new().password("right").start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pgpass");
    let port = guarded.port();
    std::fs::write(
        &file,
        format!("127.0.0.1:{port}:postgres:postgres:right\n*:*:*:*:hunter2\n"),
    )
    .unwrap();
    set_mode(&file, 0o600);
    let url = |rest: &str| {
        format!(
            "host=127.0.0.1 port={port} user=postgres passfile={} {rest}",
            file.display()
        )
    };
    let connect = async |url: String| Admin::connect(&Config::from_url(url).unwrap()).await;
    connect(url("")).await.unwrap();
    let error = connect(url("password=wrong")).await.unwrap_err();
    assert!(
        error.is_refused() && !format!("{error:?}").contains("right"),
        "{error:?}"
    );
    set_mode(&file, 0o640);
    let error = connect(url("")).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("pgpass must be a file that nobody else can read"),
        "{error}"
    );
    std::fs::remove_file(&file).unwrap();
    let error = connect(url("")).await.unwrap_err();
    assert!(error.to_string().contains("cannot read passfile"), "{error}");
}

/// All that is logged, down to the library below.
#[tokio::test]
async fn logs_hold_no_secret() {
    let guarded = ClusterOptions::new().password("right").start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let url = format!("postgresql://postgres@127.0.0.1:{}/postgres", guarded.port());
    for (contents, code) in [("right\n", 4), ("hunter2\n", 4)] {
        std::fs::write(&file, contents).unwrap();
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_pgevict"))
            .args(["--url", &url, "watches"])
            .env("PGEVICT_PASSWORD_FILE", &file)
            .env("PGEVICT_LOG", "trace")
            .output()
            .await
            .unwrap();
        // Nothing is installed there.
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let all = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!all.contains("hunter2") && !all.contains("right"), "{all}");
    }
}
