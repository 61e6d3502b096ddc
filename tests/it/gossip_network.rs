//! Pools whose members are all in this process, on a network in memory that fails as it is told to.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop it.

use crate::support::gossip::at;
use crate::support::gossip::config_at;
use crate::support::gossip::status;
use crate::support::gossip::until;
use crate::support::gossip::until_status;
use crate::support::serf::PATIENCE;
use bytes::Bytes;
use crossway::gossip::Admission;
use crossway::gossip::Config;
use crossway::gossip::Gossip;
use crossway::gossip::Member;
use crossway::gossip::MemberStatus;
use crossway::gossip::Tags;
use crossway::gossip::Target;
use crossway::gossip::Transport;
use crossway::gossip::agent::AdmitAll;
use crossway::gossip::agent::StreamError;
use crossway::gossip::wire::Outgoing;
use crossway::gossip::wire::SerfMessage;
use crossway::gossip::wire::StreamMessage;
use crossway::gossip::wire::serf::UserEvent;
use crossway::gossip::wire::stream;
use crossway::testing::gossip::Network;
use futures_util::future::join_all;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

fn address(n: u8) -> SocketAddr {
    ([10, 0, 0, n], 8301).into()
}

async fn attach(network: &Network, config: Config, admission: Arc<dyn Admission>) -> Gossip {
    let (transport, inbox) = network.attach(config.serf.swim.advertise);
    let started = Gossip::start(config, Arc::new(transport), inbox, admission).await;
    started.unwrap()
}

/// `n` members that have joined.
async fn pool(network: &Network, n: u8) -> Vec<Gossip> {
    let mut all = Vec::new();
    for n in 1..=n {
        let mut config = config_at(&format!("n{n}"), address(n));
        config.serf.timing.reconnect_interval = Duration::from_millis(200);
        all.push(attach(network, config, Arc::new(AdmitAll)).await);
    }
    let joins = all.iter().skip(1).map(|gossip| async {
        gossip.join(&[at(address(1))]).await.unwrap();
    });
    join_all(joins).await;
    alive(&all, usize::from(n)).await;
    all
}

/// Waits until each of these sees so many alive.
async fn alive(members: &[Gossip], n: usize) {
    for gossip in members {
        until(gossip, format!("{n} alive"), |members| {
            let alive = members.iter().filter(|m| m.status == MemberStatus::Alive);
            alive.count() == n
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parted_pool_becomes_two_and_heals_by_itself() {
    let network = Network::new(1);
    let members = pool(&network, 6).await;
    let (one, other): (Vec<_>, Vec<_>) =
        (1..=6).map(address).partition(|a| a.ip() < address(4).ip());
    network.part(&one, &other);
    alive(&members, 3).await;
    network.heal();
    alive(&members, 6).await;
}

/// With a fifth of the packets lost and the others late, nobody is taken for dead: probes go over others and streams.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_network_kills_nobody_and_events_arrive() {
    let network = Network::new(2);
    let members = pool(&network, 5).await;
    network.worsen(0.2, Duration::from_millis(30));
    let mut events: Vec<_> = members.iter().map(Gossip::events).collect();
    for n in 0..20 {
        let name = format!("event-{n}");
        members[n % 5]
            .user_event(&name, Bytes::new(), false)
            .await
            .unwrap();
    }
    for events in &mut events {
        let mut names = Vec::new();
        while names.len() < 20 {
            names.push(
                timeout(PATIENCE, events.recv())
                    .await
                    .unwrap()
                    .unwrap()
                    .name,
            );
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 20);
    }
    alive(&members, 5).await;
}

/// No packet arrives at all, as behind a firewall that drops UDP: streams keep the pool alive.
#[tokio::test(flavor = "multi_thread")]
async fn streams_replace_packets_that_do_not_arrive() {
    let network = Network::new(3);
    let members = pool(&network, 2).await;
    network.worsen(1.0, Duration::ZERO);
    let mut watch = members[0].watch();
    watch.mark_unchanged();
    // Longer than it takes to declare somebody dead with this timing.
    let changed = timeout(Duration::from_secs(6), watch.changed()).await;
    assert!(changed.is_err(), "{:?}", members[0].members());
}

/// What Consul's merge delegate says, in short.
#[derive(Debug)]
struct OneDatacenter;

impl Admission for OneDatacenter {
    fn admit(&self, members: &[Member]) -> Result<(), String> {
        let wrong = members
            .iter()
            .find(|member| member.tags.get("dc") != Some("dc1"));
        match wrong {
            Some(member) => Err(format!("Member '{}' part of wrong datacenter", member.name)),
            None => Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_another_datacenter_are_refused_on_both_sides() {
    let network = Network::new(4);
    let tagged = |n: u8, dc: &str| {
        let mut config = config_at(&format!("n{n}"), address(n));
        config.serf.tags = Tags::from_iter([("dc", dc)]);
        config
    };
    let ours = attach(&network, tagged(1, "dc1"), Arc::new(OneDatacenter)).await;
    let lenient = attach(&network, tagged(2, "dc2"), Arc::new(AdmitAll)).await;
    let strict = attach(&network, tagged(3, "dc1"), Arc::new(OneDatacenter)).await;
    strict.join(&[at(address(1))]).await.unwrap();
    until_status(&ours, "n3", MemberStatus::Alive).await;

    let error = ours.join(&[at(address(2))]).await.unwrap_err();
    assert!(error.to_string().contains("n2"), "{error}");
    assert!(error.to_string().contains("wrong datacenter"), "{error}");
    // The other one may want us; we do not want it, and tell nobody of it.
    let _ = lenient.join(&[at(address(1))]).await;
    ours.user_event("later", Bytes::new(), false).await.unwrap();
    until_status(&ours, "n3", MemberStatus::Alive).await;
    for gossip in [&ours, &strict] {
        assert_eq!(status(&gossip.members(), "n2"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_needs_names_is_joined_by_name_only() {
    let network = Network::new(5);
    let named = |n: u8| {
        let mut config = config_at(&format!("n{n}"), address(n));
        config.serf.swim.require_node_names = true;
        config
    };
    let one = attach(&network, named(1), Arc::new(AdmitAll)).await;
    let two = attach(&network, named(2), Arc::new(AdmitAll)).await;
    let error = one.join(&[at(address(2))]).await.unwrap_err();
    assert!(
        matches!(error.failures[0].reason, StreamError::NoName),
        "{error}"
    );
    let by_name = Target {
        name: "n2".into(),
        address: address(2),
    };
    one.join(&[by_name]).await.unwrap();
    alive(&[one, two], 2).await;
}

/// A message that is too long for a packet may come over a stream.
#[tokio::test(flavor = "multi_thread")]
async fn user_messages_arrive_over_streams() {
    let network = Network::new(6);
    let member = attach(&network, config_at("n1", address(1)), Arc::new(AdmitAll)).await;
    let mut events = member.events();
    let (sender, _inbox) = network.attach(address(2));
    let to = at(address(1));
    let mut stream = sender.dial(&to, PATIENCE).await.unwrap();
    let event = SerfMessage::UserEvent(UserEvent {
        ltime: 7,
        name: "long".to_owned(),
        payload: vec![7; 4000].into(),
        coalesce: false,
    });
    let message = StreamMessage::User(event.encode().unwrap().into());
    let bytes = stream::seal(&message, &Outgoing::default(), [0; 12]).unwrap();
    stream.write_all(&bytes).await.unwrap();
    let event = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    assert_eq!((event.ltime, event.payload.len()), (7, 4000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_agent_says_so() {
    let network = Network::new(7);
    let members = pool(&network, 2).await;
    let mut watch = members[0].watch();
    members[0].shutdown().await;
    members[0].shutdown().await;
    members[0].leave().await;
    let error = members[0].join(&[at(address(2))]).await.unwrap_err();
    assert!(
        matches!(error.failures[0].reason, StreamError::Stopped),
        "{error}"
    );
    assert!(members[0].set_tags(Tags::default()).await.is_err());
    assert!(members[0].events().recv().await.is_err());
    let ended = async { while watch.changed().await.is_ok() {} };
    timeout(PATIENCE, ended).await.unwrap();
    until_status(&members[1], "n1", MemberStatus::Failed).await;
}
