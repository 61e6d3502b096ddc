//! Command line: `agent` runs the server, the others are small clients of its HTTP or RPC port.
//!
//! Each command is a module with its flags (`Args`, or a subcommand enum) and `run(args) -> anyhow::Result<ExitCode>`.
//! Flags look as Consul's do, with one dash; [`args`] translates them for clap. Results go to standard output,
//! everything else to standard error, and a failure ends with exit code 1 and one message that says what to change.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A command line talks on stdout and stderr.

/// `println!` for results: a reader that has gone away (`crossway ... | head`) ends the command without a panic.
macro_rules! outln {
    ($($text:tt)*) => {
        $crate::cli::print_line(format_args!($($text)*))
    };
}

mod agent;
pub mod args;
mod client;
mod config_entry;
mod connect;
mod document;
mod env;
mod info;
mod keyring;
mod members;
mod operator;
mod pool;
mod rpc;
mod rtt;
mod services;
mod table;
mod tls;
mod validate;
mod version;

use clap::CommandFactory;
use clap::FromArgMatches;
use clap::Parser;
use clap::Subcommand;
use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io::Write;
use std::process::ExitCode;

/// Federates datacenters through Envoy mesh gateways.
#[derive(Debug, Parser)]
#[command(
    name = "crossway",
    version,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    #[command(disable_help_flag = true)]
    Agent(agent::Args),
    /// Read, write, list and delete configuration entries
    #[command(subcommand)]
    Config(config_entry::Args),
    /// Run Envoy as a gateway
    #[command(subcommand)]
    Connect(connect::Args),
    /// Make a member leave that failed and will not come back
    ForceLeave(pool::ForceLeave),
    /// Show the server's figures
    Info(info::Args),
    /// Let a server join members of its pool
    Join(pool::Join),
    /// Print a new key for gossip encryption
    Keygen(keyring::Keygen),
    /// List and change the keys of gossip encryption
    Keyring(keyring::Args),
    /// Let a server leave its datacenter in order and stop
    Leave(pool::Plain),
    /// Show the members of a pool
    Members(members::Args),
    /// Look after the servers of a datacenter
    #[command(subcommand)]
    Operator(operator::Args),
    /// Let a server read its configuration again
    Reload(pool::Plain),
    /// Call a method on a server's RPC port
    Rpc(rpc::Args),
    /// Estimate the round trip between two nodes
    Rtt(rtt::Args),
    /// Register and deregister services
    #[command(subcommand)]
    Services(services::Args),
    /// Create the certificates of servers and clients
    #[command(subcommand)]
    Tls(tls::Args),
    /// Check configuration files without starting anything
    Validate(validate::Args),
    /// Print the version
    Version(version::Args),
}

/// Runs the command in `args` (with the program's name first) and gives its exit code.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let dispatched = match parse(args) {
        Ok(command) => dispatch(command),
        Err(answer) => {
            let _ = answer.print(); // Nobody is left to tell when stdout and stderr are gone.
            // Help and version are asked for; everything else is a mistake, which Consul ends with 1.
            return ExitCode::from(u8::from(answer.use_stderr()));
        }
    };
    dispatched.unwrap_or_else(|error| {
        let text = format!("{error:#}");
        // Many of Consul's texts begin with the word.
        let prefix = if text.starts_with("Error") {
            ""
        } else {
            "Error: "
        };
        eprintln!("{prefix}{text}");
        ExitCode::FAILURE
    })
}

/// The flags of `agent` are those of the configuration and are read by [`crate::config::flags`]; all others by clap.
fn parse(args: Vec<OsString>) -> Result<Command, clap::Error> {
    if args.get(1).is_some_and(|command| command == "agent") {
        let args = args.into_iter().skip(2).collect();
        return Ok(Command::Agent(agent::Args { args }));
    }
    let command = args::with_go_switches(Cli::command());
    let matches = command.try_get_matches_from(args::to_double_dash(args))?;
    Ok(Cli::from_arg_matches(&matches)?.command)
}

/// See [`outln`].
fn print_line(text: fmt::Arguments<'_>) {
    if writeln!(std::io::stdout(), "{text}").is_err() {
        std::process::exit(1);
    }
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Agent(args) => agent::run(args),
        Command::Config(args) => config_entry::run(&args),
        Command::Connect(args) => connect::run(args),
        Command::ForceLeave(args) => pool::force_leave(&args),
        Command::Info(args) => info::run(&args),
        Command::Join(args) => pool::join(&args),
        Command::Keygen(args) => Ok(keyring::generate(&args)),
        Command::Keyring(args) => keyring::run(&args),
        Command::Leave(args) => pool::leave(&args),
        Command::Members(args) => members::run(&args),
        Command::Operator(args) => operator::run(&args),
        Command::Reload(args) => pool::reload(&args),
        Command::Rpc(args) => rpc::run(&args),
        Command::Rtt(args) => rtt::run(&args),
        Command::Services(args) => services::run(&args),
        Command::Tls(args) => tls::run(&args),
        Command::Validate(args) => validate::run(args),
        Command::Version(args) => version::run(&args),
    }
}

/// Runs a client command's future on a runtime of one thread.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(future)
}
