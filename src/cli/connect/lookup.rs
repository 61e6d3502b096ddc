//! What the catalog already knows: the proxy to run for, or the names a registration must not collide with.

use crate::cli::client::Client;
use crate::cli::client::ClientError;
use crate::cli::connect::plan::MESH_GATEWAY;
use crate::cli::connect::plan::Plan;
use crate::cli::connect::targets::ServerInfo;
use crate::cli::document::text;
use anyhow::Context;
use anyhow::bail;
use serde_json::Map;
use serde_json::Value;
use std::fmt;

/// Check that every node with a server or client agent has.
const AGENT_CHECK: &str = "serfHealth";

/// A registered proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    /// Catalog node.
    pub(crate) node: String,
    /// Service id.
    pub(crate) id: String,
    /// Service name.
    pub(crate) service: String,
    /// The registration's own configuration.
    pub(crate) config: Map<String, Value>,
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on node {}", self.id, self.node)
    }
}

/// What `/v1/agent/self` says; nothing if the token may not read it.
pub(crate) async fn server_info(client: &Client) -> anyhow::Result<Option<ServerInfo>> {
    match client.get(&["agent", "self"], &[]).await {
        Ok(body) => Ok(body.as_ref().map(ServerInfo::parse)),
        Err(ClientError::Denied { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Names and addresses of the datacenter's servers.
pub(crate) async fn servers(client: &Client) -> anyhow::Result<Vec<(String, String)>> {
    let rows = rows(client, &["catalog", "service", "consul"]).await?;
    let server = |row: &Value| {
        let address = text(row, "ServiceAddress").or_else(|| text(row, "Address"))?;
        Some((text(row, "Node")?.to_owned(), address.to_owned()))
    };
    Ok(rows.iter().filter_map(server).collect())
}

/// Configuration of all proxies of the datacenter, from the entry proxy-defaults/global.
pub(crate) async fn proxy_defaults(client: &Client) -> anyhow::Result<Map<String, Value>> {
    let entry = client
        .get(&["config", "proxy-defaults", "global"], &[])
        .await?;
    let config = entry.as_ref().and_then(|e| e.get("Config")?.as_object());
    Ok(config.cloned().unwrap_or_default())
}

/// Whether a node is there, has an agent of its own, and which services it has.
#[derive(Debug, Default)]
pub(crate) struct NodeState {
    pub(crate) exists: bool,
    pub(crate) has_agent: bool,
    pub(crate) services: Vec<String>,
}

/// The catalog's view of the node `name`.
pub(crate) async fn node(client: &Client, name: &str) -> anyhow::Result<NodeState> {
    let body = client.get(&["catalog", "node", name], &[]).await?;
    let Some(services) = body.as_ref().and_then(|b| b.get("Services")?.as_object()) else {
        return Ok(NodeState::default());
    };
    let checks = rows(client, &["health", "node", name]).await?;
    let is_agent = |check: &Value| text(check, "CheckID") == Some(AGENT_CHECK);
    Ok(NodeState {
        exists: true,
        has_agent: checks.iter().any(is_agent) || services.contains_key("consul"),
        services: services.keys().cloned().collect(),
    })
}

/// The registered proxy that `plan` means. `hosts` are the node names that this host may have.
pub(crate) async fn proxy(
    client: &Client,
    plan: &Plan,
    info: &ServerInfo,
    hosts: &[String],
) -> anyhow::Result<Proxy> {
    let mut found = catalog_proxies(client, &plan.service).await?;
    if found.is_empty() && plan.proxy_id.is_none() && plan.service == MESH_GATEWAY {
        found = agent_gateways(client, &info.node).await?;
    }
    if let Some(id) = &plan.proxy_id {
        if plan.service != *id {
            found.extend(catalog_proxies(client, id).await?);
        }
        found.extend(agent_proxy(client, id, &info.node).await?);
        found.retain(|(_, proxy)| proxy.id == *id);
    }
    if let Some(node) = &plan.node_name {
        found.retain(|(_, proxy)| proxy.node.eq_ignore_ascii_case(node));
    }
    let mut seen: Vec<Proxy> = Vec::new();
    for (kind, proxy) in found {
        match kind.as_str() {
            MESH_GATEWAY => {}
            "" => bail!("service is not a Connect proxy or gateway: {proxy}"),
            kind => {
                bail!("{proxy} has the kind {kind:?}; this version configures mesh gateways only")
            }
        }
        if !seen
            .iter()
            .any(|p| p.node == proxy.node && p.id == proxy.id)
        {
            seen.push(proxy);
        }
    }
    choose(seen, plan, hosts)
}

/// The one meant among `found`: with several, the one on this host.
fn choose(mut found: Vec<Proxy>, plan: &Plan, hosts: &[String]) -> anyhow::Result<Proxy> {
    if found.len() > 1 && found.iter().any(|p| hosts.contains(&p.node)) {
        found.retain(|proxy| hosts.contains(&proxy.node));
    }
    let names = found
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    match (found.len(), &plan.proxy_id) {
        (1, _) => found.pop().context("one proxy"),
        (0, Some(id)) => bail!(
            "failed fetch proxy config from local agent: Unexpected response code: 404 (unknown service ID: {id}). \
             Register it first, or add -gateway=mesh -register"
        ),
        (0, None) => bail!(
            "No {MESH_GATEWAY} services registered with this agent under the name {:?}. Register one with -register, \
             or name it with -proxy-id or -service",
            plan.service
        ),
        (_, Some(id)) => bail!(
            "several nodes have a proxy with the id {id:?} ({names}): name one with -node-name"
        ),
        (_, None) => bail!(
            "Cannot lookup the {MESH_GATEWAY}'s proxy ID because multiple are registered with the agent ({names}): \
             name one with -proxy-id or -node-name"
        ),
    }
}

async fn catalog_proxies(client: &Client, service: &str) -> anyhow::Result<Vec<(String, Proxy)>> {
    let rows = rows(client, &["catalog", "service", service]).await?;
    let proxy = |row: &Value| {
        let kind = text(row, "ServiceKind").unwrap_or_default().to_owned();
        let proxy = Proxy {
            node: text(row, "Node")?.to_owned(),
            id: text(row, "ServiceID")?.to_owned(),
            service: text(row, "ServiceName")?.to_owned(),
            config: config(row.get("ServiceProxy")),
        };
        Some((kind, proxy))
    };
    Ok(rows.iter().filter_map(proxy).collect())
}

/// A service of the contacted server itself, which need not have reached the catalog yet.
async fn agent_proxy(
    client: &Client,
    id: &str,
    node: &str,
) -> anyhow::Result<Option<(String, Proxy)>> {
    let service = client.get(&["agent", "service", id], &[]).await?;
    Ok(service.map(|service| of_agent(&service, id, node)))
}

/// The mesh gateways that are services of the contacted server itself, whatever their names, as Consul looks them up.
async fn agent_gateways(client: &Client, node: &str) -> anyhow::Result<Vec<(String, Proxy)>> {
    let body = client.get(&["agent", "services"], &[]).await?;
    let services = body.as_ref().and_then(Value::as_object);
    let found = services.into_iter().flatten();
    let found = found.map(|(id, service)| of_agent(service, id, node));
    Ok(found.filter(|(kind, _)| kind == MESH_GATEWAY).collect())
}

/// Kind and facts of a service as the agent shows it.
fn of_agent(service: &Value, id: &str, node: &str) -> (String, Proxy) {
    let kind = text(service, "Kind").unwrap_or_default().to_owned();
    let proxy = Proxy {
        node: node.to_owned(),
        id: id.to_owned(),
        service: text(service, "Service").unwrap_or(id).to_owned(),
        config: config(service.get("Proxy")),
    };
    (kind, proxy)
}

fn config(proxy: Option<&Value>) -> Map<String, Value> {
    let config = proxy.and_then(|proxy| proxy.get("Config")?.as_object());
    config.cloned().unwrap_or_default()
}

async fn rows(client: &Client, segments: &[&str]) -> anyhow::Result<Vec<Value>> {
    let body = client.get(segments, &[]).await?;
    Ok(match body {
        Some(Value::Array(rows)) => rows,
        _ => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(node: &str) -> Proxy {
        Proxy {
            node: node.to_owned(),
            id: "gw".to_owned(),
            service: "mesh-gateway".to_owned(),
            config: Map::new(),
        }
    }

    fn plan(id: Option<&str>) -> Plan {
        Plan {
            proxy_id: id.map(ToOwned::to_owned),
            service: "mesh-gateway".to_owned(),
            node_name: None,
            register: None,
            ready: None,
        }
    }

    #[test]
    fn exactly_one_proxy_must_be_meant() {
        let here = ["n1".to_owned()];
        let choose = |found: &[&str], id| {
            choose(found.iter().map(|n| proxy(n)).collect(), &plan(id), &here)
                .map(|proxy| proxy.node)
                .map_err(|error| error.to_string())
        };
        assert_eq!(choose(&["n9"], None), Ok("n9".to_owned()));
        assert_eq!(choose(&["n9", "n1"], None), Ok("n1".to_owned()));
        let none = choose(&[], None).unwrap_err();
        assert!(none.starts_with("No mesh-gateway services registered with this agent"));
        let unknown = choose(&[], Some("nope")).unwrap_err();
        assert!(unknown.contains("404 (unknown service ID: nope)"));
        let several = choose(&["n8", "n9"], None).unwrap_err();
        assert!(
            several
                .contains("multiple are registered with the agent (gw on node n8, gw on node n9)")
        );
        let same = choose(&["n8", "n9"], Some("gw")).unwrap_err();
        assert!(same.contains("-node-name"));
    }
}
