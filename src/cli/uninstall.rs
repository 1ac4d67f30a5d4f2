//! `pgevict uninstall`.

use anyhow::Result;
use clap::Args;
use pgevict::store::migrate::{Foreign, Plan, Role};

use super::{Locking, Place, print};

/// Removes schema pgevict with its log, every watch, and the roles that nobody uses.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pgevict uninstall --dry-run
  pgevict uninstall --yes")]
#[group(id = "consent", required = true, multiple = true, args = ["yes", "dry_run"])]
pub(super) struct Uninstall {
    /// Confirms that the log and every watch are removed.
    #[arg(long)]
    yes: bool,
    /// Prints what would be removed, and what would stay; changes nothing.
    #[arg(long, conflicts_with_all = ["yes", "force"])]
    dry_run: bool,
    /// Also removes what pgevict did not make and what depends on it, such as a view on the log.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    locking: Locking,
}

impl Uninstall {
    pub(super) async fn run(self, place: &Place) -> Result<()> {
        let mut admin = place.admin_locking(&self.locking).await?;
        if self.dry_run {
            return tell(&admin.plan_uninstall().await?);
        }
        let others = if self.force {
            Foreign::Drop
        } else {
            Foreign::Refuse
        };
        let done = admin.uninstall_with(others).await?;
        if !done.found {
            print("there was no schema pgevict")?;
            return Ok(());
        }
        let watches = if done.watches == 1 { "watch" } else { "watches" };
        print(format!("schema pgevict removed, with {} {watches}", done.watches))?;
        for role in &done.roles {
            print(format!("role {role} removed"))?;
        }
        stays(&done.kept)?;
        if let Some(drops) = &done.drops {
            print("-- this role may not drop roles; somebody who may should run:")?;
            print(drops.trim_end())?;
        }
        Ok(())
    }
}

fn tell(plan: &Plan) -> Result<()> {
    if !plan.found {
        print("there is no schema pgevict")?;
        return Ok(());
    }
    for table in &plan.watches {
        print(format!("would take the watch off {table}"))?;
    }
    print(format!(
        "would remove schema pgevict with its log ({:.1} MiB)",
        plan.bytes as f64 / 1_048_576.0
    ))?;
    for role in plan.roles.iter().filter(|role| role.used.is_empty()) {
        print(format!("would remove role {}", role.name))?;
    }
    stays(&plan.roles)?;
    for foreign in &plan.foreign {
        print(format!(
            "would be refused: {foreign} was not made by this pgevict (--force removes it too)"
        ))?;
    }
    Ok(())
}

fn stays(roles: &[Role]) -> Result<()> {
    for role in roles.iter().filter(|role| !role.used.is_empty()) {
        print(format!("role {} stays: it {}", role.name, role.used.join(", ")))?;
    }
    Ok(())
}
