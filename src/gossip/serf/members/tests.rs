use std::net::IpAddr;

use super::MemberChange as C;
use super::MemberStatus as S;
use super::*;
use crate::gossip::wire::Versions;
use crate::gossip::wire::stream::NodeState;

const LEAVE: Want = Want::Leave { prune: false };
const PRUNE: Want = Want::Leave { prune: true };
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What happens to the member `x`.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// swim says that it lives.
    Lives,
    /// swim says that it is gone.
    Gone,
    /// Somebody says what it wants.
    Wants(Want, LamportTime),
}
use Step::*;

fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        addr: IpAddr::from([10, 0, 0, 1]).into(),
        port: 8301,
        meta: Tags::from_iter([("role", "consul")])
            .to_meta()
            .unwrap()
            .into(),
        versions: Versions::OURS,
        state: NodeState::Alive,
    }
}

fn start() -> Instant {
    std::sync::LazyLock::force(&START).to_owned()
}

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

fn take(members: &mut Members, step: Step) -> (Option<bool>, Vec<MemberChange>) {
    let name = NodeName::from("x");
    let (news, events) = match step {
        Lives => (None, vec![members.joined(&node("x"))]),
        Gone => (None, members.gone(start(), &name)),
        Wants(want, ltime) => match members.intent(start(), (&name, want), ltime, None) {
            Verdict::Old => (Some(false), Vec::new()),
            Verdict::News(events) => (Some(true), events),
            Verdict::Refute => panic!("it is not us"),
        },
    };
    (news, events.into_iter().map(|(change, _)| change).collect())
}

/// Runs the steps and expects the last status (`None` if the member is unknown) and all changes.
#[track_caller]
fn check(steps: &[Step], status: MemberStatus, changes: &[MemberChange]) -> Members {
    let mut members = Members::default();
    let mut seen = Vec::new();
    for step in steps {
        seen.extend(take(&mut members, *step).1);
    }
    let found = members.get(&"x".into());
    assert_eq!(found.map_or(S::None, |member| member.status), status);
    assert_eq!(seen, changes);
    members
}

#[test]
fn a_member_joins_fails_and_comes_back() {
    check(&[Lives], S::Alive, &[C::Join]);
    check(&[Gone], S::None, &[]);
    check(&[Lives, Gone], S::Failed, &[C::Join, C::Failed]);
    check(
        &[Lives, Gone, Gone, Lives],
        S::Alive,
        &[C::Join, C::Failed, C::Join],
    );
}

#[test]
fn a_member_that_said_so_leaves() {
    check(&[Lives, Wants(LEAVE, 3)], S::Leaving, &[C::Join]);
    let steps = [Lives, Wants(LEAVE, 3), Gone];
    check(&steps, S::Left, &[C::Join, C::Leave]);
    // The news that it is gone may be the faster one.
    let steps = [Lives, Gone, Wants(LEAVE, 3)];
    check(&steps, S::Left, &[C::Join, C::Failed, C::Leave]);
    let steps = [Lives, Wants(LEAVE, 3), Gone, Lives];
    check(&steps, S::Alive, &[C::Join, C::Leave, C::Join]);
}

#[test]
fn the_later_intent_counts_in_whichever_order_they_come() {
    let join = C::Join;
    let steps = [Lives, Wants(LEAVE, 3), Wants(Want::Join, 4)];
    check(&steps, S::Alive, &[join]);
    let steps = [Lives, Wants(Want::Join, 4), Wants(LEAVE, 3)];
    check(&steps, S::Alive, &[join]);
    let steps = [Lives, Wants(Want::Join, 4), Wants(LEAVE, 5)];
    check(&steps, S::Leaving, &[join]);
}

/// Somebody made it leave while it failed, but it came back since, and then was lost for good.
#[test]
fn who_joined_after_leaving_and_is_gone_has_failed() {
    let steps = [Lives, Wants(LEAVE, 3), Gone, Wants(Want::Join, 4)];
    check(&steps, S::Failed, &[C::Join, C::Leave, C::Failed]);
    let steps = [Lives, Wants(LEAVE, 3), Gone, Wants(Want::Join, 3)];
    check(&steps, S::Left, &[C::Join, C::Leave]);
}

#[test]
fn at_one_time_the_intent_to_leave_counts_once_the_member_is_gone() {
    let steps = [Lives, Wants(Want::Join, 3), Wants(LEAVE, 3)];
    check(&steps, S::Alive, &[C::Join]);
    let steps = [Lives, Wants(Want::Join, 3), Gone, Wants(LEAVE, 3)];
    let mut members = check(&steps, S::Left, &[C::Join, C::Failed, C::Leave]);
    assert_eq!(take(&mut members, Wants(LEAVE, 3)).0, Some(false));
}

#[test]
fn intents_about_unknown_nodes_wait_for_them() {
    let join = C::Join;
    check(&[Wants(LEAVE, 3), Lives], S::Leaving, &[join]);
    let steps = [Wants(LEAVE, 3), Wants(Want::Join, 4), Lives];
    let members = check(&steps, S::Alive, &[join]);
    assert_eq!(members.ltime(&"x".into()), 4);
    let steps = [
        Wants(Want::Join, 4),
        Wants(LEAVE, 3),
        Lives,
        Wants(LEAVE, 4),
    ];
    check(&steps, S::Alive, &[join]);
    let steps = [Wants(PRUNE, 3), Lives, Gone];
    check(&steps, S::None, &[join, C::Leave, C::Reap]);
}

#[test]
fn what_is_known_is_not_passed_on() {
    let mut members = Members::default();
    for (step, news) in [
        (Wants(LEAVE, 3), Some(true)),
        (Wants(LEAVE, 3), Some(false)),
        (Wants(Want::Join, 2), Some(false)),
        (Lives, None),
        (Wants(LEAVE, 3), Some(false)),
        // Each is passed on once, also when it changes nothing: others may know less.
        (Wants(LEAVE, 4), Some(true)),
        (Wants(LEAVE, 4), Some(false)),
        (Gone, None),
        (Wants(LEAVE, 5), Some(true)),
        (Wants(LEAVE, 5), Some(false)),
    ] {
        assert_eq!(take(&mut members, step).0, news, "{step:?}");
    }
}

#[test]
fn pruned_members_are_forgotten_once_they_are_gone() {
    let steps = [Lives, Gone, Wants(PRUNE, 3)];
    check(&steps, S::None, &[C::Join, C::Failed, C::Leave, C::Reap]);
    let steps = [Lives, Wants(LEAVE, 2), Gone, Wants(PRUNE, 3)];
    check(&steps, S::None, &[C::Join, C::Leave, C::Reap]);
    check(&[Lives, Wants(PRUNE, 3)], S::Leaving, &[C::Join]);
    let steps = [Lives, Wants(PRUNE, 3), Gone];
    check(&steps, S::None, &[C::Join, C::Leave, C::Reap]);
    let steps = [Lives, Wants(LEAVE, 2), Wants(PRUNE, 3), Gone];
    check(&steps, S::None, &[C::Join, C::Leave, C::Reap]);
    // Who refutes is not forgotten when it dies later.
    let steps = [Lives, Wants(PRUNE, 3), Wants(Want::Join, 4), Gone];
    check(&steps, S::Failed, &[C::Join, C::Failed]);
}

#[test]
fn we_refute_that_we_leave() {
    let mut members = Members::default();
    let us = NodeName::from("x");
    members.joined(&node("x"));
    let mut say = |want, ltime, refutable| members.intent(start(), (&us, want), ltime, refutable);
    assert_eq!(say(Want::Join, 2, Some(&us)), Verdict::News(vec![]));
    assert_eq!(say(LEAVE, 1, Some(&us)), Verdict::Old);
    assert_eq!(say(LEAVE, 2, Some(&us)), Verdict::Refute);
    assert_eq!(say(LEAVE, 3, Some(&us)), Verdict::Refute);
    assert_eq!(say(LEAVE, 2, None), Verdict::Old);
    assert_eq!(say(LEAVE, 3, None), Verdict::News(vec![]));
    assert_eq!(members.get(&us).unwrap().status, S::Leaving);
}

#[test]
fn the_past_is_forgotten_after_its_time() {
    let limits = Limits {
        failed: 3 * DAY,
        left: DAY,
        intents: Duration::from_secs(300),
    };
    let mut members = check(&[Lives, Gone], S::Failed, &[C::Join, C::Failed]);
    members.intent(start(), (&"unknown".into(), LEAVE), 1, None);
    assert_eq!(members.reap(start() + 3 * DAY, limits), []);
    assert!(members.intents.is_empty());
    assert!(members.has_past());
    let reaped = members.reap(start() + 3 * DAY + Duration::from_secs(1), limits);
    assert_eq!(reaped.len(), 1);
    assert_eq!(reaped[0].0, C::Reap);
    assert!(!members.has_past());

    // Whoever is made to leave is remembered like those who left, since it has been gone.
    let name = NodeName::from("x");
    members.joined(&node("x"));
    members.gone(start(), &name);
    members.intent(start() + DAY / 2, (&name, LEAVE), 9, None);
    assert_eq!(members.reap(start() + DAY, limits), []);
    assert_eq!(members.reap(start() + DAY * 2, limits).len(), 1);
    assert_eq!(members.len(), 0);
}

#[test]
fn a_member_is_what_its_node_says() {
    let mut members = Members::default();
    let mut node = node("x");
    let (_, member) = members.joined(&node);
    assert_eq!(member.tags.get("role"), Some("consul"));
    assert_eq!((member.protocol_max, member.delegate_cur), (5, 4));
    node.meta = Tags::from_iter([("role", "node")])
        .to_meta()
        .unwrap()
        .into();
    node.port = 9;
    let (change, member) = members.updated(&node).unwrap();
    assert_eq!(change, C::Update);
    assert_eq!(member.tags.get("role"), Some("node"));
    assert_eq!((member.port, member.status), (9, S::Alive));
    node.meta = vec![255, 0xc1].into();
    let (_, member) = members.updated(&node).unwrap();
    assert_eq!(member.tags, Tags::default());
    node.name = "other".into();
    assert_eq!(members.updated(&node), None);
}

#[test]
fn intents_about_unknown_nodes_are_bounded() {
    let mut members = Members::default();
    for n in 0..MAX_INTENTS {
        let name = NodeName::from(n.to_string());
        members.intent(start(), (&name, LEAVE), 1, None);
    }
    let one_more = members.intent(start(), (&"one more".into(), LEAVE), 1, None);
    assert_eq!(one_more, Verdict::Old);
    let newer = members.intent(start(), (&"1".into(), LEAVE), 2, None);
    assert_eq!(newer, Verdict::News(vec![]));
}
