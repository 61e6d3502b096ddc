//! `services register` and `services deregister`, from files or flags.

use crate::cli::block_on;
use crate::cli::client::Client;
use crate::cli::client::settings::HttpFlags;
use crate::cli::document;
use anyhow::Context;
use anyhow::bail;
use clap::Subcommand;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use std::process::ExitCode;

/// Subcommands of `services`.
#[derive(Debug, Subcommand)]
pub(crate) enum Args {
    /// Register services with the server, from files or from flags
    Register(Register),
    /// Deregister services from the server, by file or by id
    Deregister(Deregister),
}

/// Flags of `services register`.
#[derive(Debug, clap::Args)]
pub(crate) struct Register {
    /// Files with `service` or `services` definitions; `-` reads standard input
    files: Vec<String>,
    /// Name of a service given by flags instead of a file
    #[arg(long)]
    name: Option<String>,
    /// Its id, by default its name
    #[arg(long)]
    id: Option<String>,
    /// Its address, by default the node's
    #[arg(long)]
    address: Option<String>,
    /// Its port
    #[arg(long)]
    port: Option<u16>,
    /// One of its tags; repeatable
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// One of its meta entries; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    meta: Vec<String>,
    #[command(flatten)]
    http: HttpFlags,
}

/// Flags of `services deregister`.
#[derive(Debug, clap::Args)]
pub(crate) struct Deregister {
    /// Files with the definitions of the services to remove; `-` reads standard input
    files: Vec<String>,
    /// Id of the service to remove
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    http: HttpFlags,
}

/// Runs `services`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args {
        Args::Register(flags) => block_on(register(flags)),
        Args::Deregister(flags) => block_on(deregister(flags)),
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn register(flags: &Register) -> anyhow::Result<()> {
    let services = match (&flags.name, flags.files.as_slice()) {
        (Some(name), []) => vec![from_flags(flags, name)?],
        (None, []) => bail!("Service registration requires at least one argument or flags."),
        (None, files) => from_files(files)?,
        (Some(_), _) => bail!("Either files or -name, not both."),
    };
    let client = Client::new(&flags.http)?;
    for service in services {
        let name = name(&service)?;
        client
            .put(&["agent", "service", "register"], &[], &service)
            .await
            .with_context(|| format!("Error registering service {name:?}"))?;
        outln!("Registered service: {name}");
    }
    Ok(())
}

async fn deregister(flags: &Deregister) -> anyhow::Result<()> {
    let ids = match (&flags.id, flags.files.as_slice()) {
        (Some(id), []) => vec![id.clone()],
        (None, []) => bail!("Service deregistration requires at least one argument or flags."),
        (None, files) => from_files(files)?
            .iter()
            .map(id)
            .collect::<Result<_, _>>()?,
        (Some(_), _) => bail!("Either files or -id, not both."),
    };
    let client = Client::new(&flags.http)?;
    for id in ids {
        client
            .put(&["agent", "service", "deregister", &id], &[], &Value::Null)
            .await
            .with_context(|| format!("Error deregistering service {id:?}"))?;
        outln!("Deregistered service: {id}");
    }
    Ok(())
}

fn from_flags(flags: &Register, name: &str) -> anyhow::Result<Value> {
    let mut meta = Map::new();
    for pair in &flags.meta {
        let (key, value) = pair
            .split_once('=')
            .with_context(|| format!("-meta {pair:?} has no \"=\": write key=value"))?;
        meta.insert(key.to_owned(), value.into());
    }
    let mut service = json!({"Name": name});
    let mut set = |key: &str, value: Value| {
        if let Some(fields) = service.as_object_mut() {
            fields.insert(key.to_owned(), value);
        }
    };
    if let Some(id) = &flags.id {
        set("ID", id.as_str().into());
    }
    if let Some(address) = &flags.address {
        set("Address", address.as_str().into());
    }
    if let Some(port) = flags.port {
        set("Port", port.into());
    }
    if !flags.tag.is_empty() {
        set("Tags", flags.tag.clone().into());
    }
    if !meta.is_empty() {
        set("Meta", meta.into());
    }
    Ok(service)
}

fn from_files(files: &[String]) -> anyhow::Result<Vec<Value>> {
    let mut services = Vec::new();
    for file in files {
        let found = definitions(&document::read(file)?);
        if found.is_empty() {
            bail!("{file:?} defines no service: it needs a \"service\" or \"services\" key");
        }
        services.extend(found);
    }
    services.iter().try_for_each(|s| name(s).map(drop))?;
    Ok(services)
}

/// The definitions under `service` and `services`; each may be one object or a list.
fn definitions(document: &Value) -> Vec<Value> {
    let all = ["service", "services"]
        .iter()
        .filter_map(|key| document::key(document, key));
    all.flat_map(|value| match value {
        Value::Array(list) => list.clone(),
        one => vec![one.clone()],
    })
    .collect()
}

fn name(service: &Value) -> anyhow::Result<&str> {
    document::text(service, "name")
        .with_context(|| format!("a service definition has no \"name\": {service}"))
}

fn id(service: &Value) -> anyhow::Result<String> {
    match document::text(service, "id") {
        Some(id) => Ok(id.to_owned()),
        None => name(service).map(ToOwned::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_come_from_both_keys() {
        let document = json!({
            "service": {"name": "web", "id": "web1"},
            "services": [{"name": "db"}],
        });
        let found = definitions(&document);
        let ids: Vec<_> = found.iter().map(|s| id(s).unwrap()).collect();
        assert_eq!(ids, ["web1", "db"]);
        assert!(definitions(&json!({"datacenter": "dc1"})).is_empty());
        assert!(name(&json!({"port": 80})).is_err());
    }
}
