//! Writes at a server that does not lead.

use crossway::consensus::Consensus;
use crossway::consensus::ProposeError;
use crossway::store::Outcome;

use crate::support::trio::Trio;
use crate::support::trio::set;

fn value(server: &Consensus, key: &str) -> Option<Vec<u8>> {
    let state = server.store().latest();
    state.kv_get(key).1.map(|entry| entry.value.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_has_the_leader_write() {
    let trio = Trio::start().await;
    let written = trio.nodes[1]
        .consensus
        .propose(set("a", "1"))
        .await
        .unwrap();
    assert_eq!(written.outcome, Outcome::Bool(true));
    assert_eq!(value(&trio.nodes[0].consensus, "a").unwrap(), b"1");
    let entry = trio.nodes[0]
        .consensus
        .store()
        .latest()
        .kv_get("a")
        .1
        .unwrap();
    assert_eq!(entry.modify_index, written.index);
    // What the state refuses is refused in its words.
    let put = |path: &'static str, body: &'static str| trio.put(2, path, body);
    let answer = put("/v1/kv/a?cas=1", "2").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "false"));
    let entry = r#"{"Kind":"service-defaults","Name":"web","Protocol":"tcp"}"#;
    assert_eq!(put("/v1/config", entry).await.body, "true");
    let refused = put("/v1/catalog/register", r#"{"Node":"n9"}"#).await;
    let at_leader = trio
        .put(0, "/v1/catalog/register", r#"{"Node":"n9"}"#)
        .await;
    assert_eq!((refused.status, &refused.body), (500, &at_leader.body));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writes_at_a_follower_share_few_log_entries() {
    let trio = Trio::start().await;
    let before = trio.nodes[0].consensus.stats().last_log_index;
    let writers = (0..512).map(|n| {
        let server = trio.nodes[1].consensus.clone();
        tokio::spawn(async move {
            server
                .propose(set(&format!("k{n}"), "v"))
                .await
                .unwrap()
                .index
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let used = trio.nodes[0].consensus.stats().last_log_index - before;
    assert!(used < 512 / 4, "{used} entries for 512 writes");
    assert_eq!(
        trio.nodes[0].consensus.store().latest().kv_list("").1.len(),
        512
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_goes_one_step_and_no_further() {
    let trio = Trio::start().await;
    // n2 is asked as if it led, and does not pass it on.
    let way = crossway::api::forward::Leader::new(trio.nodes[2].pool.clone(), "dc1".into());
    let captured = capture(set("lost", "1")).await;
    use crossway::consensus::Forward;
    let limit = crate::support::server::PATIENCE;
    let answer = way.ask(&trio.nodes[1].peer, captured, limit).await.unwrap();
    assert!(
        String::from_utf8_lossy(&answer).contains("NotLeader"),
        "{answer:?}"
    );
    assert_eq!(value(&trio.nodes[0].consensus, "lost"), None);
}

/// The question that a server sends to have a command written.
async fn capture(command: crossway::store::Command) -> bytes::Bytes {
    use async_trait::async_trait;
    use crossway::consensus::{
        Config, Forward, ForwardError, Lane, Peer, Transport, TransportError,
    };
    use std::sync::Arc;
    use std::time::Duration;

    struct Capture(tokio::sync::mpsc::Sender<bytes::Bytes>);
    #[async_trait]
    impl Forward for Capture {
        async fn ask(
            &self,
            _: &Peer,
            question: bytes::Bytes,
            _: Duration,
        ) -> Result<bytes::Bytes, ForwardError> {
            self.0.send(question).await.unwrap();
            Err(ForwardError::Unreached("captured".to_owned()))
        }
    }
    struct To(Consensus);
    #[async_trait]
    impl Transport for To {
        async fn call(
            &self,
            _: &Peer,
            _: Lane,
            request: bytes::Bytes,
        ) -> Result<bytes::Bytes, TransportError> {
            self.0.receive(request).await
        }
    }
    let (send, mut receive) = tokio::sync::mpsc::channel(1);
    let config = |n: u64| {
        let id = format!("{n:08x}-0000-4000-8000-00000000000{n}");
        Config::new(
            id.as_str().into(),
            format!("x{n}").into(),
            format!("x{n}:8300"),
        )
    };
    let follower = Consensus::open(Config {
        forward: Some(Arc::new(Capture(send))),
        ..config(2)
    })
    .await
    .unwrap();
    let leader = Consensus::open(Config {
        bootstrap: true,
        transport: Some(Arc::new(To(follower.clone()))),
        ..config(1)
    })
    .await
    .unwrap();
    crate::support::trio::eventually("it leads", || leader.role().borrow().is_leader()).await;
    let peer = Peer {
        id: config(2).node_id,
        node: config(2).node_name,
        address: config(2).address,
    };
    leader.add_server(peer).await.unwrap();
    let known = || follower.leader().is_some();
    crate::support::trio::eventually("the leader is known", known).await;
    let written = follower.propose(command).await;
    let reason = "captured".to_owned();
    assert_eq!(written, Err(ProposeError::Unreached { reason }));
    receive.recv().await.unwrap()
}
