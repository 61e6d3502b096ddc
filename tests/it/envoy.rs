//! A real Envoy as mesh gateway, real TLS through it, and a real server process behind it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::disallowed_methods)] // The clock of the machine is the one that Envoy has.

use crate::support::gateway::Backend;
use crate::support::gateway::Gateway;
use crate::support::gateway::ask;
use crate::support::peers;
use crate::support::server::Server;
use crate::support::server::eventually;
use serde_json::Value;
use serde_json::json;

/// A record of another datacenter whose only gateway is `backend`.
fn record(dc: &str, backend: &Backend, updated_at: &str) -> Value {
    json!({
        "Datacenter": dc,
        "UpdatedAt": updated_at,
        "MeshGateways": [{
            "Node": {"Node": format!("{dc}-gw"), "Address": "192.0.2.9", "Datacenter": dc},
            "Service": {"Kind": "mesh-gateway", "ID": "gw", "Service": "mesh-gateway", "Port": 443,
                "Address": "192.0.2.9", "Meta": {"consul-wan-federation": "1"},
                "TaggedAddresses": {"wan": {"Address": backend.address.to_string(), "Port": backend.port}}},
            "Checks": [],
        }],
    })
}

fn native(name: &str, id: &str, backend: &Backend, version: &str) -> Value {
    json!({
        "Node": format!("node-{id}"), "Address": backend.address.to_string(),
        "Service": {"ID": id, "Service": name, "Address": backend.address.to_string(), "Port": backend.port,
            "Meta": {"version": version}, "Connect": {"Native": true}},
    })
}

fn trust_domain(agent: &Server) -> String {
    eventually("the trust domain", || {
        let (_, roots) = agent.get("/v1/connect/ca/roots").ok()?;
        let td = roots["TrustDomain"].as_str()?;
        (!td.is_empty()).then(|| td.to_owned())
    })
}

#[test]
fn every_sni_goes_where_it_should_and_unknown_ones_nowhere() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    let td = trust_domain(&agent);
    let (web1, web2, dc2) = (
        Backend::start("web1"),
        Backend::start("web2"),
        Backend::start("dc2"),
    );
    agent.put("/v1/catalog/register", &native("web", "w1", &web1, "1"));
    agent.put("/v1/catalog/register", &native("web", "w2", &web2, "2"));
    let resolver = json!({"Kind": "service-resolver", "Name": "web", "DefaultSubset": "v1", "Subsets": {
        "v1": {"Filter": "Service.Meta.version == 1"}, "v2": {"Filter": "Service.Meta.version == 2"}}});
    agent.put("/v1/config", &resolver);
    agent.store_federation_state(&record("dc2", &dc2, "2026-01-01T00:00:00Z"));
    let gateway = Gateway::start(&agent, &envoy, "gw1");
    let local = format!("web.default.dc1.internal.{td}");
    let remote = "server.dc2.consul".to_owned();
    eventually("all clusters", || {
        let clusters = gateway.clusters()?;
        (clusters.contains(&local) && clusters.contains(&remote)).then_some(())
    });
    eventually("the chains", || (gateway.chains().len() == 5).then_some(()));

    let through = |sni: &str| -> Option<String> { ask(&mut gateway.dial(Some(sni)).ok()?).ok() };
    for (sni, backend) in [
        (format!("db.default.dc2.internal.{td}"), "dc2"),
        (format!("v1.db.default.dc2.internal.{td}"), "dc2"),
        (format!("dc2.internal.{td}"), "dc2"),
        ("r1.server.dc2.consul".to_owned(), "dc2"),
        ("a.b.server.dc2.consul".to_owned(), "dc2"),
        ("server.dc2.consul".to_owned(), "dc2"),
        (local.clone(), "web1"),
        (format!("v1.{local}"), "web1"),
        (format!("v2.{local}"), "web2"),
    ] {
        assert_eq!(through(&sni), Some(format!("{backend} {sni}")), "{sni}");
        let upper = sni.to_uppercase();
        let answer = through(&upper).map(|a| a.to_lowercase());
        assert_eq!(answer, Some(format!("{backend} {sni}")), "{upper}");
    }
    for sni in [
        "n9.server.dc1.consul".to_owned(),
        format!("nothing.default.dc1.internal.{td}"),
        "local_agent".to_owned(),
        "self_admin".to_owned(),
        "server.dc9.consul".to_owned(),
        format!("dc1.internal.{td}"),
        "example.com".to_owned(),
    ] {
        assert!(gateway.dial(Some(&sni)).is_err(), "{sni} was let through");
    }
    assert!(
        gateway.dial(None).is_err(),
        "a client without SNI was let through"
    );

    // The servers' own port, through the gateway: one by name, and any of them.
    for sni in ["n1.server.dc1.consul", "server.dc1.consul"] {
        let leader = agent.rpc(&gateway.at(), sni, "Status.Leader", &json!({}));
        assert_eq!(leader, json!(agent.port(8300)), "{sni}");
    }
}

#[test]
fn another_datacenter_comes_and_goes_while_a_stream_through_a_third_lives() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    let (dc2, dc5) = (Backend::start("dc2"), Backend::start("dc5"));
    agent.store_federation_state(&record("dc2", &dc2, "2026-01-01T00:00:00Z"));
    let gateway = Gateway::start(&agent, &envoy, "gw1");
    let dial = || gateway.dial(Some("server.dc2.consul")).ok();
    let mut stream = eventually("the way to dc2", dial);
    assert_eq!(ask(&mut stream).unwrap(), "dc2 server.dc2.consul");
    let in_place = || {
        gateway
            .stat("listener_manager.listener_in_place_updated")
            .unwrap_or(0)
    };
    let before = in_place();
    for round in 1..=10u64 {
        let at = format!("2026-01-02T00:00:{round:02}Z");
        agent.store_federation_state(&record("dc5", &dc5, &at));
        eventually("dc5's chains", || {
            let names: Vec<String> = gateway.chains().into_iter().flat_map(|c| c.0).collect();
            names
                .contains(&"server.dc5.consul".to_owned())
                .then_some(())
        });
        let body = json!({"Datacenter": "dc1", "Op": "delete", "State": {"Datacenter": "dc5"}});
        agent.rpc(
            &agent.port(8300),
            "server.dc1.consul",
            "FederationState.Apply",
            &body,
        );
        eventually("dc5's end", || {
            let clusters = gateway.clusters()?;
            (!clusters.contains(&"server.dc5.consul".to_owned())).then_some(())
        });
        assert_eq!(
            ask(&mut stream).unwrap(),
            "dc2 server.dc2.consul",
            "round {round}"
        );
        eventually("in-place updates", || {
            (in_place() >= before + 2 * round).then_some(())
        });
    }
}

#[test]
fn a_moved_gateway_a_restarted_server_and_a_deregistered_proxy() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let mut agent = Server::start(&json!({}));
    let (old, new) = (Backend::start("old"), Backend::start("new"));
    agent.store_federation_state(&record("dc2", &old, "2026-01-01T00:00:00Z"));
    let gateway = Gateway::start(&agent, &envoy, "gw1");
    let healthy = |b: &Backend| vec![format!("{}:{} healthy", b.address, b.port)];
    let dc2 = "server.dc2.consul";
    eventually("the old address", || {
        (gateway.endpoints(dc2) == healthy(&old)).then_some(())
    });

    // C001: the newest record wins at once; an older one that comes late changes nothing.
    let start = std::time::Instant::now();
    agent.store_federation_state(&record("dc2", &new, "2026-01-03T00:00:00Z"));
    eventually("the new address", || {
        (gateway.endpoints(dc2) == healthy(&new)).then_some(())
    });
    assert!(start.elapsed().as_secs() < 2, "{:?}", start.elapsed());

    // A restart with unchanged data resends nothing: listeners and clusters stay as they are.
    let modified = |g: &Gateway| {
        (
            g.stat("listener_manager.listener_modified"),
            g.stat("cluster_manager.cluster_modified"),
            g.stat("cluster_manager.cluster_added"),
        )
    };
    let before = modified(&gateway);
    let connected = |g: &Gateway| g.stat("control_plane.connected_state");
    agent.kill();
    eventually("the loss of the server", || {
        (connected(&gateway) == Some(0)).then_some(())
    });
    assert_eq!(
        ask(&mut gateway.dial(Some(dc2)).unwrap()).unwrap(),
        format!("new {dc2}")
    );
    agent.restart();
    eventually("the server's return", || {
        (connected(&gateway) == Some(1)).then_some(())
    });
    assert_eq!(modified(&gateway), before);

    // Deregistered: the stream ends after a grace, Envoy keeps what it has; registered again: it is configured again.
    let (_, node) = agent.get("/v1/catalog/node/gw1").unwrap();
    let service = node["Services"]["mesh-gateway"].clone();
    agent.put("/v1/catalog/deregister", &json!({"Node": "gw1"}));
    eventually("the end of the stream", || {
        (connected(&gateway) == Some(0)).then_some(())
    });
    assert_eq!(
        ask(&mut gateway.dial(Some(dc2)).unwrap()).unwrap(),
        format!("new {dc2}")
    );
    let body = json!({"Node": "gw1", "Address": gateway.address.to_string(), "Service": service});
    agent.put("/v1/catalog/register", &body);
    eventually("the stream again", || {
        (connected(&gateway) == Some(1)).then_some(())
    });
    assert_eq!(modified(&gateway), before);
}
