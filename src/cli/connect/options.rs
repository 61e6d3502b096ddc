//! From flags, files and the server's answers to the bootstrap's options.

use crate::bootstrap;
use crate::bootstrap::ClientTls;
use crate::cli::client::Client;
use crate::cli::client::tls::pem_files;
use crate::cli::connect::lookup;
use crate::cli::connect::lookup::Proxy;
use crate::cli::connect::notice;
use crate::cli::connect::plan::EnvoyFlags;
use crate::cli::connect::plan::Plan;
use crate::cli::connect::targets;
use crate::cli::connect::targets::ServerInfo;
use crate::cli::connect::targets::Targets;
use crate::cli::env;
use anyhow::Context;
use anyhow::bail;
use serde_json::Map;
use std::net::SocketAddr;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::path::PathBuf;

/// The options for `proxy`. Files are read here; a file that cannot be read is named.
pub(crate) async fn gather(
    flags: &EnvoyFlags,
    plan: &Plan,
    client: &Client,
    info: &ServerInfo,
    proxy: Proxy,
) -> anyhow::Result<bootstrap::Options> {
    let mut config = match flags.no_central_config {
        true => Map::new(),
        false => lookup::proxy_defaults(client).await?,
    };
    if !flags.no_central_config {
        config.extend(proxy.config);
    }
    let ca = ca_pem(flags, client)?;
    let targets = targets(flags, client, info, ca.is_some()).await?;
    if let Some(text) = &targets.notice {
        notice(text);
    }
    let tls = targets
        .tls
        .then(|| client_tls(flags, info, &targets, ca))
        .transpose()?;
    let token = client.settings().token.as_ref();
    Ok(bootstrap::Options {
        node: bootstrap::Node {
            id: proxy.id,
            cluster: proxy.service,
            name: proxy.node,
            datacenter: info.datacenter.clone(),
        },
        admin: resolve(&flags.admin_bind)?,
        admin_access_log: flags.admin_access_log_path.clone(),
        control_plane: bootstrap::ControlPlane {
            endpoints: targets.endpoints,
            tls,
            token: token.map(|t| t.expose().to_owned()).unwrap_or_default(),
        },
        stats: stats(flags)?,
        ready: plan.ready,
        proxy_config: config,
    })
}

async fn targets(
    flags: &EnvoyFlags,
    client: &Client,
    info: &ServerInfo,
    has_ca: bool,
) -> anyhow::Result<Targets> {
    let variable = env::variable(&env::process, "GRPC_ADDR");
    let given: Vec<String> = match (flags.grpc_addr.is_empty(), variable) {
        (false, _) => flags.grpc_addr.clone(),
        (true, Some(text)) => text.split(',').map(|a| a.trim().to_owned()).collect(),
        (true, None) => Vec::new(),
    };
    if !given.is_empty() {
        return Ok(targets::given(&given)?);
    }
    let servers = lookup::servers(client).await?;
    let host = client.settings().address.host();
    Ok(targets::discovered(info, host, &servers, has_ca)?)
}

/// The CA for the gRPC port: its own flags and variables first, else those of the HTTP port.
fn ca_pem(flags: &EnvoyFlags, client: &Client) -> anyhow::Result<Option<String>> {
    let variable = |name| env::variable(&env::process, name).map(PathBuf::from);
    let file = flags
        .grpc_ca_file
        .clone()
        .or_else(|| variable("GRPC_CACERT"));
    let folder = flags
        .grpc_ca_path
        .clone()
        .or_else(|| variable("GRPC_CAPATH"));
    let http = &client.settings().tls;
    match (file, folder) {
        (None, None) => pem(http.ca_file.as_deref(), http.ca_path.as_deref()),
        (file, folder) => pem(file.as_deref(), folder.as_deref()),
    }
}

fn pem(file: Option<&Path>, folder: Option<&Path>) -> anyhow::Result<Option<String>> {
    let mut files: Vec<PathBuf> = file.iter().map(|f| (*f).to_owned()).collect();
    if let Some(folder) = folder {
        files.extend(pem_files(folder)?);
    }
    let mut text = String::new();
    for file in files {
        text.push_str(&read(&file)?);
        text.push('\n');
    }
    Ok((!text.is_empty()).then_some(text))
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn client_tls(
    flags: &EnvoyFlags,
    info: &ServerInfo,
    targets: &Targets,
    ca: Option<String>,
) -> anyhow::Result<ClientTls> {
    let Some(ca_pem) = ca else {
        bail!(
            "gRPC with TLS needs the CA of the server's certificate: give it with -grpc-ca-file or CONSUL_GRPC_CACERT"
        );
    };
    let certificate = match (&flags.grpc_client_cert, &flags.grpc_client_key) {
        (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
        _ => None,
    };
    let (server_name, accepted_names) = match &flags.grpc_tls_server_name {
        Some(name) => (name.clone(), vec![name.clone()]),
        None => {
            let name = info.server_name();
            let mut accepted = vec![name.clone()];
            accepted.extend(targets.names.iter().cloned());
            (name, accepted)
        }
    };
    Ok(ClientTls {
        ca_pem,
        server_name,
        accepted_names,
        certificate,
    })
}

fn stats(flags: &EnvoyFlags) -> anyhow::Result<bootstrap::Stats> {
    let prometheus_tls = match (&flags.prometheus_cert_file, &flags.prometheus_key_file) {
        (Some(cert), Some(key)) => Some(bootstrap::ServerTls {
            cert_file: std::path::absolute(cert)?,
            key_file: std::path::absolute(key)?,
            ca_pem: pem(
                flags.prometheus_ca_file.as_deref(),
                flags.prometheus_ca_path.as_deref(),
            )?,
        }),
        _ => None,
    };
    Ok(bootstrap::Stats {
        // Every proxy of this version is a mesh gateway.
        omit_deprecated_tags: flags.omit_deprecated_tags.unwrap_or(true),
        prometheus_backend_port: flags.prometheus_backend_port,
        prometheus_scrape_path: flags.prometheus_scrape_path.clone(),
        prometheus_tls,
    })
}

/// Envoy's admin interface takes an IP address; IPv4 is preferred for `localhost`.
fn resolve(text: &str) -> anyhow::Result<SocketAddr> {
    let addresses: Vec<_> = text
        .to_socket_addrs()
        .with_context(|| format!("-admin-bind {text:?} is not an address such as localhost:19000"))?
        .collect();
    let v4 = addresses.iter().find(|address| address.is_ipv4());
    v4.or(addresses.first())
        .copied()
        .with_context(|| format!("-admin-bind {text:?} has no address"))
}
