//! The command line: one file per command.
//!
//! Exit codes: 0 ok, 1 finding, 2 usage or configuration, 3 unreachable, 4 refused state, 5 timeout.

mod demo;
mod doctor;
mod emit;
mod epoch;
mod migrate;
mod prune;
mod tail;
mod uninstall;
mod wake;
mod watch;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pgevict::store::Admin;
use pgevict::{Config, Error};
use tracing_subscriber::EnvFilter;

/// PostgreSQL tells every cache what went stale.
#[derive(Debug, Parser)]
#[command(
    name = "pgevict",
    version,
    max_term_width = 100,
    after_help = "Examples:
  pgevict demo
  pgevict --url postgresql://me@localhost/shop migrate
  pgevict watch products --key 'product:{id}' --tag 'category:{category_id}'
  pgevict tail --prefix product:"
)]
struct Cli {
    /// Address of the database; else PGEVICT_URL, then DATABASE_URL (demo: only what is given here).
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// Settings file.
    #[arg(long, global = true, value_name = "FILE", env = "PGEVICT_CONFIG")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Migrate(migrate::Migrate),
    Uninstall(uninstall::Uninstall),
    Watch(watch::Watch),
    Unwatch(watch::Unwatch),
    Watches(watch::Watches),
    Wake(wake::Wake),
    Prune(prune::Prune),
    Epoch(epoch::Epoch),
    Emit(emit::Emit),
    Flush(emit::Flush),
    Tail(tail::Tail),
    Doctor(doctor::Doctor),
    Demo(demo::Demo),
}

/// Of commands that lock tables of the user's.
#[derive(Debug, clap::Args)]
struct Locking {
    /// How long to try for the lock on a table, in tries of 100 ms [default: 1m, or session.lock_limit].
    #[arg(long, value_name = "TIME")]
    lock_limit: Option<String>,
}

/// How a command ended that did its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Well,
    Finding,
    /// It found an address that cannot be reached.
    Unreachable,
}

impl Outcome {
    fn of(well: bool) -> Self {
        if well { Self::Well } else { Self::Finding }
    }
}

/// Where the command works: what `--url` and `--config` say, and the environment.
#[derive(Debug)]
struct Place {
    url: Option<String>,
    file: Option<PathBuf>,
}

impl Place {
    /// The address given on the command line, if any.
    fn given(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// All settings: flags, environment, file, defaults.
    fn config(&self) -> Result<Config, Error> {
        self.config_with(None)
    }

    /// The same, with one more flag of this key.
    fn config_with(&self, flag: Option<(&str, &str)>) -> Result<Config, Error> {
        let url = self.url.as_deref().map(|url| ("url", url));
        let flags = url.into_iter().chain(flag);
        let flags = flags.map(|(key, text)| (key.to_owned(), text.to_owned()));
        Config::load(self.file.as_deref(), std::env::vars(), flags)
    }

    /// A session for administration.
    async fn admin(&self) -> Result<Admin, Error> {
        Admin::connect(&self.config()?).await
    }

    /// The same, for what tries for the lock on a table.
    async fn admin_locking(&self, locking: &Locking) -> Result<Admin, Error> {
        let limit = locking.lock_limit.as_deref();
        let flag = limit.map(|limit| ("session.lock_limit", limit));
        Admin::connect(&self.config_with(flag)?).await
    }
}

/// Runs the command of this process.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("PGEVICT_LOG").unwrap_or_else(|_| EnvFilter::new("pgevict=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            drop(writeln!(
                std::io::stderr(),
                "pgevict: starting the runtime: {error}"
            ));
            return ExitCode::from(2);
        }
    };
    match runtime.block_on(run(cli)) {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::Finding) => ExitCode::from(1),
        Ok(Outcome::Unreachable) => ExitCode::from(3),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "pgevict: {}", told(&error)));
            ExitCode::from(code(&error))
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<Outcome> {
    let place = Place {
        url: cli.url,
        file: cli.config,
    };
    match cli.command {
        Command::Migrate(command) => command.run(&place).await?,
        Command::Uninstall(command) => command.run(&place).await?,
        Command::Watch(command) => command.run(&place).await?,
        Command::Unwatch(command) => command.run(&place).await?,
        Command::Watches(command) => return command.run(&place).await.map(Outcome::of),
        Command::Wake(command) => command.run(&place).await?,
        Command::Prune(command) => command.run(&place).await?,
        Command::Epoch(command) => command.run(&place).await?,
        Command::Emit(command) => command.run(&place).await?,
        Command::Flush(command) => command.run(&place).await?,
        Command::Tail(command) => command.run(&place).await?,
        Command::Doctor(command) => return command.run(&place).await,
        Command::Demo(command) => return command.run(&place).await.map(Outcome::of),
    }
    Ok(Outcome::Well)
}

/// A time of an option.
fn time(text: &str) -> Result<std::time::Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "not a time: write whole numbers with units, such as 90s, 10m or 1h".to_owned())
}

/// Prints a line of output. A reader that went away ends the command without noise.
fn print(line: impl std::fmt::Display) -> std::io::Result<()> {
    writeln!(std::io::stdout().lock(), "{line}")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// The message and those causes that say something new.
fn told(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        // What the server said is in our own message, with its hint.
        let said = cause
            .downcast_ref::<tokio_postgres::Error>()
            .and_then(tokio_postgres::Error::as_db_error)
            .or_else(|| cause.downcast_ref::<tokio_postgres::error::DbError>());
        if said.is_some_and(|said| text.contains(said.message())) {
            continue;
        }
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn code(error: &anyhow::Error) -> u8 {
    match error.chain().find_map(|cause| cause.downcast_ref::<Error>()) {
        Some(error) if error.is_invalid() => 2,
        Some(error) if error.is_unreachable() => 3,
        Some(error) if error.is_refused() => 4,
        Some(error) if error.is_timeout() => 5,
        Some(_) => 4,
        None => 2,
    }
}
