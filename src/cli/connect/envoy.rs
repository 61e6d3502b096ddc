//! The steps of `connect envoy`, in order; see the picture in [`crate::cli::connect`].

use crate::bootstrap;
use crate::bootstrap::Endpoint;
use crate::cli::block_on;
use crate::cli::client::Client;
use crate::cli::connect::binary;
use crate::cli::connect::exec;
use crate::cli::connect::exec::BootstrapFile;
use crate::cli::connect::lookup;
use crate::cli::connect::lookup::Proxy;
use crate::cli::connect::notice;
use crate::cli::connect::options;
use crate::cli::connect::plan::EnvoyFlags;
use crate::cli::connect::plan::Plan;
use crate::cli::connect::plan::RegisterPlan;
use crate::cli::connect::registration;
use crate::cli::connect::registration::Names;
use crate::cli::connect::targets::ServerInfo;
use crate::cli::env;
use crate::config::host::Host;
use crate::config::template;
use anyhow::Context;
use anyhow::bail;
use serde_json::Value;
use serde_json::json;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How long the first connection to a gRPC port may take before a warning.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);

/// A registration that is ready to be stored, and what to store to take it back.
#[derive(Debug)]
struct Registration {
    body: Value,
    /// Body of the deregistration; none if the gateway was registered before.
    undo: Option<Value>,
}

/// Runs `connect envoy`.
pub(crate) fn run(flags: &EnvoyFlags) -> anyhow::Result<ExitCode> {
    let host = Host::gather();
    let plan = flags.plan(&|text| template::render(text, &host))?;
    block_on(run_async(flags, &plan))
}

async fn run_async(flags: &EnvoyFlags, plan: &Plan) -> anyhow::Result<ExitCode> {
    let binary = if flags.bootstrap {
        None
    } else {
        Some(find_envoy(flags).await?)
    };
    let client = Client::new(&flags.http)?;
    let info = server_info(&client).await?;
    let (proxy, registration) = match &plan.register {
        Some(register) => {
            let (proxy, registration) = prepare_registration(&client, plan, register).await?;
            (proxy, Some(registration))
        }
        None => (
            lookup::proxy(&client, plan, &info, &host_nodes(None)).await?,
            None,
        ),
    };
    let options = options::gather(flags, plan, &client, &info, proxy).await?;
    let document = serde_json::to_string_pretty(&bootstrap::render(&options, &env::process)?)?;
    let Some(binary) = binary else {
        store(&client, registration.as_ref()).await?;
        outln!("{document}");
        return Ok(ExitCode::SUCCESS);
    };
    let file = BootstrapFile::new(&document)?;
    exec::validate(&binary, &file).await?;
    warn_unless_reachable(&options.control_plane.endpoints).await;
    store(&client, registration.as_ref()).await?;
    let failure = exec::become_envoy(&binary, &file, &flags.envoy_args);
    if let Some(undo) = registration.and_then(|r| r.undo) {
        client
            .put(&["catalog", "deregister"], &[], &undo)
            .await
            .with_context(|| {
                format!("{failure:#}; and the registration could not be taken back")
            })?;
    }
    Err(failure)
}

async fn find_envoy(flags: &EnvoyFlags) -> anyhow::Result<PathBuf> {
    if cfg!(not(target_os = "linux")) {
        bail!(
            "Directly running Envoy is only supported on linux. Use the -bootstrap option to write its configuration to a file"
        );
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let given = flags.envoy_binary.as_deref();
    let found = binary::check(given, &search, flags.ignore_envoy_compatibility).await?;
    if let Some(warning) = &found.warning {
        notice(warning);
    }
    Ok(found.path)
}

async fn server_info(client: &Client) -> anyhow::Result<ServerInfo> {
    let info = lookup::server_info(client)
        .await
        .context("Error connecting to Consul agent")?;
    let info = info.unwrap_or_else(|| {
        notice("the token may not read the server's own description (agent:read): assuming its defaults");
        ServerInfo::parse(&Value::Null)
    });
    if info.acls && client.settings().token.is_none() {
        notice(
            "ACLs are on and no token is given: the servers will refuse Envoy. Give one with -token-file or CONSUL_HTTP_TOKEN",
        );
    }
    Ok(info)
}

/// Node names that stand for this host, the plain one first.
fn host_nodes(id: Option<&str>) -> Vec<String> {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let own = id.map(|id| format!("{host}-{id}"));
    std::iter::once(host).chain(own).collect()
}

async fn prepare_registration(
    client: &Client,
    plan: &Plan,
    register: &RegisterPlan,
) -> anyhow::Result<(Proxy, Registration)> {
    let id = plan
        .proxy_id
        .clone()
        .unwrap_or_else(|| plan.service.clone());
    let local = local_addresses()?;
    let (node, state) = free_node(client, plan.node_name.as_deref(), &id).await?;
    let names = Names {
        node: node.clone(),
        id: id.clone(),
        service: plan.service.clone(),
        node_address: node_address(&local),
    };
    let body = registration::payload(register, &names, &local)?;
    let undo = match (state.exists, state.services.contains(&id)) {
        (_, true) => None,
        (true, false) => Some(json!({ "Node": node, "ServiceID": id })),
        (false, _) => Some(json!({ "Node": node })),
    };
    let config = body.pointer("/Service/Proxy/Config");
    let config = config.and_then(Value::as_object).cloned();
    let proxy = Proxy {
        node,
        id,
        service: plan.service.clone(),
        config: config.unwrap_or_default(),
    };
    Ok((proxy, Registration { body, undo }))
}

/// The node for the gateway. A node with an agent belongs to that agent, which would remove what it does not know.
async fn free_node(
    client: &Client,
    given: Option<&str>,
    id: &str,
) -> anyhow::Result<(String, lookup::NodeState)> {
    if let Some(node) = given {
        let state = lookup::node(client, node).await?;
        if state.has_agent {
            bail!(
                "-node-name {node:?} is the node of a server or agent, which manages its services itself: \
                 choose another name for the gateway"
            );
        }
        return Ok((node.to_owned(), state));
    }
    for node in host_nodes(Some(id)) {
        let state = lookup::node(client, &node).await?;
        if !state.has_agent {
            return Ok((node, state));
        }
    }
    bail!(
        "this host's name is taken by an agent's node: choose a node for the gateway with -node-name"
    )
}

fn local_addresses() -> anyhow::Result<Vec<IpAddr>> {
    let interfaces = if_addrs::get_if_addrs().context("cannot list this host's addresses")?;
    Ok(interfaces.iter().map(if_addrs::Interface::ip).collect())
}

/// This host's address for the catalog: a private IPv4 address if there is one, never loopback unless alone.
fn node_address(local: &[IpAddr]) -> IpAddr {
    let rank = |ip: &&IpAddr| match ip {
        ip if ip.is_loopback() => 3,
        IpAddr::V4(v4) if v4.is_private() => 0,
        IpAddr::V4(_) => 1,
        IpAddr::V6(_) => 2,
    };
    let best = local.iter().min_by_key(rank).copied();
    best.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

async fn store(client: &Client, registration: Option<&Registration>) -> anyhow::Result<()> {
    let Some(registration) = registration else {
        return Ok(());
    };
    let text = |path: &str| registration.body.pointer(path).and_then(Value::as_str);
    let (service, node) = (text("/Service/ID"), text("/Node"));
    client
        .put(&["catalog", "register"], &[], &registration.body)
        .await
        .context("Error registering the gateway")?;
    notice(&format!(
        "Registered service: {} (node {})",
        service.unwrap_or_default(),
        node.unwrap_or_default()
    ));
    Ok(())
}

/// Envoy tries for ever and says little; a warning here saves a search.
async fn warn_unless_reachable(endpoints: &[Endpoint]) {
    for endpoint in endpoints {
        let result = match endpoint {
            Endpoint::Ip(address) => dial(tokio::net::TcpStream::connect(address)).await,
            Endpoint::Dns(name, port) => {
                dial(tokio::net::TcpStream::connect((name.as_str(), *port))).await
            }
            Endpoint::Unix(path) => dial(tokio::net::UnixStream::connect(path)).await,
        };
        if let Err(cause) = result {
            notice(&format!(
                "the gRPC address {endpoint:?} does not answer ({cause}); Envoy will go on trying"
            ));
        }
    }
}

async fn dial<T>(connect: impl Future<Output = std::io::Result<T>>) -> Result<(), String> {
    match tokio::time::timeout(DIAL_TIMEOUT, connect).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer in time".to_owned()),
    }
}
