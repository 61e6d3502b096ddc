//! Blocking queries: who wakes, who sleeps on, and for how long.

use crate::http_api::fixture::{Fixture, PATIENCE, Response};
use crossway::model::{KvEntry, QueryOptions};
use crossway::store::{Command, KvOp, State, Topic};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

async fn start() -> Arc<Fixture> {
    Arc::new(Fixture::start("dc1", "n1", "127.0.0.1:8300").await)
}

fn instance(node: &str, service: &str, status: &str) -> Value {
    json!({
        "Node": node, "Address": "10.0.0.1",
        "Service": {"Service": service, "Port": 80, "Tags": ["t"]},
        "Check": {"Name": "c", "ServiceID": service, "Status": status},
    })
}

async fn register(fixture: &Fixture, body: &Value) {
    let answer = fixture.put("/v1/catalog/register", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn blocked(fixture: &Arc<Fixture>, path: String) -> JoinHandle<Response> {
    let fixture = fixture.clone();
    tokio::spawn(async move { fixture.get(&path).await })
}

/// Waits until so many readers are registered as waiting.
async fn until_waiting(fixture: &Fixture, count: usize) {
    let store = fixture.api.store();
    let start = Instant::now();
    while store.waiting() < count {
        assert!(start.elapsed() < PATIENCE, "{} wait", store.waiting());
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_wakes_those_whom_it_concerns_with_the_new_answer() {
    let fixture = start().await;
    register(&fixture, &instance("a", "web", "passing")).await;
    let path = "/v1/health/service/web?passing";
    let before = fixture.get(path).await;
    assert_eq!(before.json().as_array().unwrap().len(), 1);
    let readers: Vec<_> = (0..20)
        .map(|_| {
            blocked(
                &fixture,
                format!("{path}&wait=60s&index={}", before.index()),
            )
        })
        .collect();
    until_waiting(&fixture, 20).await;
    register(&fixture, &instance("a", "web", "critical")).await;
    for reader in readers {
        let after = timeout(PATIENCE, reader).await.unwrap().unwrap();
        assert!(after.index() > before.index());
        assert_eq!(after.json(), json!([]));
    }
    assert_eq!(
        fixture.api.store().waiting(),
        0,
        "nobody is left registered"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_writes_of_others_wake_nobody() {
    let fixture = start().await;
    register(&fixture, &instance("a", "web", "passing")).await;
    let paths = [
        "/v1/health/service/web",
        "/v1/health/service/none",
        "/v1/health/connect/web",
        "/v1/catalog/service/none",
        "/v1/config/service-defaults/none",
        "/v1/kv/none",
        "/v1/internal/federation-state/dc2?x",
        "/v1/connect/ca/roots",
    ];
    let mut readers = Vec::new();
    for path in paths {
        let now = fixture.get(path).await;
        let index = now.header("X-Consul-Index").unwrap_or("1").to_owned();
        let sep = if path.contains('?') { '&' } else { '?' };
        readers.push(blocked(
            &fixture,
            format!("{path}{sep}wait=60s&index={index}"),
        ));
    }
    until_waiting(&fixture, paths.len()).await;
    // And one whose questions to the state are counted.
    let asked = Arc::new(AtomicUsize::new(0));
    let (api, counter) = (fixture.api.clone(), asked.clone());
    let options = QueryOptions {
        min_query_index: fixture.api.store().latest().service_index("web"),
        ..QueryOptions::default()
    };
    let counted = tokio::spawn(async move {
        let topics = vec![Topic::Service("web".into())];
        let index_of = move |state: &State| {
            counter.fetch_add(1, Ordering::Relaxed);
            state.service_index("web")
        };
        api.wait(&"".into(), &options, topics, index_of)
            .await
            .map(|_| ())
    });
    until_waiting(&fixture, paths.len() + 1).await;
    for n in 0..500 {
        let entry = KvEntry {
            key: format!("other/{n}").into(),
            value: vec![1],
            ..KvEntry::default()
        };
        let write = Command::Kv(KvOp::Set(entry));
        fixture.api.consensus().propose(write).await.unwrap();
        let service = format!("other{}", n % 7);
        let status = if n % 2 == 0 { "passing" } else { "critical" };
        let body = instance("b", &service, status);
        let request = crossway::http::decode::json(body.to_string().as_bytes()).unwrap();
        fixture.api.register(request).await.unwrap();
    }
    for (reader, path) in readers.iter().zip(paths) {
        assert!(!reader.is_finished(), "{path} woke");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1, "asked the state again");
    readers.iter().for_each(JoinHandle::abort);
    counted.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_what_does_not_exist_wakes_when_it_does() {
    let fixture = start().await;
    for n in 0..5 {
        register(&fixture, &instance("a", &format!("other{n}"), "passing")).await;
    }
    let entry = "/v1/config/service-defaults/web?wait=60s&index=5";
    let readers = [blocked(&fixture, entry.into()), {
        let now = fixture.get("/v1/kv/dir/key").await;
        assert_eq!(now.status, 404);
        blocked(
            &fixture,
            format!("/v1/kv/dir/key?wait=60s&index={}", now.index()),
        )
    }];
    until_waiting(&fixture, 2).await;
    let body = json!({"Kind": "service-defaults", "Name": "web", "Protocol": "HTTP"});
    assert_eq!(fixture.put("/v1/config", &body).await.text(), "true");
    fixture.send("PUT", "/v1/kv/dir/key", "", b"v").await;
    let [entry, key] = readers.map(|reader| timeout(PATIENCE, reader));
    let entry = entry.await.unwrap().unwrap();
    assert_eq!(
        (entry.status, &entry.json()["Protocol"]),
        (200, &json!("http"))
    );
    let key = key.await.unwrap().unwrap();
    assert_eq!(key.json()[0]["Value"], "dg==");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wait_ends_with_the_same_answer() {
    let fixture = start().await;
    register(&fixture, &instance("a", "web", "passing")).await;
    let before = fixture.get("/v1/catalog/services").await;
    let path = format!("/v1/catalog/services?wait=200ms&index={}", before.index());
    let started = Instant::now();
    let after = fixture.get(&path).await;
    assert!(started.elapsed() >= Duration::from_millis(200));
    assert_eq!(
        (after.index(), after.json()),
        (before.index(), before.json())
    );
    // An index that this state never had comes from one that is gone: nothing to wait for (C093).
    let started = Instant::now();
    let after = fixture
        .get("/v1/catalog/services?wait=60s&index=999999")
        .await;
    assert!(started.elapsed() < PATIENCE);
    assert_eq!(after.index(), before.index());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_state_ends_every_wait() {
    let fixture = start().await;
    register(&fixture, &instance("a", "web", "passing")).await;
    let before = fixture.get("/v1/catalog/services").await;
    let path = format!("/v1/catalog/services?wait=60s&index={}", before.index());
    let reader = blocked(&fixture, path);
    until_waiting(&fixture, 1).await;
    fixture.api.store().publish_restored(State::default());
    let after = timeout(PATIENCE, reader).await.unwrap().unwrap();
    assert_eq!((after.index(), after.json()), (1, json!({})));
    // The same index in another history: an answer kept from before must not be given.
    let mut other = State::default();
    let request = instance("a", "other", "passing");
    let request = crossway::http::decode::json(request.to_string().as_bytes()).unwrap();
    let written = other.apply(before.index(), &Command::Register(Box::new(request)));
    assert!(written.result.is_ok());
    fixture.api.store().publish_restored(other);
    let after = fixture.get("/v1/catalog/services").await;
    assert_eq!(
        (after.index(), after.json()),
        (before.index(), json!({"other": ["t"]}))
    );
}
