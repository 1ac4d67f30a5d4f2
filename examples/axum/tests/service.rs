//! Two of these services, as the README starts them: a price that one changes is at once that of both.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pgevict::lab::Cluster;
use pgevict::store::migrate::migrate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

struct Service {
    child: Child,
    address: String,
}

impl Service {
    fn start(url: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_example-axum"))
            .env("DATABASE_URL", url)
            .env("ADDRESS", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Self { child, address }
    }

    /// Status and body.
    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        (status, body.to_owned())
    }

    /// Interrupts it; it has to end well.
    fn stop(mut self) {
        let pid = self.child.id().to_string();
        let interrupted = Command::new("kill").args(["-INT", &pid]).status();
        assert!(interrupted.unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

#[tokio::test]
async fn a_price_that_one_service_changes_is_that_of_both() {
    let cluster = Cluster::start().await.unwrap();
    let mut db = cluster.connect().await.unwrap();
    migrate(&mut db).await.unwrap();
    db.batch_execute(
        "create table products (id int primary key, name text not null, price int not null); \
         insert into products values (42, 'chair', 100)",
    )
    .await
    .unwrap();
    let (one, other) = (Service::start(&cluster.url()), Service::start(&cluster.url()));
    let chair = |price| (200, format!(r#"{{"name":"chair","price":{price}}}"#));
    for service in [&one, &other] {
        assert_eq!(service.ask("GET", "/products/42", "").await, chair(100));
        assert_eq!(service.ask("GET", "/products/7", "").await.0, 404);
    }
    // It is cached: what changes without a word is not seen.
    db.batch_execute("update products set price = 1").await.unwrap();
    assert_eq!(other.ask("GET", "/products/42", "").await, chair(100));

    let put = one.ask("PUT", "/products/42", r#"{"price": 150}"#).await;
    assert_eq!(put.0, 204, "{put:?}");
    assert_eq!(one.ask("GET", "/products/42", "").await, chair(150));
    let changed = Instant::now();
    while other.ask("GET", "/products/42", "").await != chair(150) {
        assert!(
            changed.elapsed() < Duration::from_secs(10),
            "the other one never knew"
        );
    }
    assert_eq!(one.ask("PUT", "/products/7", r#"{"price": 1}"#).await.0, 404);
    one.stop();
    other.stop();
}
