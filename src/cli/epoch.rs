//! `pgevict epoch`.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;

use super::{Place, print};

/// Shows the life of the server that the log belongs to, or settles it after an upgrade or a copy.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pgevict epoch show
  pgevict epoch adopt            # after pg_upgrade, before the first instance starts
  pgevict epoch new --yes        # in a copy of a database, before the first instance starts")]
pub(super) struct Epoch {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The epoch, and whether the log was written on this server.
    Show {
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Keeps the log and its stored positions over a planned pg_upgrade.
    Adopt,
    /// Makes the log a new one, empty: every running instance drops what it holds.
    New {
        /// Confirms that the log is emptied.
        #[arg(long, required = true)]
        yes: bool,
    },
}

impl Epoch {
    pub(super) async fn run(self, place: &Place) -> Result<()> {
        let mut admin = place.admin().await?;
        match self.verb {
            Verb::Show { json } => {
                let state = admin.epoch().await?;
                if json {
                    print(json!({
                        "epoch": state.epoch,
                        "system_identifier": state.system_identifier.to_string(),
                        "same_log": state.same_log,
                    }))?;
                    return Ok(());
                }
                match state.epoch {
                    Some(epoch) => print(format!("epoch {epoch}"))?,
                    None => print("no epoch: the first instance to connect founds one")?,
                }
                print(match state.same_log {
                    None => "no instance ever ran on this log",
                    Some(true) => "the log was written on this server",
                    Some(false) => {
                        "the log was written on another server: the first instance to connect empties it \
                         (after a planned pg_upgrade call pgevict epoch adopt first)"
                    }
                })?;
            }
            Verb::Adopt if admin.adopt_epoch().await? => print("the log and its stored positions are kept")?,
            Verb::Adopt => print("nothing to adopt: the log was written on this server")?,
            Verb::New { yes } => {
                debug_assert!(yes, "clap requires it");
                print(format!(
                    "the log is empty, its epoch {}",
                    admin.new_epoch().await?
                ))?;
            }
        }
        Ok(())
    }
}
