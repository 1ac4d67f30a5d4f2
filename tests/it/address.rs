//! Addresses lead to the server, whatever the password looks like.

use pgevict::config::Address;
use pgevict::lab::{Cluster, ClusterOptions};
use tokio_postgres::NoTls;

async fn who(address: &Address) -> Result<String, tokio_postgres::Error> {
    let (client, connection) = address.to_postgres().connect(NoTls).await?;
    tokio::spawn(connection);
    let row = client
        .query_one(
            "select current_user || ' ' || current_setting('application_name')",
            &[],
        )
        .await?;
    Ok(row.get(0))
}

#[tokio::test]
async fn both_forms_and_sockets_connect() {
    let cluster = Cluster::start().await.unwrap();
    let port = cluster.port();
    for text in [
        cluster.url(),
        cluster.socket_url(),
        format!("host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=prefer"),
        format!("hostaddr=127.0.0.1 port={port} user=postgres tcp_user_timeout=3000 keepalives_idle=5"),
        format!("postgresql://postgres@localhost:{port}?target_session_attrs=read-write&sslmode=allow"),
    ] {
        let address = Address::parse(&text).unwrap();
        assert_eq!(who(&address).await.unwrap(), "postgres pgevict", "{text}");
        let again = Address::parse(address.redacted()).unwrap();
        assert_eq!(who(&again).await.unwrap(), "postgres pgevict", "{address}");
    }
}

#[tokio::test]
async fn odd_passwords_open_the_door() {
    let odd = "p@ss:/?#[] it's \\ %41 é\u{1F600}";
    let cluster = ClusterOptions::new().password(odd).start().await.unwrap();
    let port = cluster.port();
    let mut encoded = String::new();
    odd.bytes().for_each(|byte| encoded += &format!("%{byte:02X}"));
    let quoted = odd.replace('\\', "\\\\").replace('\'', "\\'");
    for text in [
        format!("postgresql://postgres:{encoded}@127.0.0.1:{port}/postgres"),
        format!("host=127.0.0.1 port={port} user=postgres password='{quoted}'"),
    ] {
        let address = Address::parse(&text).unwrap();
        assert_eq!(who(&address).await.unwrap(), "postgres pgevict", "{text}");
        let bare = Address::parse(address.redacted()).unwrap();
        assert!(who(&bare).await.is_err(), "the printed form holds no password");
    }
}
