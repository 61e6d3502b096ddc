//! What the catalog must say about the members of the pool (pure).
//!
//! The plan holds only what differs: a catalog that is right gives an empty one, whoever made it so.

use crate::gossip::{Member, MemberStatus, ServerTags};
use crate::model::catalog::{CONSUL_SERVICE, StringMap};
use crate::model::check::SERF_HEALTH;
use crate::model::query::RegisterRequest;
use crate::model::{CheckStatus, Datacenter, HealthCheck, Node, NodeId, NodeName, NodeService};
use crate::store::{Command, Key, State};
use std::collections::BTreeSet;

/// The check's name and outputs, as Consul writes them.
const CHECK_NAME: &str = "Serf Health Status";
const ALIVE: &str = "Agent alive and reachable";
const FAILED: &str = "Agent not live or unreachable";

/// What the plan is made from.
pub(crate) struct View<'a> {
    /// The catalog.
    pub(crate) state: &'a State,
    /// All members of the pool.
    pub(crate) members: &'a [Member],
    /// What this server registers of itself: more than its gossip says.
    pub(crate) own: &'a RegisterRequest,
    /// Members that were seen in this term: if one is missing now, it was reaped.
    pub(crate) seen: &'a BTreeSet<Key>,
    /// Whether the pool had time to find its members again, so that one never seen is gone as well.
    pub(crate) settled: bool,
}

/// The commands that are needed, by node: those of one node in order, nodes in any order.
pub(crate) fn plan(view: &View<'_>) -> Vec<Vec<Command>> {
    let members = view.members.iter().map(|member| match member.status {
        MemberStatus::Alive | MemberStatus::Leaving => alive(view, member),
        MemberStatus::Failed => failed(view, member),
        MemberStatus::Left => left(view, member),
        MemberStatus::None => Vec::new(),
    });
    let due: Vec<_> = members
        .chain(reaped(view))
        .filter(|c| !c.is_empty())
        .collect();
    due
}

fn alive(view: &View<'_>, member: &Member) -> Vec<Command> {
    let node = view.state.node(member.name.as_str());
    let request = match is_own(view, &member.name) {
        true => view.own.clone(),
        false => match registration(&view.own.datacenter, member, node.map(|node| &**node)) {
            Some(request) => request,
            None => return Vec::new(),
        },
    };
    let mut commands = Vec::new();
    // The pool has given the name to this node, so its former holder is not there. The catalog gives the name up only
    // when the check says so.
    if let Some(other) = node.filter(|node| is_another(node, &request.id)) {
        commands.extend(critical(view, other));
    }
    let stale_server = request.service.is_none()
        && view
            .state
            .service(member.name.as_str(), CONSUL_SERVICE)
            .is_some();
    let register = Command::Register(Box::new(request));
    if changes(view.state, &register) {
        commands.push(register);
    }
    if stale_server {
        commands.push(Command::Deregister {
            node: member.name.clone(),
            service_id: CONSUL_SERVICE.into(),
            check_id: "".into(),
        });
    }
    commands
}

fn failed(view: &View<'_>, member: &Member) -> Vec<Command> {
    let node = view.state.node(member.name.as_str());
    match node.filter(|node| !is_another(node, &id_of(member)) && !is_own(view, &member.name)) {
        Some(node) => critical(view, node).into_iter().collect(),
        None => Vec::new(),
    }
}

/// A member that left takes its node along, unless somebody else registered a node of that name since. A client agent
/// that is about to end may synchronise once more after it left: the id tells that it is still the same node.
fn left(view: &View<'_>, member: &Member) -> Vec<Command> {
    let name = member.name.as_str();
    let id = id_of(member);
    let node = view.state.node(name);
    let ours = node.is_some_and(|node| {
        let same = !id.is_empty() && node.id.as_str().eq_ignore_ascii_case(id.as_str());
        same || !is_another(node, &id) && view.state.check(name, SERF_HEALTH).is_some()
    });
    match ours && !is_own(view, &member.name) {
        true => vec![deregister(&member.name)],
        false => Vec::new(),
    }
}

/// Nodes that came from the pool and are no member any more.
fn reaped<'a>(view: &'a View<'_>) -> impl Iterator<Item = Vec<Command>> + 'a {
    let members: BTreeSet<Key> = view
        .members
        .iter()
        .map(|m| Key::of(m.name.shared()))
        .collect();
    let nodes = view.state.nodes().filter(move |node| {
        let key = Key::of(node.node.shared());
        !members.contains(&key) && (view.settled || view.seen.contains(&key))
    });
    let from_pool = nodes.filter(|node| {
        let name = &node.node;
        !is_own(view, name) && view.state.check(name.as_str(), SERF_HEALTH).is_some()
    });
    from_pool.map(|node| vec![deregister(&node.node)])
}

/// What the catalog is to hold about a member that is there. Addresses by tag and metadata come from the node itself,
/// when its agent synchronises them: they stay as they are.
fn registration(
    datacenter: &Datacenter,
    member: &Member,
    node: Option<&Node>,
) -> Option<RegisterRequest> {
    let server = ServerTags::parse(&member.tags).ok();
    let (id, address) = (id_of(member), member.addr.ip()?.to_string());
    // The node's own agent may register it at this very moment, with more than is known here: what is right stays.
    let is_right = node.is_none_or(|node| node.id == id && node.address == address);
    let kept = node.filter(|node| !is_another(node, &id_of(member)));
    Some(RegisterRequest {
        datacenter: datacenter.clone(),
        id,
        node: member.name.clone(),
        address,
        skip_node_update: is_right,
        tagged_addresses: kept.map_or_else(StringMap::new, |node| node.tagged_addresses.clone()),
        node_meta: kept.map_or_else(StringMap::new, |node| node.meta.clone()),
        service: server.map(|server| server_service(member, &server)),
        check: Some(serf_health(&member.name, CheckStatus::Passing)),
        ..RegisterRequest::default()
    })
}

fn server_service(member: &Member, server: &ServerTags) -> NodeService {
    let meta = [
        ("non_voter", server.non_voter.to_string()),
        ("raft_version", server.raft_vsn.to_string()),
        ("serf_protocol_current", member.protocol_cur.to_string()),
        ("serf_protocol_max", member.protocol_max.to_string()),
        ("serf_protocol_min", member.protocol_min.to_string()),
        ("version", server.build.to_string()),
    ];
    NodeService {
        id: CONSUL_SERVICE.into(),
        service: CONSUL_SERVICE.into(),
        port: server.port,
        meta: meta
            .map(|(key, value)| (key.to_owned(), value))
            .into_iter()
            .collect(),
        weights: Some(crate::model::Weights::default()),
        ..NodeService::default()
    }
}

/// The check that says whether a node's agent is there.
pub(crate) fn serf_health(node: &NodeName, status: CheckStatus) -> HealthCheck {
    let passing = status == CheckStatus::Passing;
    HealthCheck {
        node: node.clone(),
        check_id: SERF_HEALTH.into(),
        name: CHECK_NAME.to_owned(),
        status,
        output: if passing { ALIVE } else { FAILED }.to_owned(),
        ..HealthCheck::default()
    }
}

/// Sets the check of a node to critical and leaves the rest of it alone; `None` if it is so already.
fn critical(view: &View<'_>, node: &Node) -> Option<Command> {
    let check = serf_health(&node.node, CheckStatus::Critical);
    let now = view.state.check(node.node.as_str(), SERF_HEALTH);
    if now.is_some_and(|now| now.status == CheckStatus::Critical) {
        return None;
    }
    Some(Command::Register(Box::new(RegisterRequest {
        datacenter: node.datacenter.clone(),
        id: node.id.clone(),
        node: node.node.clone(),
        address: node.address.clone(),
        check: Some(check),
        skip_node_update: true,
        ..RegisterRequest::default()
    })))
}

fn deregister(node: &NodeName) -> Command {
    Command::Deregister {
        node: node.clone(),
        service_id: "".into(),
        check_id: "".into(),
    }
}

fn id_of(member: &Member) -> NodeId {
    member.tags.get("id").unwrap_or_default().into()
}

/// Whether the node in the catalog is another one than the member with its name.
fn is_another(node: &Node, id: &NodeId) -> bool {
    !node.id.is_empty() && !id.is_empty() && !node.id.as_str().eq_ignore_ascii_case(id.as_str())
}

fn is_own(view: &View<'_>, name: &NodeName) -> bool {
    Key::of(name.shared()) == Key::of(view.own.node.shared())
}

/// Whether a command would change anything: applies it to a copy and looks for a difference.
fn changes(state: &State, command: &Command) -> bool {
    let mut trial = state.clone();
    let applied = trial.apply(state.last_index() + 1, command);
    applied.result.is_err() || !applied.topics.is_empty()
}
