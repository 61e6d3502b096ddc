use super::catalog::{View, plan, serf_health};
use super::servers::{Autopilot, Pool, Step};
use super::*;
use crate::consensus::{Peer, PeerStatus};
use crate::gossip::{Member, MemberStatus};
use crate::model::query::RegisterRequest;
use crate::model::{CheckStatus, NodeName};
use crate::router::fixture::{alive, member, with};
use crate::store::{Command, Key, State};
use std::collections::BTreeSet;

fn own() -> OwnServer {
    OwnServer {
        id: alive("s1", 1).tags.get("id").unwrap().into(),
        name: "s1".into(),
        datacenter: "dc1".into(),
        lan: [127, 0, 0, 1].into(),
        tagged: [("wan_ipv4".to_owned(), "127.0.0.1".to_owned())].into(),
        meta: Default::default(),
        rpc_port: 8300,
        version: "1.8.7".to_owned(),
    }
}

/// The catalog and the pool of one story.
#[derive(Default)]
struct Story {
    state: State,
    members: Vec<Member>,
    seen: BTreeSet<Key>,
    settled: bool,
}

impl Story {
    fn new(members: impl IntoIterator<Item = Member>) -> Self {
        let mut story = Self::default();
        story.members.push(alive("s1", 1));
        story.members.extend(members);
        story
    }

    fn plan(&self) -> Vec<Command> {
        let view = View {
            state: &self.state,
            members: &self.members,
            own: &own().registration(),
            seen: &self.seen,
            settled: self.settled,
        };
        plan(&view).into_iter().flatten().collect()
    }

    /// Carries out the plan, and proves that there is nothing left to do then.
    fn settle(&mut self) -> usize {
        let plan = self.plan();
        for command in &plan {
            self.write(command);
        }
        let left = self.plan();
        assert!(left.is_empty(), "planned again: {left:?}");
        plan.len()
    }

    fn write(&mut self, command: &Command) {
        let index = self.state.last_index() + 1;
        self.state.apply(index, command).result.unwrap();
    }

    fn status(&self, node: &str) -> Option<CheckStatus> {
        Some(self.state.check(node, "serfHealth")?.status)
    }

    /// The member with this name gets another status, or goes.
    fn becomes(&mut self, name: &str, status: Option<MemberStatus>) {
        self.seen
            .extend(self.members.iter().map(|m| Key::of(m.name.shared())));
        match status {
            Some(status) => {
                let mut members = self.members.iter_mut();
                members.find(|m| m.name == *name).unwrap().status = status;
            }
            None => self.members.retain(|m| m.name != *name),
        }
    }
}

fn client(name: &str, n: u8) -> Member {
    let mut member = with(alive(name, n), "role", "node");
    member.tags.remove("port");
    member
}

fn names(state: &State) -> Vec<&str> {
    state.nodes().map(|node| node.node.as_str()).collect()
}

#[test]
fn members_come_into_the_catalog() {
    let serf = Member {
        tags: Default::default(),
        ..alive("serf", 8)
    };
    let mut story = Story::new([alive("s2", 2), client("web-1", 7), serf]);
    assert_eq!(story.settle(), 4);
    assert_eq!(names(&story.state), ["s1", "s2", "serf", "web-1"]);
    for node in ["s1", "s2", "serf", "web-1"] {
        assert_eq!(story.status(node), Some(CheckStatus::Passing), "{node}");
    }
    let servers = story.state.check_service_nodes("consul");
    let servers: Vec<_> = servers
        .iter()
        .map(|row| {
            (
                row.node.as_ref().unwrap().address.as_str(),
                row.service.as_ref().unwrap(),
            )
        })
        .collect();
    assert_eq!(servers.len(), 2);
    assert_eq!((servers[1].0, servers[1].1.port), ("127.0.0.2", 8300));
    assert_eq!(servers[1].1.meta["version"], "1.8.7");
    assert!(story.state.services_on("web-1").is_empty());
    // Own addresses by tag are known here; those of others come from their agents, and stay.
    assert_eq!(
        story.state.node("s1").unwrap().tagged_addresses["wan_ipv4"],
        "127.0.0.1"
    );
    let node = story.state.node("s2").unwrap().clone();
    let tagged = RegisterRequest {
        id: node.id.clone(),
        node: node.node.clone(),
        address: node.address.clone(),
        datacenter: node.datacenter.clone(),
        tagged_addresses: [("lan".to_owned(), "127.0.0.2".to_owned())].into(),
        ..RegisterRequest::default()
    };
    story.write(&Command::Register(Box::new(tagged)));
    assert_eq!(story.settle(), 0);
}

/// The agent of a node and the leader both register it when it joins, in whatever order.
#[test]
fn what_a_node_registers_of_itself_stays() {
    let mut story = Story::new([alive("s2", 2)]);
    let plan = story.plan();
    let own = RegisterRequest {
        id: alive("s2", 2).tags.get("id").unwrap().into(),
        node: "s2".into(),
        address: "127.0.0.2".into(),
        tagged_addresses: [("lan".to_owned(), "127.0.0.2".to_owned())].into(),
        ..RegisterRequest::default()
    };
    story.write(&Command::Register(Box::new(own)));
    for command in plan {
        story.write(&command);
    }
    let node = story.state.node("s2").unwrap();
    assert_eq!(node.tagged_addresses["lan"], "127.0.0.2");
    assert_eq!(story.status("s2"), Some(CheckStatus::Passing));
    assert_eq!(story.settle(), 0);
}

#[test]
fn rows_that_somebody_changes_are_put_right() {
    let mut story = Story::new([alive("s2", 2), client("web-1", 7)]);
    story.settle();
    let remove = |node: &str, service: &str| Command::Deregister {
        node: node.into(),
        service_id: service.into(),
        check_id: "".into(),
    };
    for (node, service) in [
        ("s1", "consul"),
        ("s2", "consul"),
        ("web-1", ""),
        ("s2", ""),
    ] {
        story.write(&remove(node, service));
        assert_eq!(story.settle(), 1, "{node} {service}");
    }
    let check = serf_health(&"web-1".into(), CheckStatus::Critical);
    let request = RegisterRequest {
        node: "web-1".into(),
        skip_node_update: true,
        check: Some(check),
        ..RegisterRequest::default()
    };
    story.write(&Command::Register(Box::new(request)));
    assert_eq!(story.settle(), 1);
    assert_eq!(story.status("web-1"), Some(CheckStatus::Passing));
}

#[test]
fn failed_members_are_critical_and_those_that_left_are_gone() {
    let mut story = Story::new([alive("s2", 2), client("web-1", 7)]);
    story.settle();
    story.becomes("web-1", Some(MemberStatus::Failed));
    assert_eq!(story.settle(), 1);
    assert_eq!(story.status("web-1"), Some(CheckStatus::Critical));
    story.becomes("web-1", Some(MemberStatus::Alive));
    story.settle();
    assert_eq!(story.status("web-1"), Some(CheckStatus::Passing));
    story.becomes("web-1", Some(MemberStatus::Left));
    story.becomes("s2", Some(MemberStatus::Left));
    assert_eq!(story.settle(), 2);
    assert_eq!(names(&story.state), ["s1"]);
    // A leaving leader does not remove itself: its follower will.
    story.becomes("s1", Some(MemberStatus::Left));
    assert_eq!(story.settle(), 0);
}

#[test]
fn a_client_that_synchronises_after_it_left_does_not_stay() {
    let mut member = client("web-1", 7);
    member
        .tags
        .set("id", "0797b260-056a-bedb-26b3-68ac88e1bfd1");
    let mut story = Story::new([member]);
    story.settle();
    story.becomes("web-1", Some(MemberStatus::Left));
    story.settle();
    let late = |id: &str| {
        Command::Register(Box::new(RegisterRequest {
            id: id.into(),
            node: "web-1".into(),
            address: "10.0.0.7".to_owned(),
            ..RegisterRequest::default()
        }))
    };
    story.write(&late("0797b260-056a-bedb-26b3-68ac88e1bfd1"));
    assert_eq!(story.settle(), 1);
    assert_eq!(names(&story.state), ["s1"]);
    // Another node of that name is nobody's business.
    story.write(&late("11111111-056a-bedb-26b3-68ac88e1bfd1"));
    assert_eq!(story.settle(), 0);
}

#[test]
fn a_failed_member_without_a_node_is_not_brought_back() {
    let mut story = Story::new([member("s2", 2, MemberStatus::Failed)]);
    assert_eq!(story.settle(), 1, "the own node alone");
    assert_eq!(names(&story.state), ["s1"]);
}

#[test]
fn reaped_members_go_at_once_and_unknown_ones_after_a_while() {
    let mut story = Story::new([client("web-1", 7), client("web-2", 8)]);
    story.settle();
    story.becomes("web-1", None);
    assert_eq!(story.settle(), 1);
    assert_eq!(names(&story.state), ["s1", "web-2"]);
    // After a restart the pool does not know web-2 yet.
    story.members.truncate(1);
    story.seen.clear();
    assert_eq!(story.settle(), 0);
    story.settled = true;
    assert_eq!(story.settle(), 1);
    assert_eq!(names(&story.state), ["s1"]);
}

/// Gateways and other nodes that somebody registered through the API are not the pool's.
#[test]
fn nodes_without_serf_health_are_left_alone() {
    let mut story = Story::new([member("gone", 3, MemberStatus::Left)]);
    for node in ["gateway", "gone"] {
        let request = RegisterRequest {
            node: node.into(),
            address: "10.0.0.1".into(),
            ..RegisterRequest::default()
        };
        story.write(&Command::Register(Box::new(request)));
    }
    story.settled = true;
    story.settle();
    assert_eq!(names(&story.state), ["gateway", "gone", "s1"]);
}

#[test]
fn a_name_passes_to_the_node_that_the_pool_gave_it_to() {
    let mut story = Story::new([client("web-1", 7)]);
    story.settle();
    story.members[1] = client("web-1", 9);
    assert_eq!(
        story.settle(),
        2,
        "the old holder fails, the new one is registered"
    );
    let node = story.state.node("web-1").unwrap();
    assert_eq!(
        (node.address.as_str(), node.id.as_str().ends_with("09")),
        ("127.0.0.9", true)
    );
    assert_eq!(story.status("web-1"), Some(CheckStatus::Passing));
}

#[test]
fn an_id_follows_its_node_to_a_new_name() {
    let mut story = Story::new([client("old", 7)]);
    story.settle();
    story.becomes("old", Some(MemberStatus::Failed));
    story.members.push(client("new", 7));
    for command in story.plan() {
        story.write(&command);
    }
    story.settle();
    assert_eq!(names(&story.state), ["new", "s1"]);
}

#[test]
fn a_server_that_became_a_client_is_no_server_in_the_catalog() {
    let mut story = Story::new([alive("s2", 2)]);
    story.settle();
    story.members[1] = client("s2", 2);
    story.settle();
    assert_eq!(story.state.check_service_nodes("consul").len(), 1);
    assert_eq!(names(&story.state), ["s1", "s2"]);
}

fn peer(name: &str, n: u8) -> Peer {
    Peer {
        id: alive(name, n).tags.get("id").unwrap().into(),
        node: name.into(),
        address: format!("127.0.0.{n}:8300"),
    }
}

fn voters(names: &[(&str, u8)]) -> Vec<PeerStatus> {
    let status = |(name, n): &(&str, u8)| PeerStatus {
        peer: peer(name, *n),
        voter: true,
        leader: *n == 1,
        last_log: Some(1000),
    };
    names.iter().map(status).collect()
}

struct Raft {
    members: Vec<Member>,
    peers: Vec<PeerStatus>,
    seen: BTreeSet<Key>,
}

impl Raft {
    fn new(members: &[Member], peers: &[(&str, u8)]) -> Self {
        let members = [&[alive("s1", 1)], members].concat();
        let peers = voters(&[&[("s1", 1)], peers].concat());
        Self {
            members,
            peers,
            seen: BTreeSet::new(),
        }
    }

    fn ask<T>(&self, ask: impl FnOnce(&Pool<'_>) -> T) -> T {
        ask(&Pool {
            datacenter: &"dc1".into(),
            own: &peer("s1", 1).id,
            members: &self.members,
            peers: &self.peers,
            seen: &self.seen,
        })
    }

    fn steps(&self) -> Vec<Step> {
        self.ask(|pool| pool.steps())
    }

    fn dead(&self, min_quorum: u32) -> Vec<String> {
        let autopilot = Autopilot {
            min_quorum,
            ..Autopilot::default()
        };
        let dead = self.ask(|pool| pool.dead(&autopilot)).into_iter();
        dead.map(|peer| peer.node.to_string()).collect()
    }
}

fn removed(steps: Vec<Step>) -> Vec<(NodeName, &'static str)> {
    let steps = steps.into_iter().filter_map(|step| match step {
        Step::Remove { peer, reason } => Some((peer.node, reason)),
        Step::Add(_) | Step::Promote(_) => None,
    });
    steps.collect()
}

#[test]
fn live_servers_are_added_and_nobody_else() {
    let other = with(alive("s4", 4), "dc", "dc2");
    let members = [
        alive("s2", 2),
        member("s3", 3, MemberStatus::Failed),
        other,
        client("c", 9),
    ];
    let raft = Raft::new(&members, &[]);
    assert_eq!(raft.steps(), [Step::Add(peer("s2", 2))]);
    let mut raft = Raft::new(&members, &[("s2", 2), ("s3", 3)]);
    assert_eq!(raft.steps(), []);
    raft.peers[1].voter = false;
    assert_eq!(raft.steps(), [Step::Promote(peer("s2", 2))]);
}

#[test]
fn a_server_votes_when_it_has_nearly_all_of_the_log() {
    let mut raft = Raft::new(&[alive("s2", 2)], &[("s2", 2)]);
    let autopilot = Autopilot::default();
    for (last_log, caught_up) in [(None, false), (Some(749), false), (Some(750), true)] {
        raft.peers[1].last_log = last_log;
        let answer = raft.ask(|pool| pool.is_caught_up(&peer("s2", 2), &autopilot));
        assert_eq!(answer, caught_up, "{last_log:?}");
    }
}

#[test]
fn a_server_that_moved_gets_its_new_address() {
    let moved = Member {
        addr: std::net::IpAddr::from([127, 0, 0, 22]).into(),
        ..alive("s2", 2)
    };
    let expected = Peer {
        address: "127.0.0.22:8300".to_owned(),
        ..peer("s2", 2)
    };
    assert_eq!(
        Raft::new(&[moved], &[("s2", 2)]).steps(),
        [Step::Add(expected)]
    );
}

#[test]
fn servers_that_left_were_reaped_or_replaced_are_removed() {
    let left = member("s2", 2, MemberStatus::Left);
    let raft = Raft::new(&[left], &[("s2", 2)]);
    assert_eq!(removed(raft.steps()), [("s2".into(), "it left")]);
    let mut raft = Raft::new(&[], &[("s2", 2)]);
    assert_eq!(raft.steps(), [], "the pool may not know it yet");
    raft.seen.insert(Key::from("s2"));
    assert_eq!(removed(raft.steps()), [("s2".into(), "it was reaped")]);
    // A new disk in the same machine: another id at the same address.
    let fresh = with(alive("s2", 2), "id", "00000000-0000-4000-8000-0000000000ff");
    let raft = Raft::new(&[fresh], &[("s2", 2)]);
    let steps = raft.steps();
    assert_eq!(
        removed(steps.clone()),
        [("s2".into(), "another server has its address")]
    );
    assert!(matches!(&steps[1], Step::Add(peer) if peer.id.as_str().ends_with("ff")));
    // The leader never removes itself.
    let mut raft = Raft::new(&[], &[]);
    raft.members[0].status = MemberStatus::Left;
    assert_eq!(removed(raft.steps()), []);
}

#[test]
fn two_servers_in_bootstrap_mode_are_not_brought_together() {
    let mut raft = Raft::new(
        &[with(alive("s2", 2), "bootstrap", "1"), alive("s3", 3)],
        &[],
    );
    raft.members[0] = with(alive("s1", 1), "bootstrap", "1");
    assert_eq!(raft.steps(), [Step::Add(peer("s3", 3))]);
    assert_eq!(raft.ask(|pool| pool.rivals()), ["s1", "s2"]);
}

#[test]
fn dead_servers_are_removed_while_more_than_half_stay() {
    let failed = |name, n| member(name, n, MemberStatus::Failed);
    let all = [("s2", 2), ("s3", 3), ("s4", 4), ("s5", 5)];
    let live = [alive("s2", 2), alive("s3", 3)];
    let one = Raft::new(
        &[&live[..], &[alive("s4", 4), failed("s5", 5)]].concat(),
        &all,
    );
    assert_eq!(one.dead(0), ["s5"]);
    assert_eq!(one.dead(4), ["s5"]);
    assert!(one.dead(5).is_empty(), "min_quorum");
    let two = Raft::new(
        &[&live[..], &[failed("s4", 4), failed("s5", 5)]].concat(),
        &all,
    );
    assert_eq!(two.dead(0), ["s4", "s5"]);
    let unknown = Raft::new(&[&live[..], &[alive("s4", 4)]].concat(), &all);
    assert_eq!(unknown.dead(0), ["s5"], "only Raft knows it");
    let three = [
        alive("s2", 2),
        failed("s3", 3),
        failed("s4", 4),
        failed("s5", 5),
    ];
    assert!(
        Raft::new(&three, &all).dead(0).is_empty(),
        "too many at once"
    );
    let half = Raft::new(&[failed("s2", 2)], &[("s2", 2)]);
    assert!(half.dead(0).is_empty(), "one of two");
    let off = Autopilot {
        cleanup_dead_servers: false,
        ..Autopilot::default()
    };
    assert!(one.ask(|pool| pool.dead(&off)).is_empty());
}
