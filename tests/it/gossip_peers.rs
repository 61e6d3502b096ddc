//! Members of this process and real `serf agent` processes in one pool.
//!
//! Each test has its own pool; every process has a loopback address of its own.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop it.
#![allow(clippy::disallowed_methods)] // Tests wait with deadlines of the real clock.

mod consul;
mod hostile;
mod keys;
mod messages;
mod restart;
mod speed;

use crate::support::gossip::address;
use crate::support::gossip::at;
use crate::support::gossip::config;
use crate::support::gossip::member;
use crate::support::gossip::start;
use crate::support::gossip::status;
use crate::support::gossip::until;
use crate::support::gossip::until_status;
use crate::support::peers;
use crate::support::serf::Serf;
use crossway::gossip::MemberStatus;
use crossway::gossip::Tags;
use crossway::gossip::agent::StreamError;
use futures_util::future::join_all;
use std::time::Duration;
use tokio::net::TcpListener;

/// A member of this process and a serf agent that joined it.
async fn pair(args: &[&str]) -> Option<(crossway::gossip::Gossip, Serf)> {
    let program = peers::find("serf")?;
    let ours = member("ours").await;
    let serf = Serf::start(program, "serf", args).await;
    serf.run("join", &[&address(&ours).to_string()]).await;
    until_status(&ours, "serf", MemberStatus::Alive).await;
    serf.until_status("ours", "alive").await;
    Some((ours, serf))
}

#[tokio::test(flavor = "multi_thread")]
async fn both_can_join_and_see_each_others_tags() {
    let Some(program) = peers::find("serf") else {
        return;
    };
    let mut with_tags = config("ours");
    with_tags.serf.tags = Tags::from_iter([("role", "consul"), ("dc", "dc1")]);
    let ours = start(with_tags).await;
    let serf = Serf::start(program.clone(), "s1", &["-tag", "role=web"]).await;
    assert_eq!(ours.join(&[at(serf.gossip())]).await.unwrap(), 1);
    let late = Serf::start(program, "s2", &["-tag", "role=db"]).await;
    late.run("join", &[&address(&ours).to_string()]).await;

    let tag = |members: &[crossway::gossip::Member], name: &str, tag: &str| {
        let member = members.iter().find(|member| member.name == name)?;
        member.tags.get(tag).map(str::to_owned)
    };
    until(&ours, "both with their tags", |members| {
        tag(members, "s1", "role").as_deref() == Some("web")
            && tag(members, "s2", "role").as_deref() == Some("db")
    })
    .await;
    for serf in [&serf, &late] {
        serf.until("our tags", |seen| {
            seen.get("ours").is_some_and(|seen| {
                seen.status == "alive"
                    && seen.address == address(&ours).to_string()
                    && seen.tags.get("dc").is_some_and(|dc| dc == "dc1")
            })
        })
        .await;
    }

    let mut tags = Tags::from_iter([("role", "consul"), ("acls", "1")]);
    ours.set_tags(tags.clone()).await.unwrap();
    late.until("our new tags", |seen| {
        let tags = &seen["ours"].tags;
        tags.get("acls").is_some_and(|acls| acls == "1") && !tags.contains_key("dc")
    })
    .await;
    serf.run("tags", &["-set", "role=cache"]).await;
    until(&ours, "the new tag of s1", |members| {
        tag(members, "s1", "role").as_deref() == Some("cache")
    })
    .await;
    tags.set("long", "x".repeat(512));
    assert!(ours.set_tags(tags).await.is_err());
    ours.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_is_seen_to_have_left() {
    let Some((ours, serf)) = pair(&[]).await else {
        return;
    };
    serf.run("leave", &[]).await;
    until_status(&ours, "serf", MemberStatus::Left).await;

    let Some((ours, serf)) = pair(&[]).await else {
        return;
    };
    ours.leave().await;
    serf.until_status("ours", "left").await;
    ours.shutdown().await;
    // It stays so: nobody takes the silence for a failure.
    serf.until_status("ours", "left").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_dies_is_seen_to_have_failed_and_to_come_back() {
    let Some(program) = peers::find("serf") else {
        return;
    };
    let (first, second) = (config("ours"), config("other"));
    let ours = start(first.clone()).await;
    let other = start(second).await;
    let mut serf = Serf::start(program, "serf", &[]).await;
    assert_eq!(
        ours.join(&[at(serf.gossip()), at(address(&other))])
            .await
            .unwrap(),
        2
    );
    until_status(&other, "serf", MemberStatus::Alive).await;

    serf.kill();
    until_status(&ours, "serf", MemberStatus::Failed).await;
    until_status(&other, "serf", MemberStatus::Failed).await;
    serf.spawn().await;
    serf.run("join", &[&address(&other).to_string()]).await;
    until_status(&ours, "serf", MemberStatus::Alive).await;
    serf.until_status("ours", "alive").await;

    ours.shutdown().await;
    drop(ours);
    serf.until_status("ours", "failed").await;
    let ours = start(first).await;
    assert_eq!(ours.join(&[at(serf.gossip())]).await.unwrap(), 1);
    serf.until_status("ours", "alive").await;
    for gossip in [ours, other] {
        gossip.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_failed_can_be_forced_to_leave() {
    let Some((ours, mut serf)) = pair(&[]).await else {
        return;
    };
    let Some(program) = peers::find("serf") else {
        return;
    };
    let third = Serf::start(program, "third", &[]).await;
    third.run("join", &[&address(&ours).to_string()]).await;
    third.until_status("serf", "alive").await;
    serf.kill();
    until_status(&ours, "serf", MemberStatus::Failed).await;
    third.until_status("serf", "failed").await;
    ours.force_leave(&"serf".into(), false).await.unwrap();
    until_status(&ours, "serf", MemberStatus::Left).await;
    third.until_status("serf", "left").await;
    ours.force_leave(&"serf".into(), true).await.unwrap();
    until(&ours, "serf is forgotten", |members| {
        status(members, "serf").is_none()
    })
    .await;
    // A member that nobody knows is an error, not a success without effect.
    assert!(ours.force_leave(&"nobody".into(), false).await.is_err());

    // And the other way round, for a member of ours that is gone.
    let gone = member("gone").await;
    gone.join(&[at(third.gossip())]).await.unwrap();
    until_status(&ours, "gone", MemberStatus::Alive).await;
    gone.shutdown().await;
    until_status(&ours, "gone", MemberStatus::Failed).await;
    third.until_status("gone", "failed").await;
    third.run("force-leave", &["gone"]).await;
    until_status(&ours, "gone", MemberStatus::Left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_join_says_where_and_why() {
    let ours = member("ours").await;
    let refused = config("nobody").serf.swim.advertise;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stalls = silent.local_addr().unwrap();
    let error = ours.join(&[at(refused), at(stalls)]).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains(&format!("{refused}: Connection refused")),
        "{text}"
    );
    assert!(
        text.contains(&format!("{stalls}: no answer within 1s")),
        "{text}"
    );
    assert!(
        matches!(error.failures[1].reason, StreamError::Timeout(at) if at == Duration::from_secs(1))
    );

    // One that answers is enough; the others are tried all the same.
    let (a, b) = (member("a").await, member("b").await);
    let targets = [at(refused), at(address(&a)), at(address(&b))];
    assert_eq!(ours.join(&targets).await.unwrap(), 2);
    until_status(&b, "a", MemberStatus::Alive).await;
}

/// Packets and push/pulls of either side are compressed or not, whatever the other one does.
#[tokio::test(flavor = "multi_thread")]
async fn compression_is_each_members_own_choice() {
    let Some(program) = peers::find("serf") else {
        return;
    };
    let mut plain = config("plain");
    plain.compress = false;
    let (plain, packed) = (start(plain).await, member("packed").await);
    let serf_plain = Serf::start(program.clone(), "serf-plain", &["-disable-compression"]).await;
    let serf_packed = Serf::start(program, "serf-packed", &[]).await;
    for serf in [&serf_plain, &serf_packed] {
        assert_eq!(plain.join(&[at(serf.gossip())]).await.unwrap(), 1);
        serf.run("join", &[&address(&packed).to_string()]).await;
    }
    let names = ["packed", "plain", "serf-packed", "serf-plain"];
    for gossip in [&plain, &packed] {
        for name in names {
            until_status(gossip, name, MemberStatus::Alive).await;
        }
    }
    for serf in [&serf_plain, &serf_packed] {
        for name in names {
            serf.until_status(name, "alive").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thirteen_members_agree() {
    let Some(program) = peers::find("serf") else {
        return;
    };
    let names: Vec<String> = (0..10).map(|n| format!("ours-{n}")).collect();
    let ours = join_all(names.iter().map(|name| member(name))).await;
    let mut serfs = Vec::new();
    for (n, gossip) in ours.iter().enumerate().take(3) {
        let serf = Serf::start(program.clone(), &format!("serf-{n}"), &[]).await;
        serf.run("join", &[&address(gossip).to_string()]).await;
        serfs.push(serf);
    }
    let joins = ours.windows(2).map(|pair| {
        let target = at(address(&pair[0]));
        async move { pair[1].join(&[target]).await.unwrap() }
    });
    assert_eq!(join_all(joins).await, [1; 9]);
    for gossip in &ours {
        until(gossip, "13 alive", |members| {
            let alive = members.iter().filter(|m| m.status == MemberStatus::Alive);
            alive.count() == 13
        })
        .await;
    }
    for serf in &serfs {
        serf.until("13 alive", |seen| {
            seen.values().filter(|seen| seen.status == "alive").count() == 13
        })
        .await;
    }
    ours[4].leave().await;
    serfs[1].kill();
    for gossip in ours.iter().filter(|gossip| *gossip.name() != "ours-4") {
        until_status(gossip, "ours-4", MemberStatus::Left).await;
        until_status(gossip, "serf-1", MemberStatus::Failed).await;
    }
    for serf in [&serfs[0], &serfs[2]] {
        serf.until_status("ours-4", "left").await;
        serf.until_status("serf-1", "failed").await;
    }
    join_all(ours.iter().map(crossway::gossip::Gossip::shutdown)).await;
}

/// Two agents with one name: the pool's majority keeps the one it knew, as serf does, and our members vote.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_two_claim_stays_with_the_first() {
    let Some((ours, serf)) = pair(&[]).await else {
        return;
    };
    let Some(program) = peers::find("serf") else {
        return;
    };
    let other = member("other").await;
    other.join(&[at(address(&ours))]).await.unwrap();
    until_status(&other, "serf", MemberStatus::Alive).await;
    let mut late = Serf::start(program, "serf", &[]).await;
    let late_address = late.gossip();
    let _ = late.command("join", &[&address(&ours).to_string()]).await;
    late.until_ended().await;
    assert!(
        late.log().contains("minority in name conflict"),
        "{}",
        late.log()
    );
    let member = |members: &[crossway::gossip::Member]| {
        let member = members.iter().find(|member| member.name == "serf").unwrap();
        (member.addr.ip().unwrap(), member.port)
    };
    for gossip in [&ours, &other] {
        let (ip, port) = member(&gossip.members());
        assert_eq!(std::net::SocketAddr::new(ip, port), serf.gossip());
        assert_ne!(std::net::SocketAddr::new(ip, port), late_address);
    }
}
