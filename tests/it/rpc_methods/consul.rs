//! The same calls to this server and to a real Consul 1.8.7: the replies must be the same.

use std::net::SocketAddr;
use std::net::TcpListener;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use crossway::codec::Value;
use crossway::rpc::Session;
use serde_json::Value as Json;
use serde_json::json;

use super::wire::call;
use super::wire::config_request;
use super::wire::session;
use super::wire::shown;
use super::wire::tls;
use crate::support::peers;
use crate::support::server::PATIENCE;
use crate::support::server::Server;
use crate::support::server::loopback;

/// A Consul server that is killed at the end of its test.
struct Consul {
    child: Child,
    rpc: SocketAddr,
}

impl Drop for Consul {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Consul {
    /// Starts node `n1` of `dc1` with the certificates of `folder`.
    fn start(consul: &Path, folder: &Path) -> Self {
        let address = loopback().to_string();
        let held: Vec<_> = (0..4)
            .map(|_| TcpListener::bind((address.as_str(), 0)).unwrap())
            .collect();
        let ports = held.iter().map(|port| port.local_addr().unwrap().port());
        let ports: Vec<u16> = ports.collect();
        let config = json!({
            "server": true, "bootstrap_expect": 1, "node_name": "n1", "datacenter": "dc1",
            "bind_addr": address, "client_addr": address, "data_dir": folder.join("consul-data"),
            "log_level": "warn", "connect": {"enabled": true}, "performance": {"raft_multiplier": 1},
            "ports": { "server": ports[0], "http": ports[1], "serf_lan": ports[2], "serf_wan": ports[3],
                       "dns": -1, "grpc": -1, "https": -1 },
            "ca_file": folder.join("consul-agent-ca.pem"),
            "cert_file": folder.join("dc1-server-consul-0.pem"),
            "key_file": folder.join("dc1-server-consul-0-key.pem"),
        });
        std::fs::write(folder.join("consul.json"), config.to_string()).unwrap();
        drop(held);
        let child = Command::new(consul)
            .args(["agent", "-config-file"])
            .arg(folder.join("consul.json"))
            .stdout(std::fs::File::create(folder.join("consul.log")).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let rpc = format!("{address}:{}", ports[0]).parse().unwrap();
        Self { child, rpc }
    }

    /// Waits until it leads and supports federation states.
    async fn until_ready(&self, folder: &Path) {
        let (start, tls) = (Instant::now(), tls(folder, "dc1-server-consul-0"));
        let log = || std::fs::read_to_string(folder.join("consul.log")).unwrap_or_default();
        while tokio::net::TcpStream::connect(self.rpc).await.is_err() {
            assert!(
                start.elapsed() < PATIENCE,
                "Consul does not listen:\n{}",
                log()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let query = json!({"Datacenter": "dc1"});
        loop {
            let session = session(self.rpc, &tls).await;
            let states = call(&session, "FederationState.List", &query).await;
            let nodes = call(&session, "Catalog.ListNodes", &query).await;
            let listed = |reply: &Value, key| matches!(reply.get(key), Some(Value::Array(rows)) if !rows.is_empty());
            if states.is_ok_and(|reply| listed(&reply, "States"))
                && nodes.is_ok_and(|reply| listed(&reply, "Nodes"))
            {
                return;
            }
            assert!(
                start.elapsed() < 2 * PATIENCE,
                "Consul is not ready:\n{}",
                log()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// A reply without what each server says about itself.
fn normal(reply: Result<Value, String>) -> Json {
    match reply {
        Ok(value) => {
            let mut json = shown(&value);
            without_own(&mut json);
            json
        }
        Err(text) => json!({ "error": text }),
    }
}

fn without_own(json: &mut Json) {
    match json {
        Json::Array(items) => {
            items.retain(|row| row["Node"] != "n1" && row["Node"]["Node"] != "n1");
            items.iter_mut().for_each(without_own);
            if items.iter().all(Json::is_string) {
                items.sort_by(|a, b| a.as_str().cmp(&b.as_str())); // Tags of a service: Consul has them in no order.
            }
            // Names of services and settings of upstreams have none either.
            let unordered = |row: &Json| {
                !row["Upstream"].is_null() || row.as_object().is_some_and(|o| o.len() == 1)
            };
            if items.iter().all(unordered) {
                items.sort_by_key(Json::to_string);
            }
        }
        Json::Object(map) => map.values_mut().for_each(without_own),
        _ => {}
    }
}

type Calls = Vec<(&'static str, Json)>;

fn catalog() -> Calls {
    let register = "Catalog.Register";
    let mut calls = vec![
        (register, json!({"Node": "bare", "Address": "10.0.0.1"})),
        (
            register,
            json!({"ID": "40e4a748-2192-161a-0510-9bf59fe950b5", "Node": "web1", "Address": "10.0.0.2",
            "TaggedAddresses": {"wan": "10.9.0.2"}, "NodeMeta": {"rack": "r1"},
            "Service": {"ID": "web-1", "Service": "web", "Tags": ["v1", "Prime"], "Port": 80, "Meta": {"version": "1"},
                "Weights": {"Passing": 10, "Warning": 2}, "EnableTagOverride": true,
                "TaggedAddresses": {"lan": {"Address": "10.0.0.2", "Port": 80}}},
            "Check": {"CheckID": "web-1:alive", "Name": "alive", "Status": "passing", "ServiceID": "web-1",
                "Notes": "n", "Output": "ok", "Definition": {"Method": "GET", "OutputMaxSize": 4096,
                    "Header": {"x": ["y"]}, "Timeout": 1_000_000_000}}}),
        ),
        (
            register,
            json!({"Node": "web2", "Address": "10.0.0.3", "Service": {"Service": "web", "Port": 81},
            "Checks": [{"CheckID": "node", "Name": "node", "Status": "warning"},
                {"CheckID": "web", "Name": "web", "Status": "critical", "ServiceID": "web"}]}),
        ),
        (
            register,
            json!({"Node": "gw", "Address": "10.0.0.4", "Service": {"Kind": "mesh-gateway", "ID": "gw",
            "Service": "mesh-gateway", "Address": "10.0.0.4", "Port": 8443, "Meta": {"consul-wan-federation": "1"},
            "TaggedAddresses": {"lan": {"Address": "10.0.0.4", "Port": 8443}, "wan": {"Address": "1.2.3.4", "Port": 443}},
            "Proxy": {"Config": {"a": true, "b": 5, "c": "d", "e": [1, "x"], "f": {"g": 1}, "h": []}}}}),
        ),
        (
            register,
            json!({"Node": "web1", "Address": "10.0.0.2", "SkipNodeUpdate": true, "Service": {
            "Kind": "connect-proxy", "ID": "web-1-proxy", "Service": "web-proxy", "Port": 21000,
            "Proxy": {"DestinationServiceName": "web", "DestinationServiceID": "web-1", "LocalServicePort": 80,
                "LocalServiceAddress": "127.0.0.1", "MeshGateway": {"Mode": "local"},
                "Upstreams": [{"DestinationName": "db", "LocalBindPort": 9191}],
                "Expose": {"Checks": true, "Paths": [{"Path": "/m", "ListenerPort": 2, "LocalPathPort": 3}]}}}}),
        ),
        (
            register,
            json!({"Node": "web2", "Address": "10.0.0.3",
            "Service": {"Service": "native", "Port": 82, "Connect": {"Native": true}}}),
        ),
        // What is refused.
        (register, json!({"Address": "10.0.0.1"})),
        (register, json!({"Node": "x"})),
        (
            register,
            json!({"Node": "x", "Address": "10.0.0.1", "Service": {"ID": "only-id"}}),
        ),
        (
            register,
            json!({"Node": "x", "Address": "a", "Service": {"Kind": "mesh-gateway", "Service": "gw"}}),
        ),
        (
            register,
            json!({"Node": "x", "Address": "a", "Service": {"Kind": "connect-proxy", "Service": "p"}}),
        ),
        (
            register,
            json!({"Datacenter": "nope", "Node": "x", "Address": "10.0.0.1"}),
        ),
        (
            register,
            json!({"Node": "x", "Address": "a", "Check": {"Name": "c", "ServiceID": "none"}}),
        ),
        ("Catalog.Deregister", json!({})),
        ("Catalog.Deregister", json!({"Node": "none"})),
    ];
    calls.extend(catalog_reads());
    calls.extend([
        (
            "Catalog.Deregister",
            json!({"Node": "web2", "ServiceID": "web"}),
        ),
        ("Health.ServiceNodes", json!({"ServiceName": "web"})),
        (
            "Catalog.Deregister",
            json!({"Node": "web1", "CheckID": "web-1:alive"}),
        ),
        ("Health.NodeChecks", json!({"Node": "web1"})),
        ("Catalog.Deregister", json!({"Node": "web2"})),
        ("Catalog.ListNodes", json!({})),
        ("Catalog.ServiceNodes", json!({"ServiceName": "web"})),
    ]);
    calls
}

fn catalog_reads() -> Calls {
    let mut calls: Calls = Vec::new();
    let mut add =
        |method, bodies: &[Json]| calls.extend(bodies.iter().map(|b| (method, b.clone())));
    add(
        "Catalog.ListNodes",
        &[
            json!({}),
            json!({"Datacenter": "dc1", "NodeMetaFilters": {"rack": "r1"}}),
            json!({"Filter": "Meta.rack == r1"}),
            json!({"Filter": "Meta.rack == none"}),
            json!({"Source": {"Node": "web2", "Datacenter": "dc1"}}),
            json!({"AllowStale": true}),
            json!({"RequireConsistent": true}),
            json!({"Datacenter": "nope"}),
        ],
    );
    add(
        "Catalog.ListServices",
        &[json!({}), json!({"NodeMetaFilters": {"rack": "r1"}})],
    );
    add(
        "Catalog.ServiceNodes",
        &[
            json!({"ServiceName": "web"}),
            json!({"ServiceName": "web", "ServiceTag": "v1", "TagFilter": true}),
            json!({"ServiceName": "web", "ServiceTags": ["v1", "prime"], "TagFilter": true}),
            json!({"ServiceName": "web", "ServiceTags": ["v2"], "TagFilter": true}),
            json!({"ServiceName": "web", "Filter": "ServiceMeta.version == 1"}),
            json!({"ServiceName": "web", "Connect": true}),
            json!({"ServiceName": "native", "Connect": true}),
            json!({"ServiceName": "mesh-gateway"}),
            json!({"ServiceName": "web-proxy"}),
            json!({"ServiceName": "none"}),
            json!({}),
            json!({"ServiceAddress": "10.0.0.4"}),
        ],
    );
    add(
        "Catalog.NodeServices",
        &[
            json!({"Node": "web1"}),
            json!({"Node": "bare"}),
            json!({"Node": "none"}),
            json!({"Node": "web1", "Filter": "Kind == \"connect-proxy\""}),
            json!({"Node": "web1", "Filter": "Service == none"}),
            json!({}),
        ],
    );
    add(
        "Catalog.NodeServiceList",
        &[
            json!({"Node": "web1"}),
            json!({"Node": "bare"}),
            json!({"Node": "none"}),
            json!({"Node": "web1", "Filter": "Kind == \"connect-proxy\""}),
            json!({}),
        ],
    );
    add(
        "Catalog.ServiceList",
        &[json!({}), json!({"Datacenter": "nope"})],
    );
    add(
        "Internal.NodeInfo",
        &[
            json!({"Node": "web1"}),
            json!({"Node": "bare"}),
            json!({"Node": "none"}),
        ],
    );
    add(
        "Internal.NodeDump",
        &[json!({}), json!({"Filter": "Meta.rack == r1"})],
    );
    add(
        "Health.ServiceNodes",
        &[
            json!({"ServiceName": "web"}),
            json!({"ServiceName": "web", "Connect": true}),
            json!({"ServiceName": "web", "ServiceTags": ["v1"], "TagFilter": true}),
            json!({"ServiceName": "web", "Filter": "Checks.Status == critical"}),
            json!({"ServiceName": "web", "Filter": "Service.Tags contains v1"}),
            json!({"ServiceName": "web", "NodeMetaFilters": {"rack": "r1"}}),
            json!({"ServiceName": "mesh-gateway"}),
            json!({"ServiceName": "none"}),
            json!({}),
        ],
    );
    add(
        "Health.NodeChecks",
        &[
            json!({"Node": "web1"}),
            json!({"Node": "web2"}),
            json!({"Node": "web2", "Filter": "Status == warning"}),
            json!({"Node": "none"}),
        ],
    );
    add(
        "Health.ServiceChecks",
        &[
            json!({"ServiceName": "web"}),
            json!({"ServiceName": "web", "NodeMetaFilters": {"rack": "r1"}}),
            json!({"ServiceName": "web", "Filter": "Node == web2"}),
            json!({"ServiceName": "none"}),
        ],
    );
    add(
        "Health.ChecksInState",
        &[
            json!({"State": "any"}),
            json!({"State": "critical"}),
            json!({"State": "warning", "Filter": "Name == node"}),
            json!({"State": "maintenance"}),
        ],
    );
    add(
        "Internal.ServiceDump",
        &[
            json!({"ServiceKind": "mesh-gateway", "UseServiceKind": true}),
            json!({"UseServiceKind": true}),
            json!({"ServiceKind": "ingress-gateway", "UseServiceKind": true}),
            json!({"Filter": "Service.Service == web"}),
            json!({}),
        ],
    );
    calls
}

fn keys() -> Calls {
    let apply = "KVS.Apply";
    let op = |op: &str, entry: Json| json!({"Datacenter": "dc1", "Op": op, "DirEnt": entry});
    vec![
        (
            apply,
            op("set", json!({"Key": "a/b", "Value": "one", "Flags": 7})),
        ),
        (apply, op("set", json!({"Key": "a/c/d", "Value": ""}))),
        (apply, op("set", json!({"Key": "a/nil"}))),
        (
            apply,
            op("set", json!({"Key": "z", "Value": {"hex": "00ff80"}})),
        ),
        (
            apply,
            op("cas", json!({"Key": "new", "Value": "1", "ModifyIndex": 0})),
        ),
        (
            apply,
            op("cas", json!({"Key": "new", "Value": "2", "ModifyIndex": 1})),
        ),
        ("KVS.Get", json!({"Key": "a/b"})),
        ("KVS.Get", json!({"Key": "a/c/d"})),
        ("KVS.Get", json!({"Key": "a/nil"})),
        ("KVS.Get", json!({"Key": "z"})),
        ("KVS.Get", json!({"Key": "none"})),
        ("KVS.Get", json!({"Key": ""})),
        ("KVS.List", json!({"Key": "a/"})),
        ("KVS.List", json!({"Key": "none/"})),
        ("KVS.List", json!({})),
        ("KVS.ListKeys", json!({"Prefix": "a/", "Seperator": "/"})),
        ("KVS.ListKeys", json!({"Prefix": "", "Seperator": "/"})),
        ("KVS.ListKeys", json!({"Prefix": "a"})),
        ("KVS.ListKeys", json!({"Prefix": "none/"})),
        (
            apply,
            op("delete-cas", json!({"Key": "new", "ModifyIndex": 1})),
        ),
        (apply, op("delete", json!({"Key": "new"}))),
        (apply, op("delete", json!({"Key": "none"}))),
        (apply, op("set", json!({"Key": ""}))),
        (apply, op("nope", json!({"Key": "a"}))),
        (apply, op("delete-tree", json!({"Key": "a/"}))),
        ("KVS.List", json!({"Key": ""})),
        (
            apply,
            json!({"Datacenter": "nope", "Op": "set", "DirEnt": {"Key": "a"}}),
        ),
    ]
}

fn config_entries() -> Calls {
    let defaults = "service-defaults";
    let resolver = json!({"Kind": "service-resolver", "Name": "web", "DefaultSubset": "v1",
        "Subsets": {"v1": {"Filter": "Service.Meta.version == 1", "OnlyPassing": true}, "v2": {}},
        "Failover": {"v2": {"Datacenters": ["dc2", "dc3"]}, "*": {"Service": "db"}}, "ConnectTimeout": 5_000_000_000u64});
    let redirect = json!({"Kind": "service-resolver", "Name": "old", "Redirect": {"Service": "web", "Datacenter": "dc2"}});
    let proxy = json!({"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http", "n": 1.5, "l": [1]},
        "MeshGateway": {"Mode": "local"}, "Expose": {"Checks": true,
            "Paths": [{"Path": "/x", "ListenerPort": 1, "LocalPathPort": 2, "Protocol": "http2"}]}});
    let (apply, delete) = ("ConfigEntry.Apply", "ConfigEntry.Delete");
    let resolve = "ConfigEntry.ResolveServiceConfig";
    let put = |kind: &str, entry: Json| config_request("upsert", kind, &entry);
    let web = json!({"Kind": defaults, "Name": "web", "Protocol": "HTTP", "MeshGateway": {"Mode": "remote"}});
    let named = |kind: &str, name: &str| json!({"Kind": kind, "Name": name});
    vec![
        ("ConfigEntry.ListAll", json!({})),
        (resolve, json!({"Name": "web", "Upstreams": ["db"]})),
        ("ConfigEntry.List", json!({"Kind": "proxy-defaults"})),
        ("ConfigEntry.Get", named("proxy-defaults", "global")),
        (apply, put("proxy-defaults", proxy)),
        (apply, put(defaults, web.clone())),
        (apply, put(defaults, named(defaults, "bare"))),
        (apply, put("service-resolver", resolver)),
        (apply, put("service-resolver", redirect)),
        ("ConfigEntry.Get", named("proxy-defaults", "global")),
        ("ConfigEntry.Get", named(defaults, "web")),
        ("ConfigEntry.Get", named(defaults, "bare")),
        ("ConfigEntry.Get", named(defaults, "none")),
        ("ConfigEntry.Get", named("service-resolver", "web")),
        ("ConfigEntry.Get", named("service-resolver", "old")),
        ("ConfigEntry.List", json!({"Kind": "proxy-defaults"})),
        ("ConfigEntry.List", json!({"Kind": defaults})),
        ("ConfigEntry.List", json!({"Kind": "service-resolver"})),
        ("ConfigEntry.List", json!({"Kind": "nope"})),
        ("ConfigEntry.Get", named("nope", "x")),
        ("ConfigEntry.ListAll", json!({})),
        (resolve, json!({"Name": "web"})),
        (resolve, json!({"Name": "bare"})),
        (
            resolve,
            json!({"Name": "none", "Upstreams": ["web", "bare"]}),
        ),
        (
            resolve,
            json!({"Name": "web", "UpstreamIDs": [{"ID": "web"}, {"ID": "none"}]}),
        ),
        (resolve, json!({"Name": "web", "Datacenter": "nope"})),
        (apply, config_request("upsert-cas", defaults, &web)),
        (
            apply,
            put(
                "service-resolver",
                json!({"Kind": "service-resolver", "Name": "web", "DefaultSubset": "no"}),
            ),
        ),
        (
            delete,
            config_request(
                "delete",
                "service-resolver",
                &named("service-resolver", "old"),
            ),
        ),
        (
            delete,
            config_request(
                "delete",
                "service-resolver",
                &named("service-resolver", "web"),
            ),
        ),
        (
            delete,
            config_request(
                "delete",
                "proxy-defaults",
                &named("proxy-defaults", "global"),
            ),
        ),
        (
            delete,
            config_request("delete", defaults, &named(defaults, "none")),
        ),
        ("ConfigEntry.ListAll", json!({})),
    ]
}

fn federation_states() -> Calls {
    let apply = "FederationState.Apply";
    let time = json!({"hex": "010000000ee29ff65c16850831ffff"});
    let gateways = json!([{
        "Node": {"Node": "gw2", "Address": "10.2.0.1", "Datacenter": "dc2"},
        "Service": {"Kind": "mesh-gateway", "ID": "gw2", "Service": "mesh-gateway", "Port": 443,
            "Proxy": {"Config": {"x": true}}},
        "Checks": [{"Node": "gw2", "CheckID": "c", "Status": "passing"}]}]);
    let upsert = |state: Json| json!({"Datacenter": "dc1", "Op": "upsert", "State": state});
    let get = |dc: &str| json!({"Datacenter": dc, "TargetDatacenter": "dc1"});
    vec![
        ("FederationState.Get", get("dc2")),
        (
            apply,
            upsert(
                json!({"Datacenter": "dc2", "MeshGateways": gateways, "UpdatedAt": time, "PrimaryModifyIndex": 5}),
            ),
        ),
        (apply, upsert(json!({"Datacenter": "dc3"}))),
        ("FederationState.Get", get("dc2")),
        ("FederationState.Get", get("dc3")),
        ("FederationState.List", json!({})),
        ("FederationState.ListMeshGateways", json!({})),
        (apply, upsert(Json::Null)),
        (apply, upsert(json!({"Datacenter": ""}))),
        (apply, json!({"Op": "nope", "State": {"Datacenter": "dc3"}})),
        (apply, json!({"State": {"Datacenter": "dc3"}})),
        (
            apply,
            json!({"Op": "delete", "State": {"Datacenter": "dc3"}}),
        ),
        (
            apply,
            json!({"Op": "delete", "State": {"Datacenter": "none"}}),
        ),
        ("FederationState.Get", get("dc3")),
        (
            "FederationState.Get",
            json!({"Datacenter": "dc2", "TargetDatacenter": "nope"}),
        ),
        ("FederationState.List", json!({"Datacenter": "nope"})),
        ("FederationState.List", json!({})),
    ]
}

fn others() -> Calls {
    let calls: Calls = [
        "Status.Ping",
        "Catalog.ListDatacenters",
        "Catalog.Nope",
        "Nope.Nope",
        "Nope",
        "",
        ".",
    ]
    .into_iter()
    .map(|method| (method, json!({})))
    .collect();
    calls
}

/// Differences that are meant: method, a part of its argument, and what differs.
const MEANT: &[(&str, &str, &str)] = &[
    (
        "Catalog.ListNodes",
        "Meta.rack == none",
        "a filtered list without rows is nil, not empty",
    ),
    (
        "Catalog.ListNodes",
        "\"Source\":{",
        "the asking node comes first; Consul sorts by coordinates",
    ),
    (
        "Catalog.ServiceNodes",
        "\"ServiceAddress\"",
        "instances are not looked up by address alone",
    ),
    (
        "Catalog.Register",
        "\"ServiceID\":\"none\"",
        "the error has no more than its cause",
    ),
];

/// Names every place where two values differ.
fn differences(at: &str, ours: &Json, theirs: &Json, out: &mut Vec<String>) {
    match (ours, theirs) {
        (Json::Object(a), Json::Object(b)) if a.keys().eq(b.keys()) => {
            for (key, value) in a {
                differences(&format!("{at}.{key}"), value, &b[key], out);
            }
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            for (n, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{at}[{n}]"), a, b, out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(format!("  {at}\n    ours   {a}\n    Consul {b}")),
    }
}

async fn compare(ours: &Session, theirs: &Session, calls: Calls, wrong: &mut Vec<String>) {
    for (method, mut body) in calls {
        if let Json::Object(fields) = &mut body
            && !fields.contains_key("hex")
            && !fields.contains_key("TargetDatacenter")
        {
            fields.entry("Datacenter").or_insert("dc1".into()); // To us an empty one is the own, not to Consul.
        }
        let (got, expected) = (
            call(ours, method, &body).await,
            call(theirs, method, &body).await,
        );
        let (mut got, expected) = (normal(got), normal(expected));
        let start = Instant::now();
        // The record of the own datacenter follows the catalog a moment later.
        while got != expected
            && method.starts_with("FederationState.L")
            && start.elapsed() < PATIENCE / 4
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
            got = normal(call(ours, method, &body).await);
        }
        let text = body.to_string();
        let meant = MEANT
            .iter()
            .any(|(name, part, _)| *name == method && text.contains(part));
        if got != expected && !meant {
            wrong.push(format!("{method} {text}"));
            differences("", &got, &expected, wrong);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_are_those_of_a_real_consul() {
    let Some(program) = peers::find("consul") else {
        return;
    };
    let server = Server::start(&json!({}));
    let folder = server.path("");
    let consul = Consul::start(&program, &folder);
    consul.until_ready(&folder).await;
    let tls = tls(&folder, "dc1-server-consul-0");
    let ours = session(server.port(8300).parse().unwrap(), &tls).await;
    let theirs = session(consul.rpc, &tls).await;
    let mut wrong = Vec::new();
    for calls in [
        others(),
        keys(),
        config_entries(),
        federation_states(),
        catalog(),
    ] {
        compare(&ours, &theirs, calls, &mut wrong).await;
    }
    assert!(
        wrong.is_empty(),
        "{} differences\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
