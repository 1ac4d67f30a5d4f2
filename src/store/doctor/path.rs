//! The way of a notification, tried as an instance tries it: LISTEN on a random channel, NOTIFY over `url`.

use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::AsyncMessage;
use uuid::Uuid;

use super::Look;
use crate::error::{Error, Result};
use crate::store::notify;
use crate::store::session::{Connector, Purpose, Session};
use crate::store::{connect::Driver, epoch};

/// SQLSTATE `lock_not_available`: the NOTIFY lock was not had in time.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// What became of the probe.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenPath {
    /// It was heard.
    Proved,
    /// Statements on `listen_url` are answered by changing server sessions, so none of them listens for us.
    Pooler,
    /// The addresses lead to two databases.
    TwoServers,
    /// It was not heard, though both addresses lead to one database.
    Unheard,
    /// The server refused LISTEN.
    Refused(String),
}

/// The session over `listen_url`, with what it hears.
pub(super) struct Listening {
    session: Session,
    heard: mpsc::UnboundedReceiver<String>,
}

impl Listening {
    pub(super) fn into_session(self) -> Session {
        self.session
    }
}

/// Opens the session over `listen_url`.
pub(super) async fn listen(direct: &Connector) -> Result<Listening> {
    let (client, driver) = direct.connect(Purpose::Doctor).await?;
    let session = Session::new(client, direct.statement_timeout());
    let (tell, heard) = mpsc::unbounded_channel();
    session.drive(hear(driver, tell));
    Ok(Listening { session, heard })
}

/// Hands on the channel of each notification.
async fn hear(mut driver: Driver, tell: mpsc::UnboundedSender<String>) {
    while let Some(Ok(message)) = poll_fn(|cx| driver.poll_message(cx)).await {
        if let AsyncMessage::Notification(notification) = message {
            // Nobody listens any more: the session goes on.
            let _ = tell.send(notification.channel().to_owned());
        }
    }
}

/// Tries the way; what fails for another reason is not checked.
pub(super) async fn probe(
    listening: &mut Listening,
    direct: &Connector,
    over: &Session,
    patience: Duration,
) -> Look<ListenPath> {
    match is_standby(&listening.session).await {
        Ok(false) => {}
        Ok(true) => return Look::NotChecked("a standby has no LISTEN".to_owned()),
        Err(error) => return Look::NotChecked(error.to_string()),
    }
    let channel = format!("pgevict_probe_{}", Uuid::new_v4().simple());
    let tried = try_it(listening, direct, over, &channel, patience).await;
    // Behind a pooler the next client gets this server session.
    drop(notify::unlisten(&listening.session, &channel).await);
    match tried {
        Ok(path) => Look::Seen(path),
        Err(error) if error.sqlstate() == Some(LOCK_NOT_AVAILABLE) => {
            Look::NotChecked("the NOTIFY lock of the server was not to be had within 200 ms".to_owned())
        }
        Err(error) => Look::NotChecked(error.to_string()),
    }
}

async fn try_it(
    listening: &mut Listening,
    direct: &Connector,
    over: &Session,
    channel: &str,
    patience: Duration,
) -> Result<ListenPath> {
    let session = &listening.session;
    if notify::changes_hands(session, direct).await? {
        return Ok(ListenPath::Pooler);
    }
    match notify::listen(session, channel).await {
        Ok(()) => {}
        Err(error) if error.sqlstate().is_some() => return Ok(ListenPath::Refused(error.to_string())),
        Err(error) => return Err(error),
    }
    if !notify::is_listening(session, channel).await? {
        return Ok(ListenPath::Pooler);
    }
    notify::notify(over, channel).await?;
    let heard = async { while listening.heard.recv().await.is_some_and(|name| name != channel) {} };
    if timeout(patience, heard).await.is_ok() && !session.is_closed() {
        return Ok(ListenPath::Proved);
    }
    if session.is_closed() {
        return Err(Error::unreachable("the LISTEN session was closed"));
    }
    let (here, there) = tokio::join!(epoch::database_of(session), epoch::database_of(over));
    Ok(match (here, there) {
        (Ok(here), Ok(there)) if here != there => ListenPath::TwoServers,
        _ => ListenPath::Unheard,
    })
}

async fn is_standby(session: &Session) -> Result<bool> {
    let asked = async {
        let sql = "select pg_catalog.pg_is_in_recovery()";
        session.client().query_typed_one(sql, &[]).await?.try_get(0)
    };
    session.bounded("asking for the server's state", asked).await
}
