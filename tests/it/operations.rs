//! The commands of operators: as recorded from Consul 1.8.7, and Consul's own command line against our server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods
)] // Test code: a failed step should stop the test.

mod datacenter;
mod live;

use crate::cli::FakeServer;
use crate::support::server::binary;
use serde_json::Value;
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

/// What a command printed and how it ended, in the form of the records.
fn told(output: &Output) -> String {
    let (out, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    format!("{out}{error}exit={}\n", output.status.code().unwrap())
}

/// Runs a program's command against the server at `address`.
fn run(program: &Path, address: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .env_clear()
        .env("CONSUL_HTTP_ADDR", address)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    told(&output)
}

fn ours(server: &FakeServer, args: &[&str]) -> String {
    run(Path::new(binary()), &server.start().to_string(), args)
}

fn member(name: &str, address: &str, tags: &Value) -> Value {
    json!({"Name": name, "Addr": address, "Port": 8301, "Status": 1, "Tags": tags,
        "ProtocolMin": 1, "ProtocolMax": 5, "ProtocolCur": 2, "DelegateMin": 2, "DelegateMax": 5, "DelegateCur": 4})
}

fn members() -> Value {
    let server = json!({"acls": "0", "bootstrap": "1", "build": "1.8.7:", "dc": "dc1", "ft_fs": "1",
        "id": "f3398f53-d584-4b84-a614-54a38d718853", "port": "8300", "raft_vsn": "3", "role": "consul", "segment": "",
        "use_tls": "1", "vsn": "2", "vsn_max": "3", "vsn_min": "2", "wan_join_port": "8302"});
    let client = json!({"acls": "0", "build": "1.8.7:", "dc": "dc1", "id": "0b912827-e96c-59e1-971b-935fa80d96b5",
        "role": "node", "segment": "", "vsn": "2", "vsn_max": "3", "vsn_min": "2"});
    json!([
        member("dc1-gw", "10.71.0.20", &client),
        member("dc1-s1", "10.71.0.11", &server)
    ])
}

const MEMBERS: &str = "\
Node    Address          Status  Type    Build  Protocol  DC   Segment
dc1-s1  10.71.0.11:8301  alive   server  1.8.7  2         dc1  <all>
dc1-gw  10.71.0.20:8301  alive   client  1.8.7  2         dc1  <default>
exit=0
";

const DETAILED: &str = "\
Node    Address          Status  Tags
dc1-s1  10.71.0.11:8301  alive   acls=0,bootstrap=1,build=1.8.7:,dc=dc1,ft_fs=1,id=f3398f53-d584-4b84-a614-54a38d718853,\
port=8300,raft_vsn=3,role=consul,segment=<all>,use_tls=1,vsn=2,vsn_max=3,vsn_min=2,wan_join_port=8302
dc1-gw  10.71.0.20:8301  alive   acls=0,build=1.8.7:,dc=dc1,id=0b912827-e96c-59e1-971b-935fa80d96b5,role=node,\
segment=<default>,vsn=2,vsn_max=3,vsn_min=2
exit=0
";

#[test]
fn members_are_listed_as_recorded() {
    let server = FakeServer::default();
    server.answer("GET /v1/agent/members?segment=_all", &members());
    server.answer("GET /v1/agent/members?segment=_all&wan=1", &json!([]));
    assert_eq!(ours(&server, &["members"]), MEMBERS);
    assert_eq!(ours(&server, &["members", "-status=alive"]), MEMBERS);
    assert_eq!(ours(&server, &["members", "-detailed"]), DETAILED);
    assert_eq!(
        ours(&server, &["members", "-status", "^failed$"]),
        "exit=2\n"
    );
    assert_eq!(ours(&server, &["members", "-wan"]), "exit=2\n");
    let broken = ours(&server, &["members", "-status=("]);
    assert!(
        broken.contains("Failed to compile status regexp: "),
        "{broken}"
    );
    let lost = ours(&FakeServer::default(), &["members", "-segment=x"]);
    assert_eq!(lost, "exit=2\n");
}

#[test]
fn raft_peers_are_listed_as_recorded() {
    let server = FakeServer::default();
    let list = json!({"Index": 0, "Servers": [{"ID": "f3398f53-d584-4b84-a614-54a38d718853", "Node": "dc1-s1",
        "Address": "10.71.0.11:8300", "Leader": true, "ProtocolVersion": "3", "Voter": true}]});
    server.answer("GET /v1/operator/raft/configuration", &list);
    server.answer(
        "GET /v1/operator/raft/configuration?dc=dc2&stale=",
        &json!({"Servers": []}),
    );
    assert_eq!(
        ours(&server, &["operator", "raft", "list-peers"]),
        "\
Node    ID                                    Address          State   Voter  RaftProtocol
dc1-s1  f3398f53-d584-4b84-a614-54a38d718853  10.71.0.11:8300  leader  true   3
exit=0
"
    );
    let empty = ours(
        &server,
        &[
            "operator",
            "raft",
            "list-peers",
            "-stale",
            "-datacenter=dc2",
        ],
    );
    assert_eq!(
        empty,
        "Node  ID  Address  State  Voter  RaftProtocol\nexit=0\n"
    );
    let remove = |args: &[&str]| {
        ours(
            &server,
            &[&["operator", "raft", "remove-peer"], args].concat(),
        )
    };
    server.answer_status(
        "DELETE /v1/operator/raft/peer?address=10.0.0.9%3A8300",
        200,
        "",
    );
    server.answer_status(
        "DELETE /v1/operator/raft/peer?id=x",
        500,
        "id \"x\" was not found in the Raft configuration",
    );
    assert_eq!(
        remove(&["-address=10.0.0.9:8300"]),
        "Removed peer with address \"10.0.0.9:8300\"\nexit=0\n"
    );
    assert_eq!(
        remove(&["-id=x"]),
        "Error removing peer: Unexpected response code: 500 (id \"x\" was not found in the Raft configuration)\nexit=1\n"
    );
    assert_eq!(
        remove(&[]),
        "Error removing peer: an address or id is required for the peer to remove\nexit=1\n"
    );
    assert_eq!(
        remove(&["-id=x", "-address=y"]),
        "Error removing peer: cannot give both an address and id\nexit=1\n"
    );
}

#[test]
fn joining_and_leaving_are_told_as_recorded() {
    let server = FakeServer::default();
    let refusal = "1 error occurred:\n\t* Failed to join 10.9.9.9: dial tcp 10.9.9.9:8301: connect: network is unreachable\n\n";
    server.answer_status("PUT /v1/agent/join/10.9.9.9", 500, refusal);
    server.answer_status("PUT /v1/agent/join/10.0.0.1", 200, "");
    server.answer_status("PUT /v1/agent/join/10.0.0.1?wan=1", 200, "");
    server.answer_status(
        "PUT /v1/agent/force-leave/nope",
        500,
        "agent: No node found with name 'nope'",
    );
    server.answer_status("PUT /v1/agent/force-leave/gone?prune=1", 200, "");
    server.answer_status("PUT /v1/agent/leave", 200, "");
    server.answer_status("PUT /v1/agent/reload", 200, "");
    assert_eq!(
        ours(&server, &["join", "10.9.9.9"]),
        "\
Error joining address '10.9.9.9': Unexpected response code: 500 (1 error occurred:
\t* Failed to join 10.9.9.9: dial tcp 10.9.9.9:8301: connect: network is unreachable

)
Failed to join any nodes.
exit=1
"
    );
    let joined = "Successfully joined cluster by contacting 1 nodes.\n";
    let some = ours(&server, &["join", "10.9.9.9", "10.0.0.1"]);
    assert!(
        some.starts_with(joined) && some.ends_with("exit=0\n"),
        "{some}"
    );
    assert_eq!(
        ours(&server, &["join", "-wan", "10.0.0.1"]),
        format!("{joined}exit=0\n")
    );
    assert!(ours(&server, &["join"]).contains("At least one address to join must be specified."));
    assert_eq!(
        ours(&server, &["force-leave", "nope"]),
        "Error force leaving: Unexpected response code: 500 (agent: No node found with name 'nope')\nexit=1\n"
    );
    assert_eq!(
        ours(&server, &["force-leave", "-prune", "gone"]),
        "exit=0\n"
    );
    assert!(
        ours(&server, &["force-leave"])
            .contains("A single node name must be specified to force leave.")
    );
    assert_eq!(
        ours(&server, &["leave"]),
        "Graceful leave complete\nexit=0\n"
    );
    assert_eq!(
        ours(&server, &["reload"]),
        "Configuration reload triggered\nexit=0\n"
    );
}

#[test]
fn keys_are_listed_and_changed_as_recorded() {
    let server = FakeServer::default();
    let refusal = "2 errors occurred:\n\t* WAN error: 1/1 nodes reported failure\n\t* s1.dc1: Keyring is empty (encryption not enabled)\n\n";
    server.answer_status("GET /v1/operator/keyring?relay-factor=0", 500, refusal);
    assert_eq!(
        ours(&server, &["keyring", "-list"]),
        format!(
            "==> Gathering installed encryption keys...\nerror: Unexpected response code: 500 ({refusal})\nexit=1\n"
        )
    );
    let pools = json!([
        {"WAN": true, "Datacenter": "dc1", "Segment": "", "Keys": {"a2V5": 2}, "NumNodes": 2},
        {"WAN": false, "Datacenter": "dc1", "Segment": "", "Keys": {"a2V5": 3, "b2xk": 1}, "NumNodes": 3,
            "Messages": {"s3": "slow"}},
    ]);
    server.answer(
        "GET /v1/operator/keyring?relay-factor=2&local-only=true",
        &pools,
    );
    assert_eq!(
        ours(
            &server,
            &["keyring", "-list", "-relay-factor=2", "-local-only"]
        ),
        "\
==> Gathering installed encryption keys...

WAN:
  a2V5 [2/2]

dc1 (LAN):
  ===> s3: slow
  a2V5 [3/3]
  b2xk [1/3]
exit=0
"
    );
    for (flag, method, text) in [
        (
            "-install=b2xk",
            "POST",
            "==> Installing new gossip encryption key...\n",
        ),
        (
            "-use=b2xk",
            "PUT",
            "==> Changing primary gossip encryption key...\n",
        ),
        (
            "-remove=b2xk",
            "DELETE",
            "==> Removing gossip encryption key...\n",
        ),
    ] {
        let request = format!("{method} /v1/operator/keyring?relay-factor=0");
        server.answer_status(&request, 200, "");
        assert_eq!(ours(&server, &["keyring", flag]), format!("{text}exit=0\n"));
        assert_eq!(server.bodies(&request), [json!({"Key": "b2xk"})]);
    }
    let wrong = |args: &[&str], text: &str| {
        let told = ours(&server, &[&["keyring"], args].concat());
        assert!(told.contains(text) && told.ends_with("exit=1\n"), "{told}");
    };
    wrong(&["-list", "-use=x"], "Only a single action is allowed");
    wrong(&["-install=x", "-use=x"], "Only a single action is allowed");
    wrong(
        &["-list", "-relay-factor=6"],
        "Invalid relay factor: 6, must be in range: [0, 5]",
    );
    wrong(
        &["-use=x", "-local-only"],
        "local-only can only be set for list requests",
    );
    wrong(&[], "-install=KEY");
}

#[test]
fn new_keys_have_32_bytes() {
    use base64::Engine as _;
    let keys = [(); 2].map(|()| ours(&FakeServer::default(), &["keygen"]));
    assert_ne!(keys[0], keys[1]);
    let key = keys[0].lines().next().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(key)
        .unwrap();
    assert_eq!(bytes.len(), 32);
}

#[test]
fn figures_are_listed_in_order() {
    let server = FakeServer::default();
    let stats = json!({"raft": {"term": "2", "state": "Leader"}, "build": {"version": "1.8.7"}});
    server.answer("GET /v1/agent/self", &json!({"Stats": stats}));
    assert_eq!(
        ours(&server, &["info"]),
        "build:\n\tversion = 1.8.7\nraft:\n\tstate = Leader\n\tterm = 2\nexit=0\n"
    );
}

#[test]
fn round_trips_are_estimated_as_recorded() {
    let server = FakeServer::default();
    let place = |x: f64, height: f64, adjustment: f64| {
        json!({"Vec": [x, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        "Error": 0.3, "Adjustment": adjustment, "Height": height})
    };
    let node =
        |name: &str, coordinate: Value| json!({"Node": name, "Segment": "", "Coord": coordinate});
    let nodes = json!([
        node("a", place(0.001, 0.0001, 0.00005)),
        node("b", place(0.003, 0.0002, -0.0001))
    ]);
    server.answer("GET /v1/coordinate/nodes", &nodes);
    let area = |datacenter: &str, node: Value| json!({"Datacenter": datacenter, "AreaID": "wan", "Coordinates": [node]});
    let areas = json!([
        area("dc1", node("s.1", place(0.0, 0.001, 0.0))),
        area("dc2", node("s2", place(0.004, 0.001, 0.0)))
    ]);
    server.answer("GET /v1/coordinate/datacenters", &areas);
    server.answer(
        "GET /v1/agent/self",
        &json!({"Config": {"NodeName": "s.1", "Datacenter": "dc1"}}),
    );
    assert_eq!(
        ours(&server, &["rtt", "a", "B"]),
        "Estimated a <-> B rtt: 2.250 ms (using LAN coordinates)\nexit=0\n"
    );
    let expected = "Estimated s2.dc2 <-> s.1.dc1 rtt: 6.000 ms (using WAN coordinates)\nexit=0\n";
    assert_eq!(
        ours(&server, &["rtt", "-wan", "s2.dc2", "s.1.dc1"]),
        expected
    );
    assert_eq!(ours(&server, &["rtt", "-wan", "s2.dc2"]), expected);
    let wrong = |args: &[&str], text: &str| assert!(ours(&server, args).contains(text), "{args:?}");
    wrong(
        &["rtt", "a"],
        "Could not find a coordinate for node \"s.1\"",
    );
    wrong(
        &["rtt", "-wan", "a", "b"],
        "<node name>.<datacenter> with -wan",
    );
    wrong(&["rtt"], "One or two node names must be specified");
}
