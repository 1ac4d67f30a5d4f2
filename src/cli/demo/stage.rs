//! Where the demo plays: a throwaway cluster or the user's database, and what is put there and taken away.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use pgevict::config::{Address, Config};
use pgevict::lab::{Cluster, Relay};
use pgevict::store::Admin;
use tokio_postgres::{Client, NoTls};

use super::report::say;
use crate::cli::Place;

/// Instances of the demo.
pub(super) const INSTANCES: usize = 3;
/// Products of the shop.
pub(super) const PRODUCTS: i32 = 1_000;
/// Staleness that a hit may have and still count as fresh.
pub(super) const MAX_STALENESS: Duration = Duration::from_secs(1);

/// The server of the demo.
pub(super) enum Server {
    /// Ours: it may be restarted.
    Throwaway(Arc<Cluster>),
    /// The user's.
    Theirs,
}

/// Server, addresses and what has to be removed afterwards.
pub(super) struct Stage {
    server: Server,
    url: String,
    relay: Relay,
    relay_url: String,
    /// pgevict was absent before.
    installed: bool,
}

impl Stage {
    /// Makes or finds the server. Nothing is written there yet.
    pub(super) async fn find(place: &Place) -> Result<Self> {
        let (server, url) = match place.given() {
            None => {
                let cluster = Cluster::start().await.context("starting a throwaway cluster")?;
                say(&format!(
                    "throwaway cluster: PostgreSQL {}, port {}",
                    cluster.major_version(),
                    cluster.port()
                ));
                let url = cluster.url();
                (Server::Throwaway(Arc::new(cluster)), url)
            }
            Some(url) => (Server::Theirs, url.to_owned()),
        };
        let (target, through) = behind_relay(&url)?;
        let relay = Relay::start(target).await.context("starting the relay")?;
        let relay_url = through(relay.address());
        // Tells at once, and with its own words, what is wrong with the address.
        drop(Admin::connect(&Config::from_url(&url)?).await?);
        let found = pgevict::store::migrate::installed(&connect(&url).await?).await?;
        Ok(Self {
            server,
            url,
            relay,
            relay_url,
            installed: found.is_none(),
        })
    }

    /// Installs pgevict where it is absent, creates and watches the table. What it has done when it fails or is
    /// dropped half-way is taken away by [`Stage::strike`].
    pub(super) async fn set(&self) -> Result<()> {
        Admin::connect(&Config::from_url(&self.url)?)
            .await?
            .migrate()
            .await?;
        let client = connect(&self.url).await?;
        client
            .batch_execute(&format!(
                "drop schema if exists pgevict_demo cascade;
                 create schema pgevict_demo;
                 create table pgevict_demo.products (id int primary key, category int not null, version bigint not null);
                 insert into pgevict_demo.products select n, n % 20, 0 from generate_series(1, {PRODUCTS}) n;
                 select pgevict.watch('pgevict_demo.products', key => 'product:{{id}}',
                                      tags => array['category:{{category}}']);"
            ))
            .await
            .context("creating the table pgevict_demo.products")
    }

    /// Takes away what was put there.
    pub(super) async fn strike(self) -> Result<()> {
        if let Server::Theirs = self.server {
            let client = connect(&self.url).await?;
            client
                .batch_execute(
                    "do $$ begin
                       if to_regclass('pgevict_demo.products') is not null
                         and to_regprocedure('pgevict.unwatch(regclass)') is not null then
                         perform pgevict.unwatch('pgevict_demo.products');
                       end if;
                     end $$;
                     drop schema if exists pgevict_demo cascade;",
                )
                .await
                .context("removing schema pgevict_demo")?;
            if self.installed {
                Admin::connect(&Config::from_url(&self.url)?)
                    .await?
                    .uninstall()
                    .await?;
            }
        }
        Ok(())
    }

    /// The throwaway cluster, when it is one.
    pub(super) fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &self.server {
            Server::Throwaway(cluster) => Some(cluster),
            Server::Theirs => None,
        }
    }

    /// The link of the last instance.
    pub(super) fn relay(&self) -> &Relay {
        &self.relay
    }

    /// The server's own address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The address that an instance uses: the last one's leads through the relay.
    pub(super) fn url_of(&self, instance: usize) -> &str {
        if instance == INSTANCES - 1 {
            &self.relay_url
        } else {
            &self.url
        }
    }

    /// The settings of an instance.
    pub(super) fn config(&self, instance: usize) -> Result<Config> {
        let mut config = Config::from_url(self.url_of(instance))?;
        config.instance_id = Some(name(instance));
        config.max_staleness = MAX_STALENESS;
        Ok(config)
    }
}

/// Id of an instance.
pub(super) fn name(instance: usize) -> String {
    format!("demo-{}", instance + 1)
}

/// A connection for the demo's own statements.
pub(super) async fn connect(url: &str) -> Result<Client> {
    let address = Address::parse(url)?;
    let config = address.to_postgres();
    let (client, connection) = tokio::time::timeout(Duration::from_secs(3), config.connect(NoTls))
        .await
        .context("connecting: no answer within 3s")?
        .context("connecting")?;
    tokio::spawn(connection);
    Ok(client)
}

/// Where the relay has to forward to, and how to write an address that leads through it.
#[expect(clippy::type_complexity, reason = "used once, right above")]
fn behind_relay(url: &str) -> Result<(SocketAddr, Box<dyn Fn(SocketAddr) -> String>)> {
    use tokio_postgres::config::{Host, SslMode};
    let address = Address::parse(url).context("--url")?;
    let config = address.to_postgres();
    if config.get_ssl_mode() == SslMode::Require || config.get_hosts().len() > 1 {
        anyhow::bail!(
            "--url: the demo's writers speak to one host, without TLS: name one, with sslmode=prefer"
        );
    }
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let target = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => (host.as_str(), port)
            .to_socket_addrs()
            .with_context(|| format!("--url: looking up {host}"))?
            .next()
            .with_context(|| format!("--url: {host} has no address"))?,
        _ => anyhow::bail!(
            "--url: the demo cuts one instance off and needs a TCP address, such as postgresql://user@localhost/db"
        ),
    };
    let user = config.get_user().unwrap_or("postgres").to_owned();
    let database = config.get_dbname().unwrap_or(&user).to_owned();
    let password = config
        .get_password()
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let through = move |address: SocketAddr| {
        let quote = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
        let mut url = format!(
            "host={} port={} user={} dbname={}",
            address.ip(),
            address.port(),
            quote(&user),
            quote(&database)
        );
        if let Some(password) = &password {
            url += &format!(" password={}", quote(password));
        }
        url
    };
    Ok((target, Box::new(through)))
}
