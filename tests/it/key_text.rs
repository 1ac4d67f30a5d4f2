//! Key text is the same in SQL as in Rust: both are held to one golden file.

use pgevict::key;
use pgevict::lab::Cluster;
use tokio_postgres::Client;

const GOLDEN: &str = include_str!("../golden/key_text.tsv");

/// A session in a database that knows how SQL writes values, and no more.
async fn session(cluster: &Cluster) -> Client {
    let client = cluster.connect().await.unwrap();
    client.batch_execute("create schema pgevict").await.unwrap();
    for function in [
        include_str!("../../sql/functions/escape.sql"),
        include_str!("../../sql/functions/text_of.sql"),
        include_str!("../../sql/functions/key.sql"),
    ] {
        client.batch_execute(function).await.unwrap();
    }
    client
}

#[tokio::test]
async fn sql_holds_the_golden_file() {
    let cluster = Cluster::start().await.unwrap();
    let client = session(&cluster).await;
    // Settings that change how values print must not change keys.
    let odd = "set timezone = 'Asia/Kolkata'; set datestyle = 'German'; set intervalstyle = 'sql_standard'; \
               set extra_float_digits = -3; set bytea_output = 'escape'; set standard_conforming_strings = on";
    client.batch_execute(odd).await.unwrap();
    let mut wrong = Vec::new();
    for line in GOLDEN
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let [sql_type, literal, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("three columns: {line}");
        };
        let sql = format!("select pgevict.key(cast({literal} as {sql_type}))");
        match client.query_one(&sql, &[]).await {
            Ok(row) if row.get::<_, &str>(0) == expected => {}
            Ok(row) => wrong.push(format!("{line}: {}", row.get::<_, &str>(0))),
            Err(error) => wrong.push(format!("{line}: {error:?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn sql_and_rust_write_any_text_alike() {
    let cluster = Cluster::start().await.unwrap();
    let client = session(&cluster).await;
    let mut random = fastrand::Rng::with_seed(7);
    for length in 0..300 {
        let text: String = (0..length)
            .map(|_| match random.u8(0..4) {
                0 => random.alphanumeric(),
                1 => random.char('\u{1}'..='\u{ff}'),
                2 => *random
                    .choice(['%', '2', '5', 'N', '\\', '\'', '~', '\u{301}'].iter())
                    .unwrap(),
                _ => random.char('\u{1}'..=char::MAX),
            })
            .collect();
        let row = client
            .query_one("select pgevict.key($1::text)", &[&text])
            .await
            .unwrap();
        assert_eq!(row.get::<_, &str>(0), key!("{}", text).as_str(), "{text:?}");
    }
}
