//! The leader goes: what was under way at a follower ends or goes on as it should.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::trio::Trio;
use crate::support::trio::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_at_a_follower_go_on_and_nothing_acknowledged_is_lost() {
    let trio = Trio::start().await;
    let stop = AtomicBool::new(false);
    let old = trio.nodes[0].consensus.clone();
    let (acknowledged, ()) = {
        let trio = &trio;
        let stop = &stop;
        let writers = (0..8).map(|writer| async move {
            let mut acknowledged = Vec::new();
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("w{writer}/{n}");
                let put = trio
                    .put(1 + writer % 2, &format!("/v1/kv/{key}"), "v")
                    .await;
                match put.body.as_str() {
                    "true" => acknowledged.push(key),
                    // In doubt, or nobody led within the hold time; no third answer exists.
                    text => assert!(put.status == 500 && !text.is_empty(), "{put:?}"),
                }
            }
            acknowledged
        });
        let kill = async {
            let written = || trio.nodes[1].api.store().latest().kv_list("").1.len();
            eventually("some writes", || written() > 50).await;
            old.shutdown().await.unwrap();
            let before = written();
            trio.leader(&[1, 2]).await;
            eventually("writes go on", || written() > before + 50).await;
            stop.store(true, Ordering::Relaxed);
        };
        tokio::join!(futures_util::future::join_all(writers), kill)
    };
    let acknowledged: Vec<String> = acknowledged.into_iter().flatten().collect();
    let leader = trio.leader(&[1, 2]).await;
    let state = trio.nodes[leader].api.store().latest();
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|key| state.kv_get(key.as_str()).1.is_none())
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(acknowledged.len() > 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_read_at_a_follower_survives_the_change_of_leaders() {
    let trio = Trio::start().await;
    trio.put(0, "/v1/kv/k", "1").await;
    let index = trio.get(1, "/v1/kv/k").await.index();
    let old = trio.nodes[0].consensus.clone();
    let answer = {
        let trio = &trio;
        let path = format!("/v1/kv/k?raw&index={index}&wait=60s");
        let change = async {
            eventually("it waits", || trio.nodes[1].api.store().waiting() > 0).await;
            old.shutdown().await.unwrap();
            trio.leader(&[1, 2]).await;
            assert_eq!(trio.put(2, "/v1/kv/k", "2").await.body, "true");
        };
        tokio::join!(trio.get(1, &path), change).0
    };
    assert_eq!((answer.status, answer.body.as_str()), (200, "2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_at_a_follower_wait_for_the_next_leader() {
    let mut trio = Trio::start().await;
    trio.put(0, "/v1/kv/k", "1").await;
    trio.nodes[0].kill_ports();
    trio.nodes[0].consensus.clone().shutdown().await.unwrap();
    let start = std::time::Instant::now();
    for path in ["/v1/kv/k?raw", "/v1/kv/k?raw&consistent"] {
        let read = trio.get(2, path).await;
        assert_eq!((read.status, read.body.as_str()), (200, "1"), "{path}");
    }
    assert!(
        start.elapsed() < Duration::from_secs(14),
        "twice the hold time"
    );
}

/// Changes of leaders leave no session, stream or waiter behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leaks_when_leaders_change() {
    let trio = Trio::start().await;
    trio.leader(&[0, 1, 2]).await;
    for round in 0..5 {
        let leader = trio.leader(&[0, 1, 2]).await;
        let follower = (leader + 1) % 3;
        let put = trio.put(follower, "/v1/kv/k", &round.to_string()).await;
        assert_eq!(put.body, "true", "{put:?}");
        trio.cut(leader);
        let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
        trio.leader(&others).await;
        trio.heal();
        eventually("the old one follows", || {
            !trio.nodes[leader].consensus.role().borrow().is_leader()
        })
        .await;
    }
    // Each server's own sync waits all the time, for what is registered with it.
    eventually("nobody else waits", || {
        let mut nodes = trio.nodes.iter();
        nodes.all(|node| node.api.store().waiting() <= 1)
    })
    .await;
    for node in &trio.nodes {
        assert!(node.pool.sessions() <= 2, "at most one per other server");
    }
}
