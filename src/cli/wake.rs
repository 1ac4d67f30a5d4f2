//! `pgevict wake MODE`.

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::{Place, print};

/// Sets how writers announce events.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  pgevict wake commit")]
pub(super) struct Wake {
    mode: Mode,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// NOTIFY while quiet, the bell while busy (until the bell exists: as commit).
    Adaptive,
    /// Always NOTIFY in the writer's transaction.
    Commit,
    /// Never NOTIFY from writers (until the bell exists: as off).
    Bell,
    /// Polling only.
    Off,
}

impl Wake {
    pub(super) async fn run(self, place: &Place) -> Result<()> {
        let mode = match self.mode {
            Mode::Adaptive => "adaptive",
            Mode::Commit => "commit",
            Mode::Bell => "bell",
            Mode::Off => "off",
        };
        place.admin().await?.set_wake(mode).await?;
        let meaning = match self.mode {
            Mode::Bell | Mode::Off => ": events arrive by polling",
            Mode::Adaptive | Mode::Commit => "",
        };
        print(format!("wake mode is now {mode}{meaning}"))?;
        Ok(())
    }
}
