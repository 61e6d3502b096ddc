//! Archives: saved and restored at any server, over HTTP and over the RPC port.

use bytes::Bytes;
use crossway::codec::{self, Value};
use crossway::net::Tls;
use crossway::rpc::{Channel, Destination};
use serde_json::json;
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::peers;
use crate::support::server::PATIENCE;
use crate::support::trio::{Trio, eventually};

async fn save(trio: &Trio, at: usize) -> Bytes {
    let (status, headers, body) = trio
        .send_bytes(at, "GET", "/v1/snapshot", Bytes::new())
        .await;
    assert_eq!(status, 200, "{body:?}");
    assert_eq!(headers["content-type"], "application/x-gzip");
    assert!(headers["x-consul-index"].parse::<u64>().unwrap() > 0);
    body
}

async fn restore(trio: &Trio, at: usize, archive: Bytes) -> (u16, String) {
    let (status, _, body) = trio.send_bytes(at, "PUT", "/v1/snapshot", archive).await;
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// C093: a blocked read returns at once when an older state comes back, with its lower index.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_saved_at_one_follower_is_restored_at_another() {
    let trio = Trio::start().await;
    trio.put(0, "/v1/kv/k", "old").await;
    let archive = save(&trio, 1).await;
    trio.put(0, "/v1/kv/k", "new").await;
    trio.put(0, "/v1/kv/later", "x").await;
    let index = trio.get(1, "/v1/kv/k").await.index();
    let path = format!("/v1/kv/k?raw&index={index}&wait=60s");
    let restoring = async {
        eventually("it waits", || trio.nodes[1].api.store().waiting() > 0).await;
        assert_eq!(
            restore(&trio, 2, archive.clone()).await,
            (200, String::new())
        );
    };
    let (blocked, ()) = tokio::join!(trio.get(1, &path), restoring);
    assert_eq!(blocked.body, "old");
    assert!(blocked.index() < index);
    for at in 0..3 {
        assert_eq!(trio.get(at, "/v1/kv/k?raw").await.body, "old");
        assert_eq!(trio.get(at, "/v1/kv/later").await.status, 404);
    }
    // The log goes on behind it, and again.
    assert_eq!(trio.put(1, "/v1/kv/k?cas=0", "x").await.body, "false");
    assert_eq!(trio.put(1, "/v1/kv/k", "newest").await.body, "true");
    assert!(trio.get(1, "/v1/kv/k").await.index() > index);
    assert_eq!(restore(&trio, 0, archive).await.0, 200);
    assert_eq!(trio.get(2, "/v1/kv/k?raw").await.body, "old");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_archive_changes_nothing() {
    let trio = Trio::start().await;
    trio.put(0, "/v1/kv/k", "old").await;
    let archive = save(&trio, 0).await;
    trio.put(0, "/v1/kv/k", "kept").await;
    let step = archive.len() / 60 + 1;
    for at in (0..archive.len()).step_by(step) {
        let mut bad = archive.to_vec();
        bad[at] ^= 0x10;
        let (status, text) = restore(&trio, 1, bad.into()).await;
        assert_eq!(status, 500, "byte {at}");
        assert!(text.contains("archive"), "{text}");
    }
    let (status, text) = restore(&trio, 1, Bytes::from_static(b"no archive")).await;
    assert!(
        status == 500 && text.contains("not a snapshot archive"),
        "{text}"
    );
    assert_eq!(trio.get(1, "/v1/kv/k?raw").await.body, "kept");
}

/// One exchange on a connection of its own.
async fn exchange(trio: &Trio, at: usize, op: i64, archive: &[u8]) -> (Value, Vec<u8>) {
    let node = &trio.nodes[at];
    let to = Destination {
        datacenter: "dc1".into(),
        node: node.peer.node.clone(),
        address: node.peer.address.parse().unwrap(),
    };
    let way = node.pool.way(&to).unwrap();
    let tls = Tls::disabled();
    let dialled = crossway::rpc::dial::dial(&way, Channel::Snapshot, &tls, PATIENCE).await;
    let mut stream = dialled.unwrap();
    let request = json!({"Datacenter": "dc1", "Token": "", "AllowStale": false, "Op": op});
    let request = codec::to_vec(&Value::from_json(&request).unwrap()).unwrap();
    stream.write_all(&request).await.unwrap();
    stream.write_all(archive).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all));
    read.await.unwrap().unwrap();
    let mut rest = all.as_slice();
    let head = codec::take(&mut rest).unwrap();
    (head, rest.to_vec())
}

fn error(head: &Value) -> &str {
    head.get("Error").unwrap().as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archives_travel_over_the_rpc_port() {
    let trio = Trio::start().await;
    trio.put(0, "/v1/kv/k", "old").await;
    let (head, archive) = exchange(&trio, 1, 0, b"").await;
    assert_eq!(error(&head), "");
    assert!(
        matches!(head.get("Index"), Some(Value::Uint(1..))),
        "{head:?}"
    );
    trio.put(0, "/v1/kv/k", "new").await;
    let (head, rest) = exchange(&trio, 2, 1, &archive).await;
    assert_eq!((error(&head), rest.len()), ("", 0));
    assert_eq!(trio.get(0, "/v1/kv/k?raw").await.body, "old");
    let (head, _) = exchange(&trio, 1, 1, &archive[..archive.len() - 1]).await;
    assert!(error(&head).contains("damaged"), "{head:?}");
    let (head, _) = exchange(&trio, 1, 7, b"").await;
    assert_eq!(error(&head), "unrecognized snapshot op 7");
    assert_eq!(trio.get(1, "/v1/kv/k?raw").await.body, "old");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consuls_tools_save_inspect_and_restore() {
    let Some(consul) = peers::find("consul") else {
        return;
    };
    let trio = Trio::start().await;
    trio.put(0, "/v1/kv/k", "old").await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.snap");
    let run = async |verb: &str, at: usize| {
        let mut command = tokio::process::Command::from(Command::new(&consul));
        command.arg("snapshot").arg(verb);
        if verb != "inspect" {
            command.arg(format!("-http-addr=http://{}", trio.nodes[at].http));
        }
        let output = command.arg(&file).output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert!(output.status.success(), "{verb}: {text}");
        text
    };
    assert!(run("save", 1).await.contains("Saved and verified snapshot"));
    let shown = run("inspect", 1).await;
    let index = trio.get(0, "/v1/kv/k").await.index();
    let line = shown.lines().find(|line| line.starts_with("Index"));
    let number = line.and_then(|line| line.split_whitespace().last());
    assert_eq!(number, Some(index.to_string().as_str()), "{shown}");
    trio.put(0, "/v1/kv/k", "new").await;
    assert!(run("restore", 2).await.contains("Restored snapshot"));
    assert_eq!(trio.get(0, "/v1/kv/k?raw").await.body, "old");
}
