//! `join`, `leave`, `force-leave`, `reload`: what a running server is told.

use crate::cli::block_on;
use crate::cli::client::Client;
use crate::cli::client::settings::HttpFlags;
use anyhow::anyhow;
use anyhow::bail;
use serde_json::Value;
use std::process::ExitCode;

/// Flags of `join`.
#[derive(Debug, clap::Args)]
pub(crate) struct Join {
    /// Addresses of members, each with a port if it is not the usual one
    addresses: Vec<String>,
    /// Join the pool of all datacenters
    #[arg(long)]
    wan: bool,
    #[command(flatten)]
    http: HttpFlags,
}

/// Flags of `leave` and `reload`.
#[derive(Debug, clap::Args)]
pub(crate) struct Plain {
    #[command(flatten)]
    http: HttpFlags,
}

/// Flags of `force-leave`.
#[derive(Debug, clap::Args)]
pub(crate) struct ForceLeave {
    /// Name of the member that failed and will not come back
    nodes: Vec<String>,
    /// Let all members forget it at once
    #[arg(long)]
    prune: bool,
    /// Change the pool of all datacenters only; the name may end with its datacenter
    #[arg(long)]
    wan: bool,
    #[command(flatten)]
    http: HttpFlags,
}

/// Runs `join`.
pub(crate) fn join(args: &Join) -> anyhow::Result<ExitCode> {
    if args.addresses.is_empty() {
        bail!("At least one address to join must be specified.");
    }
    let client = Client::new(&args.http)?;
    let query: &[(&str, &str)] = match args.wan {
        true => &[("wan", "1")],
        false => &[],
    };
    let joined = block_on(async {
        let mut joined = 0;
        for address in &args.addresses {
            let path = ["agent", "join", address];
            match client.put(&path, query, &Value::Null).await {
                Ok(_) => joined += 1,
                Err(error) => eprintln!("Error joining address '{address}': {error}"),
            }
        }
        Ok(joined)
    })?;
    if joined == 0 {
        eprintln!("Failed to join any nodes.");
        return Ok(ExitCode::FAILURE);
    }
    outln!("Successfully joined cluster by contacting {joined} nodes.");
    Ok(ExitCode::SUCCESS)
}

/// Runs `leave`.
pub(crate) fn leave(args: &Plain) -> anyhow::Result<ExitCode> {
    tell(&args.http, &["agent", "leave"], &[], "Error leaving")?;
    outln!("Graceful leave complete");
    Ok(ExitCode::SUCCESS)
}

/// Runs `reload`.
pub(crate) fn reload(args: &Plain) -> anyhow::Result<ExitCode> {
    tell(&args.http, &["agent", "reload"], &[], "Error reloading")?;
    outln!("Configuration reload triggered");
    Ok(ExitCode::SUCCESS)
}

/// Runs `force-leave`.
pub(crate) fn force_leave(args: &ForceLeave) -> anyhow::Result<ExitCode> {
    let [node] = args.nodes.as_slice() else {
        bail!("A single node name must be specified to force leave.");
    };
    let given = [("prune", args.prune), ("wan", args.wan)];
    let query: Vec<_> = given
        .into_iter()
        .filter(|(_, given)| *given)
        .map(|(name, _)| (name, "1"))
        .collect();
    let path = ["agent", "force-leave", node];
    tell(&args.http, &path, &query, "Error force leaving")?;
    Ok(ExitCode::SUCCESS)
}

fn tell(
    http: &HttpFlags,
    path: &[&str],
    query: &[(&str, &str)],
    failure: &str,
) -> anyhow::Result<()> {
    let client = Client::new(http)?;
    let put = async { Ok(client.put(path, query, &Value::Null).await) };
    block_on(put)?.map_err(|error| anyhow!("{failure}: {error}"))?;
    Ok(())
}
