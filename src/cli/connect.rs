//! `connect envoy`: registers a gateway, writes its bootstrap and becomes Envoy.
//!
//! ```text
//!  flags ──plan──▶ Plan ─┬─ binary   (Envoy is there and new enough?)
//!                        ├─ lookup   (server, its gRPC ports, the proxy or the names already taken)
//!                        ├─ registration, targets, bootstrap   pure: what to store, whom to dial, the document
//!                        │  (options gathers what they need)
//!                        └─ exec     (PUT the registration, then replace this process)
//! ```
//! Everything that can fail comes before the registration, and a failure after it takes the registration back.

mod address;
mod binary;
mod envoy;
mod exec;
mod lookup;
mod options;
mod plan;
mod registration;
mod targets;

use clap::Subcommand;
use std::process::ExitCode;

/// Subcommands of `connect`.
#[derive(Debug, Subcommand)]
pub(crate) enum Args {
    /// Run Envoy as a mesh gateway, or print its bootstrap configuration
    Envoy(Box<plan::EnvoyFlags>),
}

/// Runs `connect`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args {
        Args::Envoy(flags) => envoy::run(&flags),
    }
}

/// Tells the user something on the way.
fn notice(text: &str) {
    eprintln!("==> {text}");
}
