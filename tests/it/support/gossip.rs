//! Members of a pool in this process.

use super::serf::PATIENCE;
use super::server::loopback;
use crossway::gossip::Config;
use crossway::gossip::Gossip;
use crossway::gossip::Member;
use crossway::gossip::MemberStatus;
use crossway::gossip::Tags;
use crossway::gossip::Target;
use crossway::gossip::UdpTcp;
use crossway::gossip::agent::AdmitAll;
use crossway::gossip::agent::Error;
use crossway::gossip::swim::Timing;
use std::net::SocketAddr;
use std::panic::Location;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::timeout;

/// A configuration with serf's fastest timing on a loopback address of its own.
pub(crate) fn config(name: &str) -> Config {
    config_at(name, (loopback(), 7946).into())
}

/// A configuration with serf's fastest timing.
pub(crate) fn config_at(name: &str, address: SocketAddr) -> Config {
    let mut config = Config::new(name.into(), address, Tags::default());
    config.serf.swim.timing = Timing::local();
    config
}

/// Starts a member over UDP and TCP.
pub(crate) async fn start(config: Config) -> Gossip {
    try_start(config).await.unwrap()
}

/// Tries to start a member over UDP and TCP.
pub(crate) async fn try_start(config: Config) -> Result<Gossip, Error> {
    let advertise = config.serf.swim.advertise;
    let end = Instant::now() + PATIENCE;
    let (transport, inbox) = loop {
        match UdpTcp::bind(advertise, "ports.serf_lan") {
            Ok(bound) => break bound,
            // A member that has just stopped lets go of its port soon.
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        tokio::task::yield_now().await;
    };
    Gossip::start(config, Arc::new(transport), inbox, Arc::new(AdmitAll)).await
}

/// Starts a member with the usual configuration.
pub(crate) async fn member(name: &str) -> Gossip {
    start(config(name)).await
}

/// Where to join somebody whose name need not be known.
pub(crate) fn at(address: impl Into<SocketAddr>) -> Target {
    Target {
        name: "".into(),
        address: address.into(),
    }
}

/// Where a member of this process gossips.
pub(crate) fn address(gossip: &Gossip) -> SocketAddr {
    let own = gossip.members();
    let own = own
        .iter()
        .find(|member| member.name == *gossip.name())
        .unwrap();
    SocketAddr::new(own.addr.ip().unwrap(), own.port)
}

/// The status of a member, if it is known.
pub(crate) fn status(members: &[Member], name: &str) -> Option<MemberStatus> {
    let member = members.iter().find(|member| member.name == name)?;
    Some(member.status)
}

/// Waits until the members are as they should be.
#[track_caller]
pub(crate) fn until(
    gossip: &Gossip,
    what: impl Into<String>,
    holds: impl Fn(&[Member]) -> bool,
) -> impl Future<Output = ()> {
    let (caller, what, mut watch) = (Location::caller(), what.into(), gossip.watch());
    async move {
        let waited = timeout(PATIENCE, watch.wait_for(|members| holds(members))).await;
        assert!(
            matches!(waited, Ok(Ok(_))),
            "{caller}: {}: not seen: {what}: {:#?}",
            gossip.name(),
            gossip.members()
        );
    }
}

/// Waits until a member has a status.
#[track_caller]
pub(crate) fn until_status(
    gossip: &Gossip,
    name: &str,
    expected: MemberStatus,
) -> impl Future<Output = ()> {
    let (what, name) = (format!("{name} {}", expected.as_str()), name.to_owned());
    until(gossip, what, move |members| {
        status(members, &name) == Some(expected)
    })
}
