//! One session with the server: opened within a deadline, its settings forced, its statements bounded.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, SimpleQueryMessage};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::{Address, SessionConfig};
use crate::error::{Error, Result};
use crate::store::connect::{self, Driver};
use crate::store::failure::failure;
use crate::store::key_data::process_named;

/// What a session is for; shown in `application_name`, so that a DBA knows whom he sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The LISTEN connection.
    Listen,
    /// The feed's fetches, heartbeats and probes.
    Fetch,
    /// The chores of the warden.
    Warden,
    /// A probe sent over `url`.
    Probe,
    /// Events that were enqueued.
    Emit,
    /// Administration and the command line.
    Admin,
    /// Looking for what will hurt; only reads.
    Doctor,
}

impl Purpose {
    fn as_str(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Fetch => "fetch",
            Self::Warden => "warden",
            Self::Probe => "probe",
            Self::Emit => "emit",
            Self::Admin => "admin",
            Self::Doctor => "doctor",
        }
    }
}

/// How to open sessions: one address, the deadlines, and the name to show.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    address: Address,
    settings: SessionConfig,
    instance_id: Arc<str>,
}

type Settings = &'static [(&'static str, &'static str)];

/// Settings of a session that is ours alone; a role's or database's defaults may set any of these. A serializable feed
/// aborts the user's transactions.
const FORCED_FOR_SESSION: Settings = &[
    ("default_transaction_isolation", "'read committed'"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_deferrable", "off"),
    ("idle_session_timeout", "0"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "20000"),
];

/// Settings of every statement of an instance. `jit` costs tens of ms on a first fetch. A session of ours resolves no
/// name of the user's. What it writes (heartbeats, an epoch) is void after a crash or failover anyway, so no commit of it
/// waits for a standby: such a wait ends with no deadline and no closed socket, and every reconnect would leave one more
/// backend behind.
const FORCED: Settings = &[
    ("jit", "off"),
    ("client_min_messages", "warning"),
    ("standard_conforming_strings", "on"),
    ("max_parallel_workers_per_gather", "0"),
    ("search_path", "pg_catalog, pg_temp"),
    ("synchronous_commit", "local"),
];

/// The same, and: the fetch reads by index whatever the statistics say, and is planned once.
const FORCED_FOR_FETCH: Settings = &[
    FORCED[0],
    FORCED[1],
    FORCED[2],
    FORCED[3],
    FORCED[4],
    FORCED[5],
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
];

/// In a SQL_ASCII database the server would refuse to send a text that is no UTF-8, and with it every event behind it:
/// judging the bytes is left to us.
const UTF8_IS_JUDGED_HERE: &str = "
  select pg_catalog.set_config('client_encoding', 'SQL_ASCII', false)
   where pg_catalog.current_setting('server_encoding') = 'SQL_ASCII';
";

/// Notes, in the server process itself, the part of the identity that cannot change while that process lives: each fetch
/// reads it there, without a file and a catalog. Only the process writes it, from what it finds, so it is never another
/// log's. Where it is not noted (a pooler changed the process under the session) the fetch works it out.
const REMEMBER_IDENTITY: &str = "
  select set_config('pgevict.system_identifier', (pg_control_system()).system_identifier::text, false),
         set_config('pgevict.database',
           (pg_get_object_address('database', array[current_database()::text], '{}')).objid::text, false);
";

/// Aurora keeps unlogged tables through a crash, so that the row of the epoch proves nothing. Only the superuser makes
/// functions in pg_catalog.
const KEEPS_UNLOGGED: &str = "exists (select from pg_catalog.pg_proc p where p.proname = 'aurora_version' \
     and p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace)";

/// Oldest server that is served: since 15 every NOTIFY signals at its commit.
const OLDEST_SERVER: i32 = 150_000;
/// Deadline of an administrative statement: installing waits for locks on user tables.
pub(crate) const ADMIN_TIMEOUT: Duration = Duration::from_secs(120);
/// Deadline of a chore, which deletes many rows; well below the time after which the office falls vacant.
pub(crate) const CHORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the driver of a dropped session to say goodbye to the server.
const FAREWELL: Duration = Duration::from_secs(1);
/// First server version that is not tested.
const UNTESTED_SERVER: i32 = 190_000;

impl Connector {
    pub(crate) fn new(address: Address, settings: SessionConfig, instance_id: Arc<str>) -> Self {
        Self {
            address,
            settings,
            instance_id,
        }
    }

    /// The address without its secrets.
    pub(crate) fn shown(&self) -> String {
        self.address.redacted().to_owned()
    }

    /// Deadline of one statement.
    pub(crate) fn statement_timeout(&self) -> Duration {
        self.settings.statement_timeout
    }

    /// Opens a session whose driver runs in its own task until the session is dropped.
    pub(crate) async fn open(&self, purpose: Purpose) -> Result<Session> {
        let mut session = self.open_unjudged(purpose).await?;
        if purpose == Purpose::Warden {
            session.statement_timeout = session.statement_timeout.max(CHORE_TIMEOUT);
        }
        self.prepare(&mut session, purpose).await?;
        if purpose == Purpose::Admin {
            session.statement_timeout = ADMIN_TIMEOUT;
        }
        Ok(session)
    }

    /// As [`Self::open`], with neither settings nor questions: also on a server that cannot serve.
    pub(crate) async fn open_unjudged(&self, purpose: Purpose) -> Result<Session> {
        let (client, driver) = self.connect(purpose).await?;
        let session = Session::new(client, self.settings.statement_timeout);
        // Why it ended reaches the caller through the client's next statement.
        session.drive(async { drop(driver.await) });
        Ok(session)
    }

    /// Finds the primary, opens the socket and authenticates; the caller drives the connection.
    pub(crate) async fn connect(&self, purpose: Purpose) -> Result<(Client, Driver)> {
        // The server keeps 63 bytes of it.
        let mut name = format!("pgevict/{}/{}", purpose.as_str(), self.instance_id);
        name.truncate(name.floor_char_boundary(63));
        connect::connect(&self.address, &name, self.settings.connect_timeout).await
    }

    /// Refuses servers that cannot serve, and forces the settings: for the session where it is ours, else for each
    /// transaction.
    pub(crate) async fn prepare(&self, session: &mut Session, purpose: Purpose) -> Result<()> {
        let doing = format!("preparing the {} session", purpose.as_str());
        let settings = match purpose {
            Purpose::Probe | Purpose::Emit | Purpose::Admin | Purpose::Doctor => &FORCED[..1],
            Purpose::Listen | Purpose::Warden => FORCED,
            Purpose::Fetch => FORCED_FOR_FETCH,
        };
        let named = process_named(&session.client).await;
        let deadline_ms = session.statement_timeout.as_millis().max(1);
        // One simple query is one transaction.
        let ask = format!(
            "{} set local statement_timeout = {deadline_ms}; \
             select pg_catalog.current_setting('server_version_num'), pg_catalog.pg_is_in_recovery(), \
                    pg_catalog.pg_backend_pid(), {KEEPS_UNLOGGED}",
            setting(settings, "set local")
        );
        let answer = session.bounded(&doing, session.client.simple_query(&ask)).await?;
        let answered = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((
                row.get(0)?.parse::<i32>().ok()?,
                row.get(1)? == "t",
                row.get(2)?.parse().ok()?,
                row.get(3)? == "t",
            )),
            _ => None,
        });
        let (version, in_recovery, process, keeps_unlogged): (_, _, i32, _) =
            answered.ok_or_else(|| Error::database(format!("{doing}: the server did not say what it is")))?;
        must_be_fit(version, in_recovery, &self.shown())?;
        session.keeps_unlogged = keeps_unlogged;

        // Where these lead, other clients of a pooler may be served.
        if named != Some(process) || matches!(purpose, Purpose::Probe | Purpose::Emit | Purpose::Admin) {
            session.lent = Some(setting(settings, "set local"));
        } else {
            let mut batch = setting(FORCED_FOR_SESSION, "set") + &setting(settings, "set");
            let _ = write!(batch, "set statement_timeout = {deadline_ms};");
            if purpose == Purpose::Fetch {
                batch += UTF8_IS_JUDGED_HERE;
                batch += REMEMBER_IDENTITY;
            }
            session
                .bounded(&doing, session.client.batch_execute(&batch))
                .await?;
        }
        if version >= UNTESTED_SERVER {
            tracing::warn!(
                version,
                "server is newer than the versions pgevict is tested with (15 to 18)"
            );
        }
        Ok(())
    }
}

/// Refuses a server that is too old or a standby; `shown` is its address, without secrets.
pub(crate) fn must_be_fit(version: i32, in_recovery: bool, shown: &str) -> Result<()> {
    if version < OLDEST_SERVER {
        return Err(Error::refused(format!(
            "server version {} is too old: pgevict needs PostgreSQL 15 or newer",
            version / 10_000
        )));
    }
    if in_recovery {
        return Err(connect::standby(shown));
    }
    Ok(())
}

/// The statements that make these settings.
fn setting(settings: Settings, verb: &str) -> String {
    settings.iter().fold(String::new(), |batch, (name, value)| {
        format!("{batch}{verb} {name} = {value};")
    })
}

/// An open session. A statement that misses its deadline makes it useless: drop it.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    statement_timeout: Duration,
    /// Settings that each transaction makes for itself, where a pooler lends the server's session: what the session kept
    /// would be kept for the pooler's other clients. `None` where the session is ours and its settings are forced.
    lent: Option<String>,
    keeps_unlogged: bool,
    ended: CancellationToken,
    /// Cancelled when the session is dropped.
    gone: CancellationToken,
    _gone: DropGuard,
}

impl Session {
    pub(crate) fn new(client: Client, statement_timeout: Duration) -> Self {
        let gone = CancellationToken::new();
        Self {
            client,
            statement_timeout,
            lent: None,
            keeps_unlogged: false,
            ended: CancellationToken::new(),
            _gone: gone.clone().drop_guard(),
            gone,
        }
    }

    /// The client below.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// True where unlogged tables outlive a crash: the epoch of another session proves nothing there.
    pub(crate) fn keeps_unlogged(&self) -> bool {
        self.keeps_unlogged
    }

    /// A pooler may stand between, which gives the server's session to others after each transaction.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// The client below, for transactions.
    pub(crate) fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Deadline of one statement.
    pub(crate) fn statement_timeout(&self) -> Duration {
        self.statement_timeout
    }

    /// Drives the connection below in a task of its own until the session is dropped.
    pub(crate) fn drive(&self, driver: impl Future<Output = ()> + Send + 'static) {
        let (ended, gone) = (self.ended.clone(), self.gone.clone());
        tokio::spawn(async move {
            let abandoned = async {
                gone.cancelled().await;
                sleep(FAREWELL).await;
            };
            tokio::select! {
                () = driver => {}
                // The driver alone would wait for the answer to a statement that was given up, if need be for ever.
                () = abandoned => {}
            }
            ended.cancel();
        });
    }

    /// Resolves when the server or the link is known to be gone.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// True when the server or the link is known to be gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Awaits a statement, alone in its transaction, within the deadline.
    pub(crate) async fn bounded<T>(
        &self,
        doing: &str,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        bounded(
            self.statement_timeout,
            doing,
            self.alone(self.statement_timeout, statement),
        )
        .await
    }

    /// Awaits a statement that may take long, with a deadline of its own here and at the server.
    pub(crate) async fn bounded_by<T>(
        &self,
        deadline: Duration,
        doing: &str,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        if self.is_lent() {
            return bounded(deadline, doing, self.alone(deadline, statement)).await;
        }
        let client = &self.client;
        let at_server = async |time: Duration| {
            client
                .batch_execute(&format!("set statement_timeout = {}", time.as_millis().max(1)))
                .await
        };
        self.bounded(doing, at_server(deadline)).await?;
        let done = bounded(deadline, doing, statement).await?;
        self.bounded(doing, at_server(self.statement_timeout)).await?;
        Ok(done)
    }

    /// In a lent session: the statement amid a transaction of its own, which makes the settings; all sent at once.
    async fn alone<T>(
        &self,
        deadline: Duration,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, tokio_postgres::Error> {
        let Some(settings) = &self.lent else {
            return statement.await;
        };
        let begin = format!(
            "begin isolation level read committed read write; {settings} set local statement_timeout = {}",
            deadline.as_millis().max(1)
        );
        // Polled, and so sent, in this order.
        let (begun, done, committed) = futures::join!(
            self.client.batch_execute(&begin),
            statement,
            self.client.batch_execute("commit"),
        );
        begun?;
        let done = done?;
        committed?;
        Ok(done)
    }
}

/// Awaits a statement within a deadline.
pub(crate) async fn bounded<T>(
    deadline: Duration,
    doing: &str,
    statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T> {
    match timeout(deadline, statement).await {
        Ok(done) => done.map_err(|error| failure(doing, error)),
        Err(_) => Err(Error::timeout(format!(
            "{doing}: no answer within {}",
            humantime::format_duration(deadline)
        ))),
    }
}
