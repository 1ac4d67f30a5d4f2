//! The floor: a connection that only listens.

use std::sync::Arc;

use anyhow::Result;
use futures::future::poll_fn;
use pgevict::lab::Cluster;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::ledger::Ledger;
use crate::schedule::System;

/// What no system that rests on LISTEN can beat.
pub(crate) struct Floor {
    /// Keeps the session open.
    _client: Client,
}

impl Floor {
    /// Makes the table and listens.
    pub(crate) async fn start(cluster: &Cluster, ledger: Arc<Ledger>) -> Result<Self> {
        cluster
            .connect()
            .await?
            .batch_execute(
                "create table floor (event bigint primary key, at timestamptz default clock_timestamp())",
            )
            .await?;
        let config: tokio_postgres::Config = cluster.url().parse()?;
        let (client, mut connection) = config.connect(NoTls).await?;
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(notification) = message
                    && let Ok(event) = notification.payload().parse()
                {
                    ledger.seen(event);
                }
            }
        });
        client.batch_execute("listen floor").await?;
        Ok(Self { _client: client })
    }
}

impl System for Floor {
    const WRITE: &'static str = "with row as (insert into floor (event) values ($1::text::bigint) returning event) \
         select pg_notify('floor', event::text) from row";

    fn expect(&self, _event: usize) -> Result<()> {
        Ok(())
    }
}
