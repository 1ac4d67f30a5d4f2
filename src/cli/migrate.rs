//! `pgevict migrate`.

use anyhow::Result;
use clap::Args;

use super::{Place, print};

/// Installs or upgrades schema pgevict; safe from many processes at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pgevict --url postgresql://me@localhost/shop migrate
  pgevict migrate --print | psql shop")]
pub(super) struct Migrate {
    /// Prints the SQL of a first installation instead of running it.
    #[arg(long)]
    print: bool,
}

impl Migrate {
    pub(super) async fn run(self, place: &Place) -> Result<()> {
        if self.print {
            print(pgevict::store::print())?;
            return Ok(());
        }
        let done = place.admin().await?.migrate().await?;
        match (done.changed, &done.before) {
            (false, _) if done.newer => print(format!(
                "schema pgevict comes from a newer pgevict (version {}, functions {}): nothing was changed",
                done.now.schema, done.now.functions
            ))?,
            (false, _) => print(format!(
                "schema pgevict is up to date (version {})",
                done.now.schema
            ))?,
            (true, None) => print(format!("schema pgevict installed (version {})", done.now.schema))?,
            (true, Some(before)) if *before == done.now => {
                print(format!("schema pgevict mended (version {})", done.now.schema))?
            }
            (true, Some(before)) if before.schema == done.now.schema => print(format!(
                "functions of schema pgevict replaced (version {})",
                done.now.schema
            ))?,
            (true, Some(before)) => print(format!(
                "schema pgevict upgraded from version {} to {}",
                before.schema, done.now.schema
            ))?,
        }
        if let Some(grants) = &done.grants {
            print("-- this role may not create roles; somebody who may should run:")?;
            print(grants)?;
        }
        Ok(())
    }
}
