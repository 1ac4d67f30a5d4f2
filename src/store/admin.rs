//! Administration over one session: install, watch, emit.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, IsolationLevel, Transaction};
use uuid::Uuid;

use crate::config::Config;
use crate::error::Result;
use crate::event::Event;
use crate::snapshot::Xid;
use crate::store::emit;
use crate::store::epoch::{self, EpochState};
use crate::store::migrate::{self, Foreign, Migrated, Plan, Uninstalled};
use crate::store::session::{ADMIN_TIMEOUT, Connector, Purpose, Session, bounded};
use crate::store::warden;
use crate::store::watch::{self, Samples, Watch, WatchDefinition, Watched};

/// What [`Admin::prune`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Events removed.
    pub deleted: u64,
    /// Transactions that took.
    pub steps: u64,
}

/// A session with the right to administrate, over `url`.
#[derive(Debug)]
pub struct Admin {
    session: Session,
    lock_limit: Duration,
}

impl Admin {
    /// Opens the session.
    ///
    /// # Errors
    /// Invalid when the address is wrong, unreachable, or refused (password, standby, server below 15).
    pub async fn connect(config: &Config) -> Result<Self> {
        let connector = Connector::new(config.address()?, config.session.clone(), Arc::from("cli"));
        Ok(Self {
            session: connector.open(Purpose::Admin).await?,
            lock_limit: config.session.lock_limit,
        })
    }

    fn client(&mut self) -> &mut Client {
        self.session.client_mut()
    }

    /// Installs or upgrades schema `pgevict`: see [`migrate::migrate`].
    pub async fn migrate(&mut self) -> Result<Migrated> {
        migrate::migrate(self.client()).await
    }

    /// Removes schema `pgevict` with its log and every watch: see [`migrate::uninstall`].
    pub async fn uninstall(&mut self) -> Result<Uninstalled> {
        let limit = self.lock_limit;
        migrate::uninstall(self.client(), limit).await
    }

    /// As [`Self::uninstall`]; says what to do with what pgevict did not make: see [`migrate::uninstall_with`].
    pub async fn uninstall_with(&mut self, others: Foreign) -> Result<Uninstalled> {
        let limit = self.lock_limit;
        migrate::uninstall_with(self.client(), limit, others).await
    }

    /// What uninstalling would do: see [`migrate::plan`].
    pub async fn plan_uninstall(&mut self) -> Result<Plan> {
        migrate::plan(self.client()).await
    }

    /// Watches a table: see [`watch::watch`].
    pub async fn watch(&mut self, definition: &WatchDefinition) -> Result<Watched> {
        let limit = self.lock_limit;
        watch::watch(self.client(), definition, limit).await
    }

    /// What a definition would make stale, shown on rows that are there: see [`watch::samples`].
    pub async fn samples(&mut self, definition: &WatchDefinition) -> Result<Samples> {
        watch::samples(self.client(), definition).await
    }

    /// Takes the watch off a table: see [`watch::unwatch`].
    pub async fn unwatch(&mut self, table: &str) -> Result<bool> {
        let limit = self.lock_limit;
        watch::unwatch(self.client(), table, limit).await
    }

    /// All watches: see [`watch::watches`].
    pub async fn watches(&mut self) -> Result<Vec<Watch>> {
        watch::watches(self.client()).await
    }

    /// Emits an event in a transaction of its own; returns its id.
    ///
    /// # Errors
    /// Invalid when the event is refused, refused without the right to emit.
    pub async fn emit(&mut self, event: &Event) -> Result<Xid> {
        event.check()?;
        let transaction = self.begin().await?;
        let xid = emit::emit(&transaction, event, None).await?;
        bounded(ADMIN_TIMEOUT, "emitting", transaction.commit()).await?;
        Ok(xid)
    }

    /// Prunes the log: notes how far it is, then removes what is older than `retention` and read by every live instance.
    ///
    /// The first call finds nothing: what is older than `retention` is known from calls, or from a warden, of before.
    ///
    /// # Errors
    /// Refused without the role `pgevict_instance` or `pgevict_admin`, or if pgevict is not installed.
    pub async fn prune(&mut self, retention: Duration, retention_max: Duration) -> Result<Pruned> {
        let transaction = self.begin().await?;
        warden::note_horizon(&transaction, ADMIN_TIMEOUT, retention_max.max(retention)).await?;
        bounded(ADMIN_TIMEOUT, "noting how far the log is", transaction.commit()).await?;
        let mut pruned = Pruned { deleted: 0, steps: 0 };
        loop {
            let transaction = self.begin().await?;
            let step = warden::prune(&transaction, ADMIN_TIMEOUT, retention).await?;
            bounded(ADMIN_TIMEOUT, "pruning", transaction.commit()).await?;
            pruned.deleted += step.deleted;
            pruned.steps += 1;
            if !step.more {
                return Ok(pruned);
            }
        }
    }

    /// Which epoch stands, and whether this log was written on this server.
    ///
    /// # Errors
    /// Refused without the role `pgevict_reader` or `pgevict_admin`, or if pgevict is not installed.
    pub async fn epoch(&mut self) -> Result<EpochState> {
        epoch::state(self.client()).await
    }

    /// Makes the log a new one, empty; every running instance drops what it holds. For a copy of a database. Returns its
    /// epoch.
    ///
    /// # Errors
    /// Refused without the role `pgevict_admin`, or if pgevict is not installed.
    pub async fn new_epoch(&mut self) -> Result<Uuid> {
        let transaction = self.begin().await?;
        let founded = epoch::found_new(&transaction).await?;
        bounded(ADMIN_TIMEOUT, "founding a new epoch", transaction.commit()).await?;
        Ok(founded)
    }

    /// Keeps the log and its stored positions over a planned `pg_upgrade`, before any instance runs. Returns `false` when
    /// the log was written on this server already.
    ///
    /// # Errors
    /// Refused without the role `pgevict_admin`, if pgevict is not installed, or when the log knows transactions that this
    /// server has not begun: then it was restored, not upgraded.
    pub async fn adopt_epoch(&mut self) -> Result<bool> {
        let transaction = self.begin().await?;
        let adopted = epoch::adopt(&transaction).await?;
        bounded(ADMIN_TIMEOUT, "adopting the log", transaction.commit()).await?;
        Ok(adopted)
    }

    /// Sets how writers announce events: `adaptive`, `commit`, `bell` or `off`.
    ///
    /// # Errors
    /// Invalid for another mode, refused without the role `pgevict_admin`.
    pub async fn set_wake(&mut self, mode: &str) -> Result<()> {
        let doing = "setting the wake mode";
        let transaction = self.begin().await?;
        let parameters = [(&mode as _, Type::TEXT)];
        let set = transaction.query_typed("select pgevict.set_wake($1)", &parameters);
        bounded(ADMIN_TIMEOUT, doing, set).await?;
        bounded(ADMIN_TIMEOUT, doing, transaction.commit()).await
    }

    /// A transaction of our own settings, whatever the role's defaults are.
    async fn begin(&mut self) -> Result<Transaction<'_>> {
        let begun = self
            .client()
            .build_transaction()
            .isolation_level(IsolationLevel::ReadCommitted)
            .read_only(false)
            .start();
        bounded(ADMIN_TIMEOUT, "beginning a transaction", begun).await
    }
}
