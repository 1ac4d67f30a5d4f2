//! Which server process the server named when a session was opened.
//!
//! The protocol's BackendKeyData message names it, for cancelling. A pooler answers with data of its own, so a session
//! whose process says another number is lent: the pooler gives the server's session to others between transactions (or
//! keeps it for us, which looks the same). The client library keeps the number to itself but writes it into a cancel
//! request, and that can be sent anywhere: here into memory.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// Bytes of a CancelRequest: length, code, process, secret; four each.
const CANCEL_REQUEST: usize = 16;

/// The process that the server named at the connect; `None` when the library writes another request than it does today.
pub(super) async fn process_named(client: &Client) -> Option<i32> {
    let mut written = Paper(Vec::new());
    client
        .cancel_token()
        .cancel_query_raw(&mut written, Plain)
        .await
        .ok()?;
    // Before it there may be a request for TLS.
    let request = written.0.last_chunk::<CANCEL_REQUEST>()?;
    let (length, rest) = request.split_first_chunk::<4>()?;
    let process = rest.get(4..8)?.first_chunk::<4>()?;
    (*length == (CANCEL_REQUEST as u32).to_be_bytes()).then(|| i32::from_be_bytes(*process))
}

/// Keeps what is written, and agrees to TLS when asked.
struct Paper(Vec<u8>);

impl AsyncWrite for Paper {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Paper {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if into.remaining() > 0 {
            into.put_slice(b"S");
        }
        Poll::Ready(Ok(()))
    }
}

/// Encrypts nothing: the request stays in this process.
struct Plain;

impl<'a> TlsConnect<&'a mut Paper> for Plain {
    type Stream = Unencrypted<'a>;
    type Error = Infallible;
    type Future = Ready<Result<Unencrypted<'a>, Infallible>>;

    fn connect(self, stream: &'a mut Paper) -> Self::Future {
        ready(Ok(Unencrypted(stream)))
    }
}

struct Unencrypted<'a>(&'a mut Paper);

impl AsyncWrite for Unencrypted<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Unencrypted<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, into)
    }
}

impl TlsStream for Unencrypted<'_> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
