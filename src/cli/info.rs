//! `info`: the server's figures.

use crate::cli::block_on;
use crate::cli::client::Client;
use crate::cli::client::settings::HttpFlags;
use anyhow::anyhow;
use anyhow::bail;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Flags of `info`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    http: HttpFlags,
}

/// Runs `info`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.http)?;
    let myself = block_on(async { Ok(client.get(&["agent", "self"], &[]).await) })?;
    let myself = myself.map_err(|error| anyhow!("Error querying agent: {error}"))?;
    let stats = myself.as_ref().and_then(|value| value.get("Stats"));
    let Some(Value::Object(groups)) = stats else {
        bail!("Agent response did not contain 'Stats' key");
    };
    let groups: BTreeMap<_, _> = groups.iter().collect();
    for (name, figures) in groups {
        outln!("{name}:");
        let figures: BTreeMap<_, _> = figures.as_object().into_iter().flatten().collect();
        for (figure, value) in figures {
            outln!("\t{figure} = {}", value.as_str().unwrap_or_default());
        }
    }
    Ok(ExitCode::SUCCESS)
}
