use super::*;
use crate::gossip::Admission;
use crate::router::{Answer, Bootstrap, LanAdmission, SeenAcls, Upgrade, Verdict};

/// Rows of the upgrade rule: modes of the servers seen, and what they are together.
#[test]
fn the_acl_mode_of_several_servers() {
    use AclMode::{Disabled, Enabled, Legacy, Unknown};
    let cases: &[(&[&str], AclMode)] = &[
        (&["1", "1", "1"], Enabled),
        (&["1", "2", "1"], Legacy),
        (&["1", "missing"], Legacy),
        (&["1", "2", "3"], Unknown),
        (&["1", "2", "odd"], Unknown),
        (&["3", "0", "2"], Disabled),
        (&["0", "1"], Disabled),
    ];
    for (tags, expected) in cases {
        let members: Vec<_> = tags
            .iter()
            .zip(1..)
            .map(|(tag, n)| match *tag {
                "missing" => {
                    let mut member = alive(&format!("s{n}"), n);
                    member.tags.remove("acls");
                    member
                }
                tag => with(alive(&format!("s{n}"), n), "acls", tag),
            })
            .collect();
        let seen = router(&members).acls(&local());
        assert_eq!(
            seen,
            SeenAcls {
                mode: *expected,
                found: true
            },
            "{tags:?}"
        );
    }
    let left = member("s1", 1, MemberStatus::Left);
    let leaving = with(member("s2", 2, MemberStatus::Leaving), "acls", "0");
    let seen = router(&[left, leaving]).acls(&local());
    assert_eq!(
        seen,
        SeenAcls {
            mode: Enabled,
            found: false
        }
    );
}

#[test]
fn who_upgrades_to_the_new_acls() {
    use AclMode::{Disabled, Enabled, Legacy, Unknown};
    let seen = |mode| SeenAcls { mode, found: true };
    let nobody = SeenAcls {
        mode: Enabled,
        found: false,
    };
    let cases = [
        // leads, local, leader, primary, due
        (true, seen(Legacy), Legacy, None, true),
        (true, seen(Disabled), Legacy, None, false),
        (true, seen(Unknown), Legacy, None, false),
        (true, seen(Enabled), Legacy, None, false),
        (false, seen(Legacy), Enabled, None, true),
        (false, seen(Legacy), Legacy, None, false),
        (false, seen(Legacy), Unknown, None, false),
        (true, seen(Legacy), Legacy, Some(seen(Enabled)), true),
        (true, seen(Legacy), Legacy, Some(seen(Legacy)), false),
        (true, seen(Legacy), Legacy, Some(nobody), false),
        (false, seen(Legacy), Enabled, Some(seen(Unknown)), false),
        (false, seen(Legacy), Enabled, Some(seen(Enabled)), true),
    ];
    for (leads, local, leader, primary, due) in cases {
        let upgrade = Upgrade {
            leads,
            local,
            leader,
            primary,
        };
        assert_eq!(upgrade_is_due(&upgrade), due, "{upgrade:?}");
    }
}

fn asked(members: &[Member]) -> Vec<Server> {
    match bootstrap(3, &local(), members) {
        Bootstrap::Ask { servers } => servers,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_datacenter_is_formed_by_as_many_live_servers_as_expected() {
    let (a, b) = (alive("a", 3), alive("b", 2));
    let wait = |members: &[Member], have| {
        let decision = bootstrap(3, &local(), members);
        assert_eq!(decision, Bootstrap::Wait { have });
    };
    wait(&[a.clone(), b.clone()], 2);
    wait(
        &[a.clone(), b.clone(), member("c", 1, MemberStatus::Failed)],
        2,
    );
    wait(&[a.clone(), b.clone(), with(alive("c", 1), "dc", "dc2")], 2);
    wait(
        &[a.clone(), b.clone(), with(alive("c", 1), "role", "node")],
        2,
    );
    wait(
        &[a.clone(), b.clone(), with(alive("c", 1), "nonvoter", "1")],
        2,
    );
    let servers = asked(&[a, b, alive("c", 1)]);
    let names: Vec<_> = servers.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["c", "b", "a"], "by id");
}

#[test]
fn a_member_that_disagrees_blocks_it() {
    let blocked = |tag: &str, value: &str| {
        let members = [
            alive("a", 1),
            alive("b", 2),
            with(alive("c", 3), tag, value),
        ];
        match bootstrap(3, &local(), &members) {
            Bootstrap::Blocked { reason } => reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(blocked("expect", "5").contains("c expects 5 servers and this one 3"));
    assert!(blocked("bootstrap", "1").contains("c is in bootstrap mode"));
}

#[test]
fn one_server_forms_it_and_nobody_does_where_it_exists() {
    let servers = asked(&[alive("a", 1), alive("b", 2), alive("c", 3)]);
    let id = |n: usize| servers[n].id.clone();
    let answers = |own: usize, all: [Answer; 2]| {
        let others = servers.iter().enumerate().filter(|(n, _)| *n != own);
        let answers: Vec<_> = others.map(|(_, server)| server).zip(all).collect();
        conclude(&id(own), &answers)
    };
    let none = || Answer::Peers(0);
    assert_eq!(answers(0, [none(), none()]), Verdict::Form);
    for own in [1, 2] {
        let follow = Verdict::Follow { name: "a".into() };
        assert_eq!(answers(own, [none(), none()]), follow);
    }
    let exists = Verdict::Exists { name: "c".into() };
    let silent = || Answer::Silent("connection refused".to_owned());
    assert_eq!(answers(0, [silent(), Answer::Peers(3)]), exists);
    let Verdict::Again { reason } = answers(0, [silent(), none()]) else {
        panic!("formed without an answer");
    };
    assert!(reason.contains("b did not say") && reason.contains("refused"));
}

#[test]
fn the_pool_takes_members_of_its_own_datacenter_with_ids_of_their_own() {
    let own = alive("a", 1);
    let admission = LanAdmission {
        datacenter: local(),
        id: own.tags.get("id").unwrap().into(),
        node: own.name.clone(),
        allowed: vec!["127.0.0.0/28".parse().unwrap()],
    };
    let check = |members: &[Member]| admission.admit(members).err().unwrap_or_default();
    let client = with(with(alive("client", 7), "role", "node"), "port", "");
    let serf = Member {
        tags: Tags::default(),
        ..alive("serf", 8)
    };
    assert_eq!(
        check(&[own.clone(), alive("b", 2), client.clone(), serf]),
        ""
    );
    let refused = |member: Member, text: &str| {
        let said = check(&[own.clone(), alive("b", 2), member]);
        assert!(said.contains(text), "{said:?}, not {text:?}");
    };
    refused(
        with(alive("x", 9), "dc", "dc2"),
        "'x' part of wrong datacenter 'dc2'",
    );
    refused(
        with(client, "dc", "dc2"),
        "'client' part of wrong datacenter 'dc2'",
    );
    refused(with(alive("x", 9), "segment", "s"), "wrong segment 's'");
    refused(with(alive("x", 9), "port", "http"), "port");
    refused(alive("x", 16), "serf_lan_allowed_cidrs");
    refused(alive("copy", 1), "with this agent's ID");
    refused(alive("copy", 2), "with member 'b'");
    // A member that left under another name does not hold its id any more.
    assert_eq!(
        check(&[own.clone(), member("old", 1, MemberStatus::Left)]),
        ""
    );
}
