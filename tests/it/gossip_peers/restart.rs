//! What a member remembers over a restart.

use crate::support::gossip::address;
use crate::support::gossip::at;
use crate::support::gossip::config;
use crate::support::gossip::member;
use crate::support::gossip::start;
use crate::support::gossip::until_status;
use crate::support::peers;
use crate::support::serf::PATIENCE;
use crate::support::serf::Serf;
use bytes::Bytes;
use crossway::gossip::MemberStatus;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_died_comes_back_by_its_snapshot() {
    let Some(program) = peers::find("serf") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let serf = Serf::start(program, "serf", &[]).await;
    let mut config = config("ours");
    config.snapshot_file = Some(dir.path().join("local.snapshot"));
    let ours = start(config.clone()).await;
    ours.join(&[at(serf.gossip())]).await.unwrap();
    serf.until_status("ours", "alive").await;
    ours.user_event("one", Bytes::new(), false).await.unwrap();
    ours.shutdown().await;
    drop(ours);
    serf.until_status("ours", "failed").await;

    let ours = start(config.clone()).await;
    serf.until_status("ours", "alive").await;
    until_status(&ours, "serf", MemberStatus::Alive).await;

    // Who left in order stays away, unless told otherwise.
    ours.leave().await;
    ours.shutdown().await;
    drop(ours);
    serf.until_status("ours", "left").await;
    let text = std::fs::read_to_string(dir.path().join("local.snapshot")).unwrap();
    assert!(text.lines().any(|line| line == "leave"), "{text}");
    let ours = start(config.clone()).await;
    assert_eq!(ours.members().len(), 1);
    ours.shutdown().await;
    drop(ours);
    assert_eq!(serf.members().await["ours"].status, "left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_left_comes_back_if_it_is_told_to() {
    let Some(program) = peers::find("serf") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let serf = Serf::start(program, "serf", &[]).await;
    let mut config = config("ours");
    config.snapshot_file = Some(dir.path().join("local.snapshot"));
    config.serf.rejoin_after_leave = true;
    let ours = start(config.clone()).await;
    ours.join(&[at(serf.gossip())]).await.unwrap();
    serf.until_status("ours", "alive").await;
    ours.leave().await;
    ours.shutdown().await;
    drop(ours);
    serf.until_status("ours", "left").await;
    let ours = start(config).await;
    serf.until_status("ours", "alive").await;
    until_status(&ours, "serf", MemberStatus::Alive).await;
}

/// One format: serf reads what we wrote, and we what serf wrote.
#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_exchanged_with_serf() {
    let Some(program) = peers::find("serf") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (ours_file, serf_file) = (dir.path().join("ours"), dir.path().join("serf"));
    let stays = member("stays").await;
    let mut first = config("first");
    first.snapshot_file = Some(ours_file.clone());
    let first = start(first).await;
    let with_file = format!("-snapshot={}", serf_file.display());
    let mut second = Serf::start(program.clone(), "second", &[&with_file]).await;
    first.join(&[at(address(&stays))]).await.unwrap();
    second.run("join", &[&address(&stays).to_string()]).await;
    until_status(&first, "second", MemberStatus::Alive).await;
    second.until_status("first", "alive").await;
    // serf writes with the next change what it knows already.
    let end = Instant::now() + PATIENCE;
    let mut written = String::new();
    while !written.contains("alive: stays") {
        assert!(Instant::now() < end, "{written}");
        second.run("event", &["-coalesce=false", "tick"]).await;
        written = std::fs::read_to_string(&serf_file).unwrap_or_default();
    }
    first.shutdown().await;
    drop(first);
    second.kill();
    until_status(&stays, "first", MemberStatus::Failed).await;
    until_status(&stays, "second", MemberStatus::Failed).await;

    let from_ours = format!("-snapshot={}", ours_file.display());
    let reader = Serf::start(program, "reader", &[&from_ours]).await;
    reader.until_status("stays", "alive").await;
    let mut config = config("other-reader");
    config.snapshot_file = Some(serf_file);
    let other = start(config).await;
    until_status(&other, "stays", MemberStatus::Alive).await;
    until_status(&stays, "other-reader", MemberStatus::Alive).await;
}
