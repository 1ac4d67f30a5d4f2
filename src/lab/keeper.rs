//! The thread that starts servers.
//!
//! The kernel sends the parent-death signal when the *thread* that forked ends, not when its process does. A
//! worker of a test's runtime may end long before the test, so every server is started from this one thread,
//! which lives as long as the process. It only waits for orders; ending the process ends it.

use std::io;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};

use tokio::sync::oneshot;

use crate::{Error, Result};

struct Order {
    command: Command,
    reply: oneshot::Sender<io::Result<Child>>,
}

static KEEPER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();

/// Starts `command` from the keeper's thread.
pub(super) async fn spawn(command: Command) -> Result<Child> {
    let gone = || Error::unreachable("the thread that starts servers is gone");
    let (reply, child) = oneshot::channel();
    let keeper = KEEPER.get_or_init(start);
    keeper.send(Order { command, reply }).map_err(|_| gone())?;
    let child = child.await.map_err(|_| gone())?;
    child.map_err(|error| Error::refused("the server's program does not start").because(error))
}

fn start() -> mpsc::Sender<Order> {
    let (orders, inbox) = mpsc::channel::<Order>();
    // Should the thread not start, the inbox is dropped and every order reports it.
    let _ = std::thread::Builder::new()
        .name("pgevict-lab".into())
        .spawn(move || {
            for mut order in inbox {
                // A caller that went away leaves nobody to stop the child.
                if let Err(Ok(mut orphan)) = order.reply.send(order.command.spawn()) {
                    let _ = orphan.kill();
                    let _ = orphan.wait();
                }
            }
        });
    orders
}
