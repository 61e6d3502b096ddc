//! Who leads, and how fast the next one does.

use crate::support::raft::{Pass, Servers, get, set, until};
use crossway::consensus::{Error, ProposeError, Role};
use std::time::{Duration, Instant};

async fn term(servers: &Servers, at: usize) -> u64 {
    servers.at(at).stats().term
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_within_three_seconds() {
    let mut servers = Servers::start(3, false).await;
    let mut took = Vec::new();
    for round in 0..5 {
        let leader = servers.leader().await;
        servers.kill(leader).await;
        let start = Instant::now();
        let next = servers.leader().await;
        let key = format!("round {round}");
        servers.at(next).propose(set(&key, "")).await.unwrap();
        took.push(start.elapsed());
        servers.run(leader).await;
        until("it follows", || get(servers.at(leader), &key).is_some()).await;
    }
    println!("next leader and its first write after {took:?}");
    took.sort();
    assert!(took[2] < Duration::from_secs(3), "{took:?}");
    servers.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_cut_off_deposes_nobody() {
    let servers = Servers::start_slow(3, false, 3).await;
    let leader = servers.leader().await;
    let before = term(&servers, leader).await;
    let lost = (leader + 1) % 3;
    for pass in [Pass::Swallow, Pass::Nothing] {
        servers.set_links(lost, pass);
        let unheard = |role: &Role| !matches!(role, Role::Leader { .. });
        // Long enough for several elections of its own.
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(unheard(&servers.at(lost).role().borrow()));
        servers.set_links(lost, Pass::All);
        servers.at(leader).propose(set("healed", "")).await.unwrap();
        until("it catches up", || {
            get(servers.at(lost), "healed").is_some()
        })
        .await;
        servers.at(leader).propose(set("healed", "")).await.unwrap();
        assert_eq!(servers.leader().await, leader);
        assert_eq!(term(&servers, leader).await, before, "no new term");
        assert_eq!(
            term(&servers, lost).await,
            before,
            "no term was counted up in vain"
        );
    }
    servers.end().await;
}

/// One link is cut: the server behind it hears no leader, the others do. It must neither take the lead back and forth
/// nor keep the datacenter from working.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cut_link_to_the_leader_changes_no_leader() {
    let servers = Servers::start_slow(3, false, 3).await;
    let leader = servers.leader().await;
    let before = term(&servers, leader).await;
    servers.set_link(leader, (leader + 1) % 3, Pass::Nothing);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        servers.at(leader).propose(set("works", "")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(term(&servers, leader).await, before);
    servers.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_quorum_stops_leading_and_writes_nothing() {
    let servers = Servers::start(3, false).await;
    let leader = servers.leader().await;
    let rest: Vec<_> = (0..3).filter(|at| *at != leader).collect();
    servers.set_links(leader, Pass::Swallow);
    servers.set_link(rest[0], rest[1], Pass::Swallow);
    let alone = servers.at(leader);
    until("it knows", || !alone.role().borrow().is_leader()).await;
    assert_eq!(
        alone.propose(set("a", "1")).await,
        Err(ProposeError::NoLeader)
    );
    assert!(alone.verify_leader().await.is_err());
    for at in 0..3 {
        servers.set_links(at, Pass::All);
    }
    let leader = servers.leader().await;
    servers.at(leader).propose(set("a", "2")).await.unwrap();
    servers.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_handed_over_at_once_and_no_write_is_lost() {
    // An election by timeout would take seconds.
    let servers = Servers::start_slow(5, false, 5).await;
    let mut leader = servers.leader().await;
    for round in 0..6 {
        let wanted = (round % 2 == 0).then(|| (leader + 1) % 5);
        let to = wanted.map(|at| servers.peers[at].id.clone());
        servers
            .at(leader)
            .propose(set(&format!("before {round}"), ""))
            .await
            .unwrap();
        let start = Instant::now();
        servers
            .at(leader)
            .transfer_leadership(to.as_ref())
            .await
            .unwrap();
        println!("handed over in {:?}", start.elapsed());
        assert!(
            start.elapsed() < Duration::from_millis(1500),
            "no timeout had to pass"
        );
        let next = servers.leader().await;
        assert_ne!(next, leader);
        assert!(wanted.is_none_or(|wanted| wanted == next));
        assert!(get(servers.at(next), &format!("before {round}")).is_some());
        leader = next;
    }
    let follower = (leader + 1) % 5;
    let refused = servers.at(follower).transfer_leadership(None).await;
    assert!(matches!(refused, Err(Error::NotLeader)), "{refused:?}");
    let stranger = "ffffffff-0000-4000-8000-000000000009".into();
    let refused = servers
        .at(leader)
        .transfer_leadership(Some(&stranger))
        .await;
    assert!(matches!(refused, Err(Error::Transfer(_))), "{refused:?}");
    servers.at(leader).propose(set("still", "")).await.unwrap();
    servers.end().await;
}
