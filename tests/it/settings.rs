//! Settings that a running server shows the effect of.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use crate::support::server::Server;
use crate::support::server::eventually;
use serde_json::json;

#[test]
fn settings_act_or_are_named_at_the_start() {
    let agent = Server::start(&json!({
        "config_entries": {"bootstrap": [
            {"kind": "proxy-defaults", "name": "global", "config": {"a": 1}},
            {"kind": "service-resolver", "name": "web", "connect_timeout": "7s"},
        ]},
        "tagged_addresses": {"rack": "10.9.9.9"},
        "http_config": {"response_headers": {"X-Site": "north"}},
        "translate_wan_addrs": true,
        "connect": {
            "enabled": true, "enable_mesh_gateway_wan_federation": true,
            "ca_config": {"leaf_cert_ttl": "24h"},
        },
    }));
    eventually("the entries of the configuration are written", || {
        let (_, defaults) = agent.get("/v1/config/proxy-defaults/global").ok()?;
        let (_, resolver) = agent.get("/v1/config/service-resolver/web").ok()?;
        (defaults["Config"]["a"] == 1 && resolver["ConnectTimeout"] == "7s").then_some(())
    });
    let (_, nodes) = agent.get("/v1/catalog/nodes").unwrap();
    assert_eq!(nodes[0]["TaggedAddresses"]["rack"], "10.9.9.9");
    let log = agent.log();
    for named in ["translate_wan_addrs", "connect.ca_config.LeafCertTTL"] {
        assert!(log.contains(named), "{named} in {log}");
    }
}
