//! `operator raft list-peers|remove-peer`: the servers that agree on the log.

use crate::cli::block_on;
use crate::cli::client::Client;
use crate::cli::client::settings::HttpFlags;
use crate::cli::table;
use anyhow::Context as _;
use anyhow::anyhow;
use anyhow::bail;
use clap::Subcommand;
use serde::Deserialize;
use std::process::ExitCode;

/// Subcommands of `operator`.
#[derive(Debug, Subcommand)]
pub(crate) enum Args {
    /// The servers that agree on the log
    #[command(subcommand)]
    Raft(Raft),
}

/// Subcommands of `operator raft`.
#[derive(Debug, Subcommand)]
pub(crate) enum Raft {
    /// Show the servers and who leads
    ListPeers(ListPeers),
    /// Take away a server that will not come back
    RemovePeer(RemovePeer),
}

#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    http: HttpFlags,
    /// Datacenter to ask, by default the server's own
    #[arg(long, value_name = "DC", help_heading = "Server")]
    datacenter: Option<String>,
    /// Let any server answer, with a leader or without
    #[arg(long, help_heading = "Server")]
    stale: bool,
}

impl Common {
    fn query(&self) -> Vec<(&str, &str)> {
        let datacenter = self.datacenter.as_deref().map(|dc| ("dc", dc));
        let stale = self.stale.then_some(("stale", ""));
        datacenter.into_iter().chain(stale).collect()
    }
}

/// Flags of `operator raft list-peers`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListPeers {
    #[command(flatten)]
    common: Common,
}

/// Flags of `operator raft remove-peer`.
#[derive(Debug, clap::Args)]
pub(crate) struct RemovePeer {
    /// Its RPC address, with the port
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Its node id
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// A server as the server shows it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Server {
    #[serde(rename = "ID")]
    id: String,
    node: String,
    address: String,
    leader: bool,
    protocol_version: String,
    voter: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Configuration {
    servers: Vec<Server>,
}

/// Runs `operator`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args {
        Args::Raft(Raft::ListPeers(flags)) => list_peers(flags),
        Args::Raft(Raft::RemovePeer(flags)) => remove_peer(flags),
    }
}

fn list_peers(flags: &ListPeers) -> anyhow::Result<ExitCode> {
    const FAILED: &str = "Error getting peers: Failed to retrieve raft configuration";
    let client = Client::new(&flags.common.http)?;
    let path = ["operator", "raft", "configuration"];
    let answer = block_on(async { Ok(client.get(&path, &flags.common.query()).await) })?;
    let answer = answer.map_err(|error| anyhow!("{FAILED}: {error}"))?;
    let configuration: Configuration =
        serde_json::from_value(answer.unwrap_or_default()).context(FAILED)?;
    let head = ["Node", "ID", "Address", "State", "Voter", "RaftProtocol"];
    let mut rows = vec![table::row(head)];
    rows.extend(configuration.servers.iter().map(Server::row));
    for line in table::columns(&rows) {
        outln!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

impl Server {
    fn row(&self) -> [String; 6] {
        let state = if self.leader { "leader" } else { "follower" };
        let voter = self.voter.to_string();
        let protocol = match self.protocol_version.as_str() {
            "" => "<=1",
            version => version,
        };
        table::row([&self.node, &self.id, &self.address, state, &voter, protocol])
    }
}

fn remove_peer(flags: &RemovePeer) -> anyhow::Result<ExitCode> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (name, value) = match (given(&flags.address), given(&flags.id)) {
        (Some(address), None) => ("address", address),
        (None, Some(id)) => ("id", id),
        (None, None) => {
            bail!("Error removing peer: an address or id is required for the peer to remove")
        }
        (Some(_), Some(_)) => bail!("Error removing peer: cannot give both an address and id"),
    };
    let client = Client::new(&flags.common.http)?;
    let mut query = flags.common.query();
    query.push((name, &value));
    let path = ["operator", "raft", "peer"];
    let answer = block_on(async { Ok(client.delete(&path, &query).await) })?;
    answer.map_err(|error| anyhow!("Error removing peer: {error}"))?;
    outln!("Removed peer with {name} {value:?}");
    Ok(ExitCode::SUCCESS)
}
