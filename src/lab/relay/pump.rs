//! What happens to the bytes of one connection.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::{Counted, Faults, Gate, Shared};

const CHUNK: usize = 64 * 1024;

/// Connects `client` to the target and passes bytes until both directions have ended or one has failed.
pub(super) async fn connection(client: TcpStream, shared: &Shared, faults: watch::Receiver<Faults>) {
    let mut gate = faults.clone();
    gate_open(&mut gate).await;
    let Ok(server) = TcpStream::connect(shared.target).await else {
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = Pump {
        from: from_client,
        to: to_server,
        faults: faults.clone(),
        matching: Some((shared, Vec::new())),
    };
    let answers = Pump {
        from: from_server,
        to: to_client,
        faults,
        matching: None,
    };
    let _ = tokio::try_join!(requests.run(), answers.run());
}

/// One direction.
struct Pump<'a> {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    faults: watch::Receiver<Faults>,
    /// For the direction in which chunks are held: where to count them, and the end of what went before.
    matching: Option<(&'a Shared, Vec<u8>)>,
}

impl Pump<'_> {
    async fn run(mut self) -> std::io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            gate_open(&mut self.faults).await;
            let length = tokio::select! {
                biased;
                _ = self.faults.changed() => continue,
                read = self.from.read(&mut chunk) => read?,
            };
            if length > 0 {
                self.hold(&chunk[..length]).await;
                let delay = self.faults.borrow().delay;
                if delay > Duration::ZERO {
                    tokio::time::sleep(delay).await;
                }
            }
            gate_open(&mut self.faults).await;
            if length == 0 {
                return self.to.shutdown().await;
            }
            self.to.write_all(&chunk[..length]).await?;
        }
    }

    async fn hold(&mut self, chunk: &[u8]) {
        let Some((shared, tail)) = &mut self.matching else {
            return;
        };
        let Some(hold) = self.faults.borrow().hold.clone() else {
            tail.clear();
            return;
        };
        if !matches(&hold.needle, tail, chunk) {
            return;
        }
        let _held = Counted::new(&shared.held);
        tokio::select! {
            () = tokio::time::sleep(hold.time) => {}
            _ = self.faults.wait_for(|faults| faults.hold.is_none()) => {}
        }
    }
}

async fn gate_open(faults: &mut watch::Receiver<Faults>) {
    // Fails only when the relay is gone, and then the connection is ended from outside.
    let _ = faults.wait_for(|faults| faults.gate == Gate::Open).await;
}

/// `needle` stands in `chunk`, or across its start; `tail` carries the end of one chunk to the next call.
fn matches(needle: &[u8], tail: &mut Vec<u8>, chunk: &[u8]) -> bool {
    if needle.is_empty() {
        return false;
    }
    tail.extend_from_slice(chunk);
    let found = tail.windows(needle.len()).any(|window| window == needle);
    let keep = if found {
        0
    } else {
        tail.len().min(needle.len() - 1)
    };
    tail.drain(..tail.len() - keep);
    found
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_needle_is_found_within_and_across_chunks() {
        let mut tail = Vec::new();
        assert!(matches(b"LISTEN", &mut tail, b"Q LISTEN x"));
        assert!(!matches(b"LISTEN", &mut tail, b"Q LIS"));
        assert!(matches(b"LISTEN", &mut tail, b"TEN x"));
        assert!(!matches(b"LISTEN", &mut tail, b"TEN"));
        assert!(!matches(b"", &mut tail, b"TEN"));
    }
}
