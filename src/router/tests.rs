use super::*;
use crate::gossip::Tags;
use crate::gossip::server_tags::{AclMode, BuildVersion};

mod decisions;

use crate::router::fixture::{alive, member, with};

fn local() -> Datacenter {
    "dc1".into()
}

fn router(members: &[Member]) -> Router {
    let mut router = Router::new(local());
    router.update(&Area::Lan, members);
    router
}

fn names(router: &Router, datacenter: &str) -> Vec<String> {
    let servers = router.servers(&datacenter.into()).into_iter();
    servers.map(|server| server.name.to_string()).collect()
}

#[test]
fn the_lookup_follows_the_members() {
    let (a, b, c) = (alive("a", 1), alive("b", 2), alive("c", 3));
    let client = with(member("client", 9, MemberStatus::Alive), "role", "node");
    let mut router = router(&[a.clone(), b.clone(), c.clone(), client]);
    assert_eq!(names(&router, "dc1"), ["a", "b", "c"]);
    let b_id: NodeId = b.tags.get("id").unwrap().into();
    let at = "127.0.0.2:8300".parse().unwrap();
    assert_eq!(router.server_by_id(&b_id).unwrap().name, "b");
    assert_eq!(router.server_by_name(&"B".into()).unwrap().rpc, at);
    assert_eq!(router.server_by_address(&at).unwrap().name, "b");
    // b comes back with another address: nothing of the old one stays behind.
    let moved = Member {
        addr: std::net::IpAddr::from([127, 0, 0, 22]).into(),
        ..b
    };
    router.update(&Area::Lan, &[a, moved, c]);
    assert_eq!(router.server_by_address(&at), None);
    let at = "127.0.0.22:8300".parse().unwrap();
    assert_eq!(router.server_by_address(&at).unwrap().name, "b");
    assert_eq!(router.server_by_id(&b_id).unwrap().rpc, at);
}

#[test]
fn failed_servers_are_asked_last_and_are_not_in_the_lookup() {
    let failed = |name, n| member(name, n, MemberStatus::Failed);
    let gone = member("gone", 4, MemberStatus::Left);
    let router = router(&[failed("a", 1), alive("b", 2), failed("c", 3), gone]);
    assert_eq!(names(&router, "dc1"), ["b", "a", "c"]);
    let lookup: Vec<_> = router.lookup().map(|server| server.name.as_str()).collect();
    assert_eq!(lookup, ["b"]);
    assert!(router.server_by_name(&"a".into()).is_none());
}

#[test]
fn a_failed_request_rotates_the_servers_if_it_went_to_the_first() {
    let members = [alive("a", 1), alive("b", 2), alive("c", 3)];
    let mut router = router(&members);
    router.notify_failed(&local(), &"b".into());
    assert_eq!(names(&router, "dc1"), ["a", "b", "c"]);
    router.notify_failed(&local(), &"a".into());
    assert_eq!(names(&router, "dc1"), ["b", "c", "a"]);
    // The order outlives a change of the members; new ones come last.
    let [a, b, _] = members;
    router.update(&Area::Lan, &[a, alive("aa", 5), b]);
    assert_eq!(names(&router, "dc1"), ["b", "a", "aa"]);
}

#[test]
fn the_wide_pool_knows_other_datacenters() {
    let wide = |name: &str, dc: &str, n| {
        let mut member = with(alive(name, n), "dc", dc);
        member.name = format!("{name}.{dc}").into();
        member
    };
    let mut router = router(&[alive("a", 1)]);
    assert!(router.has_datacenter(&local()) && !router.has_datacenter(&"dc2".into()));
    let stranger = with(alive("no-suffix", 8), "dc", "dc2");
    // A node name may have dots itself (case C006).
    let members = [wide("a", "dc1", 1), wide("s.x.org", "dc2", 7), stranger];
    router.update(&Area::Wan, &members);
    assert_eq!(names(&router, "dc2"), ["s.x.org"]);
    assert_eq!(names(&router, "dc1"), ["a"], "counted once");
    router.update(&Area::Wan, &[]);
    assert!(!router.has_datacenter(&"dc2".into()));
    assert_eq!(router.datacenters(), BTreeSet::from([local()]));
}

#[test]
fn members_of_other_datacenters_and_segments_are_no_servers_of_this_one() {
    let other = with(alive("b", 2), "dc", "dc2");
    let segment = with(alive("c", 3), "segment", "alpha");
    assert_eq!(
        names(&router(&[alive("a", 1), other, segment]), "dc1"),
        ["a"]
    );
}

/// C009: one old server keeps a feature off. C004: what was used once stays on.
#[test]
fn a_feature_needs_every_server() {
    let old = |status| {
        let mut member = member("old", 2, status);
        member.tags.remove("ft_fs");
        member
    };
    let supports = |members: &[Member]| router(members).all_support(FEDERATION_STATES, &[&local()]);
    assert!(!supports(&[]), "nobody is no proof");
    assert!(supports(&[alive("a", 1)]));
    assert!(!supports(&[alive("a", 1), old(MemberStatus::Alive)]));
    for gone in [
        MemberStatus::Failed,
        MemberStatus::Left,
        MemberStatus::Leaving,
    ] {
        assert!(supports(&[alive("a", 1), old(gone)]), "{gone:?}");
    }
    let blocked = router(&[alive("a", 1), old(MemberStatus::Alive)]);
    assert_eq!(blocked.without(FEDERATION_STATES, &local())[0].name, "old");

    let gate = Gate::default();
    assert!(!gate.is_open(false, || false));
    assert!(gate.is_open(false, || true));
    assert!(gate.is_open(false, || false), "sticky");
    assert!(
        Gate::default().is_open(true, || false),
        "stored rows are proof"
    );
}

#[test]
fn a_failed_server_of_another_datacenter_counts_until_it_is_gone() {
    let wide = |status| {
        let mut member = with(member("s", 7, status), "dc", "dc2");
        member.name = "s.dc2".into();
        member.tags.remove("ft_fs");
        member
    };
    let both = |status| {
        let mut router = router(&[alive("a", 1)]);
        router.update(&Area::Wan, &[wide(status)]);
        router.all_support(FEDERATION_STATES, &[&local(), &"dc2".into()])
    };
    assert!(!both(MemberStatus::Alive) && !both(MemberStatus::Failed));
    assert!(
        !both(MemberStatus::Left),
        "a datacenter without a server is no proof"
    );
}

#[test]
fn the_version_gate_is_as_the_oldest_server() {
    let members = [alive("a", 1), with(alive("b", 2), "build", "1.7.2:abc")];
    let at_least = |minor| router(&members).all_at_least(BuildVersion(1, minor, 0), &[&local()]);
    assert!(at_least(7) && !at_least(8));
}

#[test]
fn watchers_wake_on_changes_alone() {
    let servers = Servers::new(Router::new(local()));
    let mut watch = servers.watch();
    servers.update(&Area::Lan, &[alive("a", 1)]);
    assert!(watch.has_changed().unwrap());
    watch.mark_unchanged();
    servers.update(&Area::Lan, &[alive("a", 1)]);
    assert!(!watch.has_changed().unwrap());
    assert!(servers.read(|router| router.head(&local()).is_some()));
}
