//! A pooler in transaction mode, as PgBouncer is one: whoever sends a statement gets any free session of the server,
//! until the transaction ends. Notifications that a session hears meanwhile reach nobody.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

const SSL_REQUEST: u32 = 80_877_103;

/// Serves until it is dropped.
pub(crate) struct Pooler {
    address: SocketAddr,
    _stop: DropGuard,
}

/// Sessions that nobody uses, the last one given back first.
type Idle = Arc<Mutex<Vec<TcpStream>>>;

impl Pooler {
    pub(crate) async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let idle = Idle::default();
        let stopped = stop.clone();
        tokio::spawn(async move {
            while let Some(Ok((client, _))) = stopped.run_until_cancelled(listener.accept()).await {
                let serving = serve(client, server, idle.clone());
                let stopped = stopped.clone();
                tokio::spawn(async move { drop(stopped.run_until_cancelled(serving).await) });
            }
        });
        Self {
            address,
            _stop: stop.drop_guard(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(mut client: TcpStream, server: SocketAddr, idle: Idle) -> std::io::Result<()> {
    let startup = loop {
        let body = untyped(&mut client).await?;
        if body[4..8] == SSL_REQUEST.to_be_bytes() {
            client.write_all(b"N").await?;
        } else {
            break body;
        }
    };
    let (session, greeting) = open(server, &startup).await?;
    idle.lock().unwrap().push(session);
    client.write_all(&greeting).await?;
    loop {
        let mut message = typed(&mut client).await?;
        let free = idle.lock().unwrap().pop();
        let mut session = match free {
            Some(session) => session,
            None => open(server, &startup).await?.0,
        };
        loop {
            if message[0] == b'X' {
                break;
            }
            session.write_all(&message).await?;
            if matches!(message[0], b'Q' | b'S') && answer(&mut session, &mut client).await? == b'I' {
                break;
            }
            message = typed(&mut client).await?;
        }
        idle.lock().unwrap().push(session);
        if message[0] == b'X' {
            return Ok(());
        }
    }
}

/// A session of the server, and all that it said up to its first "ready".
async fn open(server: SocketAddr, startup: &[u8]) -> std::io::Result<(TcpStream, Vec<u8>)> {
    let mut session = TcpStream::connect(server).await?;
    session.set_nodelay(true)?;
    session.write_all(startup).await?;
    let mut greeting = Vec::new();
    loop {
        let message = typed(&mut session).await?;
        greeting.extend_from_slice(&message);
        if message[0] == b'Z' {
            return Ok((session, greeting));
        }
    }
}

/// Hands on what the server answers, without notifications; the state of the transaction afterwards.
async fn answer(session: &mut TcpStream, client: &mut TcpStream) -> std::io::Result<u8> {
    loop {
        let message = typed(session).await?;
        if message[0] != b'A' {
            client.write_all(&message).await?;
        }
        if message[0] == b'Z' {
            return Ok(message[5]);
        }
    }
}

async fn untyped(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let mut message = length.to_be_bytes().to_vec();
    message.resize(length as usize, 0);
    stream.read_exact(&mut message[4..]).await?;
    Ok(message)
}

async fn typed(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let kind = stream.read_u8().await?;
    let mut message = vec![kind];
    message.extend(untyped(stream).await?);
    Ok(message)
}
