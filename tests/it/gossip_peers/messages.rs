//! User events and queries, both ways.

use super::pair;
use crate::support::gossip::address;
use crate::support::gossip::at;
use crate::support::gossip::config;
use crate::support::gossip::start;
use crate::support::gossip::until_status;
use crate::support::peers;
use crate::support::serf::PATIENCE;
use crate::support::serf::Serf;
use bytes::Bytes;
use crossway::gossip::MemberStatus;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;
use tokio::time::timeout;

const PAUSE: Duration = Duration::from_millis(50);

/// Waits until the file has a line that starts so.
async fn written(file: &Path, start: &str) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let text = text.replace('\n', ""); // serf ends the payload with one, mostly.
        if text.contains(&format!("{start} at ")) {
            return text;
        }
        assert!(Instant::now() < end, "{text:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_events_arrive_both_ways_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("events");
    let handler = format!(
        "-event-handler=user:deploy=cat >> {0}; echo \" at $SERF_USER_LTIME\" >> {0}",
        file.display()
    );
    let Some((ours, serf)) = pair(&[&handler]).await else {
        return;
    };
    let mut events = ours.events();
    let payload = Bytes::from_static(b"version 7");
    ours.user_event("deploy", payload.clone(), false)
        .await
        .unwrap();
    let own = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    assert_eq!((own.name.as_str(), &*own.payload), ("deploy", &*payload));

    written(&file, "version 7").await;

    serf.run("event", &["-coalesce=false", "deploy", "version 8"])
        .await;
    let theirs = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    assert_eq!(
        (theirs.name.as_str(), &*theirs.payload),
        ("deploy", &b"version 8"[..])
    );
    assert!(theirs.ltime > own.ltime);
    let text = written(&file, "version 8").await;
    assert!(
        text.contains(&format!("version 7 at {}", own.ltime)),
        "{text}"
    );
    // A third event comes next: neither of the first two came twice.
    ours.user_event("last", Bytes::new(), false).await.unwrap();
    let last = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    assert_eq!(last.name, "last");
    // What is too long for a packet is refused.
    let long = ours
        .user_event("deploy", Bytes::from(vec![0; 10_000]), false)
        .await;
    assert!(long.is_err());
}

/// Who joins later learns of nothing that happened before, as serf does it.
#[tokio::test(flavor = "multi_thread")]
async fn old_events_are_not_replayed_to_who_joins() {
    let Some((ours, serf)) = pair(&[]).await else {
        return;
    };
    ours.user_event("before", Bytes::new(), false)
        .await
        .unwrap();
    let logged = "user-event: before";
    let end = Instant::now() + PATIENCE;
    while !serf.log().contains(logged) {
        assert!(Instant::now() < end, "{}", serf.log());
        tokio::time::sleep(PAUSE).await;
    }
    let late = start(config("late")).await;
    let mut events = late.events();
    late.join(&[at(serf.gossip())]).await.unwrap();
    until_status(&ours, "late", MemberStatus::Alive).await;
    serf.run("event", &["-coalesce=false", "after"]).await;
    let first = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    assert_eq!(first.name, "after");
}

/// serf asks; our members acknowledge, relay what others answer, and answer the queries that serf itself knows.
#[tokio::test(flavor = "multi_thread")]
async fn queries_of_serf_reach_all_and_are_acknowledged() {
    let Some((ours, serf)) = pair(&[]).await else {
        return;
    };
    let Some(program) = peers::find("serf") else {
        return;
    };
    let second = Serf::start(program, "second", &["-event-handler=query:up=printf yes"]).await;
    second.run("join", &[&address(&ours).to_string()]).await;
    serf.until_status("second", "alive").await;
    for options in [&["-relay-factor=2"][..], &[]] {
        let mut args = vec!["-format=json", "-timeout=3s"];
        args.extend(options);
        args.push("up");
        let answer: Value = serde_json::from_str(&serf.run("query", &args).await).unwrap();
        let mut acks: Vec<&str> = answer["Acks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|ack| ack.as_str().unwrap())
            .collect();
        acks.sort_unstable();
        assert_eq!(
            acks,
            ["ours", "second", "serf"],
            "{options:?}: {}",
            serf.log()
        );
        assert_eq!(answer["Responses"]["second"], "yes");
    }
    let filtered = ["-format=json", "-timeout=2s", "-node=ours", "up"];
    let answer: Value = serde_json::from_str(&serf.run("query", &filtered).await).unwrap();
    assert_eq!(answer["Acks"], serde_json::json!(["ours"]));
    let reach = serf.run("reachability", &[]).await;
    assert!(
        reach.contains("Successfully contacted all live nodes"),
        "{reach}"
    );
}

/// `serf rtt` computes with coordinates that our acknowledgements carry, and so do we with theirs.
#[tokio::test(flavor = "multi_thread")]
async fn coordinates_are_exchanged() {
    let Some((ours, serf)) = pair(&[]).await else {
        return;
    };
    let end = Instant::now() + PATIENCE;
    loop {
        let known = ours.coordinate_of(&"serf".into()).is_some();
        let output = serf.command("rtt", &["ours", "serf"]).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if known && output.status.success() && text.contains("Estimated") {
            break;
        }
        assert!(Instant::now() < end, "{known} {text} {}", serf.log());
        tokio::time::sleep(PAUSE).await;
    }
    assert!(ours.coordinate().is_valid());
}
