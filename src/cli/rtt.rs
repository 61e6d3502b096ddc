//! `rtt`: how long a round trip between two nodes takes, from where they are in the network.

use crate::cli::block_on;
use crate::cli::client::Client;
use crate::cli::client::settings::HttpFlags;
use crate::gossip::Coordinate;
use anyhow::Context as _;
use anyhow::anyhow;
use anyhow::bail;
use serde::Deserialize;
use serde_json::Value;
use std::process::ExitCode;

/// Flags of `rtt`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One or two nodes; the second is by default the one whose server is asked
    nodes: Vec<String>,
    /// Estimate between servers of datacenters; nodes are then written as node.datacenter
    #[arg(long)]
    wan: bool,
    #[command(flatten)]
    http: HttpFlags,
}

/// Where a node is.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    node: String,
    coord: Coordinate,
}

/// Where the servers of a datacenter are, in one area.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Area {
    datacenter: String,
    #[serde(rename = "AreaID")]
    area: String,
    coordinates: Vec<Entry>,
}

/// Runs `rtt`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.http)?;
    let (first, second) = match args.nodes.as_slice() {
        [first] => (first.clone(), own(&client, args.wan)?),
        [first, second] => (first.clone(), second.clone()),
        _ => bail!("One or two node names must be specified"),
    };
    let ([one, other], source) = match args.wan {
        true => (wan(&client, [&first, &second])?, "WAN"),
        false => (lan(&client, [&first, &second])?, "LAN"),
    };
    let seconds = one.distance(&other).as_secs_f64();
    let milliseconds = seconds * 1000.0;
    outln!("Estimated {first} <-> {second} rtt: {milliseconds:.3} ms (using {source} coordinates)");
    Ok(ExitCode::SUCCESS)
}

/// The node whose server is asked.
fn own(client: &Client, wan: bool) -> anyhow::Result<String> {
    let failed = |error: &dyn std::fmt::Display| anyhow!("Unable to look up agent info: {error}");
    let myself = block_on(async { Ok(client.get(&["agent", "self"], &[]).await) })?;
    let myself = myself.map_err(|error| failed(&error))?.unwrap_or_default();
    let text = |key: &str| myself.pointer(key).and_then(Value::as_str);
    match (text("/Config/NodeName"), text("/Config/Datacenter")) {
        (Some(node), Some(datacenter)) if wan => Ok(format!("{node}.{datacenter}")),
        (Some(node), _) if !wan => Ok(node.to_owned()),
        _ => Err(failed(&"the server does not say its name")),
    }
}

fn lan(client: &Client, nodes: [&str; 2]) -> anyhow::Result<[Coordinate; 2]> {
    let entries: Vec<Entry> = coordinates(client, "nodes")?;
    let mut places = nodes.map(|_| None);
    for entry in entries {
        for (place, node) in places.iter_mut().zip(nodes) {
            if entry.node.eq_ignore_ascii_case(node) {
                *place = Some(entry.coord.clone());
            }
        }
    }
    both(nodes, places)
}

/// Both nodes must be in the same area.
fn wan(client: &Client, nodes: [&str; 2]) -> anyhow::Result<[Coordinate; 2]> {
    // The datacenter's name has no dots, the node's may have some.
    let split = nodes.map(|node| node.rsplit_once('.'));
    let [Some(first), Some(second)] = split else {
        bail!("Node names must be specified as <node name>.<datacenter> with -wan");
    };
    let areas: Vec<Area> = coordinates(client, "datacenters")?;
    let within = |area: &str, (node, datacenter): (&str, &str)| {
        let mut of_area = areas
            .iter()
            .filter(|a| a.area == area && a.datacenter == datacenter)
            .flat_map(|a| &a.coordinates);
        let found = of_area.find(|entry| entry.node.eq_ignore_ascii_case(node));
        found.map(|entry| entry.coord.clone())
    };
    let mut best = [None, None];
    for area in &areas {
        let found = [within(&area.area, first), within(&area.area, second)];
        if found.iter().all(Option::is_some) {
            return both(nodes, found);
        }
        best = found;
    }
    both(nodes, best)
}

fn coordinates<T: serde::de::DeserializeOwned + Default>(
    client: &Client,
    what: &str,
) -> anyhow::Result<T> {
    let answer = block_on(async { Ok(client.get(&["coordinate", what], &[]).await) })?;
    let value = answer.map_err(|error| anyhow!("Error getting coordinates: {error}"))?;
    match value {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => serde_json::from_value(value)
            .context("Error getting coordinates: the server answers something else"),
    }
}

fn both(nodes: [&str; 2], places: [Option<Coordinate>; 2]) -> anyhow::Result<[Coordinate; 2]> {
    let [first, second] = nodes;
    let missing = |node: &str| anyhow!("Could not find a coordinate for node {node:?}");
    let [a, b] = places;
    let pair = [
        a.ok_or_else(|| missing(first))?,
        b.ok_or_else(|| missing(second))?,
    ];
    if pair.iter().all(Coordinate::is_valid) {
        return Ok(pair);
    }
    bail!("Error getting coordinates: one of them is damaged")
}
