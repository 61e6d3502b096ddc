//! `config read|write|list|delete`: configuration entries.

use crate::cli::block_on;
use crate::cli::client::Client;
use crate::cli::client::settings::HttpFlags;
use crate::cli::document;
use anyhow::Context;
use anyhow::bail;
use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::PrettyFormatter;
use std::process::ExitCode;

/// Subcommands of `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum Args {
    /// Print one configuration entry as JSON
    Read(One),
    /// Create or replace a configuration entry from a file
    Write(Write),
    /// Print the names of all entries of a kind
    List(List),
    /// Delete a configuration entry
    Delete(One),
}

/// Flags of `config read` and `config delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// Kind, for example service-resolver
    #[arg(long)]
    kind: Option<String>,
    /// Name of the entry
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Flags of `config write`.
#[derive(Debug, clap::Args)]
pub(crate) struct Write {
    /// File with the entry; `-` reads standard input
    file: Option<String>,
    /// Write only if the entry has not changed since -modify-index
    #[arg(long)]
    cas: bool,
    /// The index to compare with; 0 writes only if there is no entry
    #[arg(long, value_name = "INDEX")]
    modify_index: Option<u64>,
    #[command(flatten)]
    common: Common,
}

/// Flags of `config list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Kind, for example service-resolver
    #[arg(long)]
    kind: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    http: HttpFlags,
    /// Datacenter to ask, by default the server's own
    #[arg(long, value_name = "DC", help_heading = "Server")]
    datacenter: Option<String>,
}

impl Common {
    fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(&self.http)?)
    }

    fn query(&self) -> Vec<(&str, &str)> {
        self.datacenter
            .iter()
            .map(|dc| ("dc", dc.as_str()))
            .collect()
    }
}

/// Runs `config`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args {
        Args::Read(flags) => block_on(read(flags)),
        Args::Write(flags) => block_on(write(flags)),
        Args::List(flags) => block_on(list(flags)),
        Args::Delete(flags) => block_on(delete(flags)),
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn read(flags: &One) -> anyhow::Result<()> {
    let (kind, name) = kind_and_name(flags)?;
    let client = flags.common.client()?;
    let entry = client
        .get(&["config", kind, name], &flags.common.query())
        .await
        .with_context(|| format!("Error reading config entry {kind}/{name}"))?
        .with_context(|| {
            format!("Error reading config entry {kind}/{name}: Unexpected response code: 404 (Config entry not found for \"{kind}\" / \"{name}\")")
        })?;
    outln!("{}", pretty(&entry)?);
    Ok(())
}

async fn write(flags: &Write) -> anyhow::Result<()> {
    let Some(file) = &flags.file else {
        bail!("Must provide exactly one positional argument to specify the config entry to write");
    };
    let cas = match (flags.cas, flags.modify_index) {
        (true, Some(index)) => Some(index.to_string()),
        (true, None) => bail!("Must specify the -modify-index parameter with -cas"),
        (false, Some(_)) => bail!("-modify-index has no meaning without -cas"),
        (false, None) => None,
    };
    let entry = document::read(file)?;
    let (kind, name) = match (
        document::text(&entry, "kind"),
        document::text(&entry, "name"),
    ) {
        (Some(kind), Some(name)) => (kind, name),
        (None, _) => bail!("{file:?} has no \"Kind\""),
        (_, None) => bail!("{file:?} has no \"Name\""),
    };
    let mut query = flags.common.query();
    query.extend(cas.iter().map(|index| ("cas", index.as_str())));
    let answer = flags
        .common
        .client()?
        .put(&["config"], &query, &entry)
        .await
        .with_context(|| format!("Error writing config entry {kind}/{name}"))?;
    if answer.trim() == "false" {
        bail!("Config entry not updated: {kind}/{name} has changed since the given -modify-index");
    }
    outln!("Config entry written: {kind}/{name}");
    Ok(())
}

async fn list(flags: &List) -> anyhow::Result<()> {
    let kind = given(&flags.kind, "-kind")?;
    let entries = flags
        .common
        .client()?
        .get(&["config", kind], &flags.common.query())
        .await
        .with_context(|| format!("Error listing config entries for kind {kind:?}"))?;
    for entry in entries.iter().filter_map(Value::as_array).flatten() {
        outln!("{}", document::text(entry, "name").unwrap_or_default());
    }
    Ok(())
}

async fn delete(flags: &One) -> anyhow::Result<()> {
    let (kind, name) = kind_and_name(flags)?;
    flags
        .common
        .client()?
        .delete(&["config", kind, name], &flags.common.query())
        .await
        .with_context(|| format!("Error deleting config entry {kind}/{name}"))?;
    outln!("Config entry deleted: {kind}/{name}");
    Ok(())
}

fn kind_and_name(flags: &One) -> anyhow::Result<(&str, &str)> {
    Ok((given(&flags.kind, "-kind")?, given(&flags.name, "-name")?))
}

fn given<'a>(value: &'a Option<String>, flag: &str) -> anyhow::Result<&'a str> {
    value
        .as_deref()
        .filter(|text| !text.is_empty())
        .with_context(|| format!("Must specify the {flag} parameter"))
}

/// JSON with four spaces, as Consul prints entries.
fn pretty(value: &Value) -> anyhow::Result<String> {
    let mut out = Vec::new();
    let formatter = PrettyFormatter::with_indent(b"    ");
    value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut out, formatter,
    ))?;
    Ok(String::from_utf8(out)?)
}
