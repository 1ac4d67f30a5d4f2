//! What several test binaries share: a cluster with pgevict installed, and a look into the log.
#![allow(dead_code, unreachable_pub)]

pub(crate) mod app;
pub(crate) mod certs;
pub(crate) mod lines;

use pgevict::lab::{Cluster, ClusterOptions};
use pgevict::store::migrate::migrate;
use tokio_postgres::Client;

/// A cluster with the schema installed by its superuser.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) admin: Client,
}

/// An event as the log holds it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Logged {
    pub(crate) flush: bool,
    pub(crate) keys: Vec<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) prefixes: Vec<String>,
    pub(crate) kind: Option<String>,
    pub(crate) entity_type: Option<String>,
    pub(crate) announced: String,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(ClusterOptions::new()).await
    }

    pub(crate) async fn with(options: ClusterOptions) -> Self {
        let cluster = options.start().await.unwrap();
        let mut admin = cluster.connect().await.unwrap();
        migrate(&mut admin).await.unwrap();
        Self { cluster, admin }
    }

    /// With the schema that this script installs, such as an older one.
    pub(crate) async fn installed_by(script: &str) -> Self {
        let cluster = Cluster::start().await.unwrap();
        let admin = cluster.connect().await.unwrap();
        admin.batch_execute(script).await.unwrap();
        Self { cluster, admin }
    }

    /// A session of this role, which need not be allowed to log in.
    pub(crate) async fn session_of(&self, role: &str) -> Client {
        let client = self.cluster.connect().await.unwrap();
        client
            .batch_execute(&format!("set session authorization {role}"))
            .await
            .unwrap();
        client
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.admin
            .batch_execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The one value of a query, as text.
    pub(crate) async fn text(&self, sql: &str) -> String {
        text(&self.admin, sql).await
    }

    /// The events since the last call, in order; the log is empty afterwards.
    pub(crate) async fn events(&self) -> Vec<Logged> {
        let rows = self
            .admin
            .query(
                "with gone as (delete from pgevict.event returning *) select flush, keys, tags, prefixes, type, \
                 entity_type, announced::text from gone order by xid::text::numeric, id",
                &[],
            )
            .await
            .unwrap();
        rows.iter()
            .map(|row| Logged {
                flush: row.get(0),
                keys: row.get(1),
                tags: row.get(2),
                prefixes: row.get(3),
                kind: row.get(4),
                entity_type: row.get(5),
                announced: row.get(6),
            })
            .collect()
    }

    /// The one event since the last call.
    pub(crate) async fn event(&self) -> Logged {
        let mut events = self.events().await;
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }
}

/// The one value of a query, as text.
pub(crate) async fn text(client: &Client, sql: &str) -> String {
    let rows = client
        .simple_query(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    rows.iter()
        .find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
            _ => None,
        })
        .unwrap_or_default()
}

/// SQLSTATE and message of a statement that fails.
pub(crate) async fn refusal(client: &Client, sql: &str) -> (String, String) {
    match client.batch_execute(sql).await {
        Ok(()) => panic!("was not refused: {sql}"),
        Err(error) => {
            let error = error.as_db_error().expect("an error of the server");
            let hint = error.hint().unwrap_or_default();
            (
                error.code().code().to_owned(),
                format!("{} ({hint})", error.message()),
            )
        }
    }
}
