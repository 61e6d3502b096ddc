//! `keyring` and `keygen`: the keys that encrypt gossip.

use crate::cli::block_on;
use crate::cli::client::Client;
use crate::cli::client::ClientError;
use crate::cli::client::settings::HttpFlags;
use anyhow::Context as _;
use anyhow::bail;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::RngCore as _;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Flags of `keyring`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// List the keys of all members
    #[arg(long)]
    list: bool,
    /// Give all members a further key that decrypts
    #[arg(long, value_name = "KEY")]
    install: Option<String>,
    /// Let all members encrypt with a key that they have
    #[arg(long = "use", value_name = "KEY")]
    use_key: Option<String>,
    /// Take a key that is not in use from all members
    #[arg(long, value_name = "KEY")]
    remove: Option<String>,
    /// Members that also relay each answer, from 0 to 5
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    relay_factor: i64,
    /// List the keys of this datacenter's members only, without the pool of all datacenters
    #[arg(long)]
    local_only: bool,
    #[command(flatten)]
    http: HttpFlags,
}

/// Flags of `keygen`.
#[derive(Debug, clap::Args)]
pub(crate) struct Keygen {}

/// Keys of one pool.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Pool {
    #[serde(rename = "WAN")]
    wan: bool,
    datacenter: String,
    segment: String,
    messages: Option<BTreeMap<String, String>>,
    keys: Option<BTreeMap<String, u64>>,
    num_nodes: u64,
}

/// Runs `keygen`: a key of 32 bytes in base64.
pub(crate) fn generate(_: &Keygen) -> ExitCode {
    let mut key = [0; 32];
    rand::rng().fill_bytes(&mut key);
    outln!("{}", STANDARD.encode(key));
    ExitCode::SUCCESS
}

/// Runs `keyring`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let changes = [
        (
            &args.install,
            Method::POST,
            "Installing new gossip encryption key...",
        ),
        (
            &args.use_key,
            Method::PUT,
            "Changing primary gossip encryption key...",
        ),
        (
            &args.remove,
            Method::DELETE,
            "Removing gossip encryption key...",
        ),
    ];
    let given = changes
        .into_iter()
        .filter_map(|(key, method, text)| Some((key.as_deref()?, method, text)));
    let given: Vec<_> = given.filter(|(key, ..)| !key.is_empty()).collect();
    if given.len() + usize::from(args.list) > 1 {
        bail!("Only a single action is allowed");
    }
    if !(0..=5).contains(&args.relay_factor) {
        bail!(
            "Error parsing relay factor: Invalid relay factor: {}, must be in range: [0, 5]",
            args.relay_factor
        );
    }
    if args.local_only && !args.list {
        bail!("Error validating local-only: local-only can only be set for list requests");
    }
    let client = Client::new(&args.http)?;
    let relay = args.relay_factor.to_string();
    let mut query = vec![("relay-factor", relay.as_str())];
    if args.local_only {
        query.push(("local-only", "true"));
    }
    let path = ["operator", "keyring"];
    let Some((key, method, text)) = given.into_iter().next() else {
        if !args.list {
            bail!("Say what to do: -list, -install=KEY, -use=KEY or -remove=KEY");
        }
        outln!("==> Gathering installed encryption keys...");
        let answer = block_on(async { Ok(client.get(&path, &query).await) })?;
        let pools = match answer {
            Ok(pools) => pools.unwrap_or_default(),
            Err(error) => return Ok(failed(&error)),
        };
        let pools: Vec<Pool> =
            serde_json::from_value(pools).context("the server answers something else than keys")?;
        pools
            .iter()
            .flat_map(listed)
            .for_each(|line| outln!("{line}"));
        return Ok(ExitCode::SUCCESS);
    };
    outln!("==> {text}");
    let body = json!({"Key": key});
    let sent = async { Ok(client.send(method, &path, &query, Some(&body)).await) };
    match block_on(sent)? {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) => Ok(failed(&error)),
    }
}

/// Consul's form of a failure.
fn failed(error: &ClientError) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

fn listed(pool: &Pool) -> Vec<String> {
    let name = match (pool.wan, pool.segment.as_str()) {
        (true, _) => "WAN".to_owned(),
        (false, "") => format!("{} (LAN)", pool.datacenter),
        (false, segment) => format!("{} (LAN) [{segment}]", pool.datacenter),
    };
    let mut lines = vec![String::new(), format!("{name}:")];
    let messages = pool.messages.iter().flatten();
    lines.extend(messages.map(|(node, message)| format!("  ===> {node}: {message}")));
    let keys = pool.keys.iter().flatten();
    lines.extend(keys.map(|(key, count)| format!("  {key} [{count}/{}]", pool.num_nodes)));
    lines
}
