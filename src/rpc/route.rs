//! What a type byte or an ALPN name means, and who may speak what.

use crate::net::PeerIdentity;
use crate::net::alpn;

/// The highest type byte; whatever is above may be the first byte of a TLS record (22).
pub(super) const MAX_TYPE_BYTE: u8 = 7;

/// The two methods that a peer without a certificate may call (type byte 7), to get one.
const INSECURE_METHODS: [&str; 2] = ["AutoEncrypt.Sign", "AutoConfig.InitialConfiguration"];

/// A protocol on the RPC port that other modules speak; see [`crate::rpc::Plugs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Raft, from servers of the own datacenter.
    Raft,
    /// Snapshot save and restore.
    Snapshot,
    /// Gossip packets from other datacenters.
    GossipPacket,
    /// Gossip streams from other datacenters.
    GossipStream,
}

/// Where a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// One net/rpc session.
    Single,
    /// A yamux session of net/rpc streams.
    Multi,
    /// TLS, with a type byte inside.
    UpgradeTls,
    /// TLS without certificate, then one net/rpc session of two methods.
    InsecureTls,
    /// To the module that registered for it.
    Plug(Protocol),
    /// Gossip of network areas: the edition's.
    AreaGossip,
    /// Nothing known: the edition's, if it wants it.
    Unknown,
    /// Closed.
    Refuse(Refusal),
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "connection without TLS refused: verify_incoming or verify_incoming_rpc is set; configure TLS on the peer"
    )]
    NotTls,
    #[error("TLS inside TLS refused")]
    InnerTls,
    #[error("TLS connection refused: cert_file and key_file are not configured here")]
    NoTls,
    #[error(
        "type byte 2 (the first multiplexing version) is not served any more; upgrade the peer"
    )]
    OldMultiplexing,
    #[error(
        "raft refused: the peer's certificate lacks the name server.<datacenter>.<domain> of this datacenter"
    )]
    NotLocalServer,
    #[error("gossip refused: the peer's certificate lacks a name server.<datacenter>.<domain>")]
    NotServer,
}

/// What the server's configuration says about a type byte.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByteRules {
    /// The byte came inside TLS.
    pub(super) inside_tls: bool,
    /// TLS can be served.
    pub(super) can_tls: bool,
    /// Plain connections are refused.
    pub(super) verify_incoming: bool,
}

/// What the type byte at the start of a connection means.
pub(super) fn by_byte(byte: u8, rules: ByteRules) -> Route {
    if rules.verify_incoming && !rules.inside_tls && !matches!(byte, 3 | 7) {
        return Route::Refuse(Refusal::NotTls);
    }
    match byte {
        0 => Route::Single,
        1 => Route::Plug(Protocol::Raft),
        2 => Route::Refuse(Refusal::OldMultiplexing),
        3 | 7 if rules.inside_tls => Route::Refuse(Refusal::InnerTls),
        3 | 7 if !rules.can_tls => Route::Refuse(Refusal::NoTls),
        3 => Route::UpgradeTls,
        4 => Route::Multi,
        5 => Route::Plug(Protocol::Snapshot),
        6 => Route::AreaGossip,
        7 => Route::InsecureTls,
        _ => Route::Unknown,
    }
}

/// What the negotiated ALPN name means.
pub(super) fn by_alpn(name: Option<&str>) -> Route {
    match name {
        Some(alpn::RPC_SINGLE) => Route::Single,
        Some(alpn::RAFT) => Route::Plug(Protocol::Raft),
        Some(alpn::RPC_MULTI) => Route::Multi,
        Some(alpn::RPC_SNAPSHOT) => Route::Plug(Protocol::Snapshot),
        Some(alpn::RPC_GOSSIP) => Route::AreaGossip,
        Some(alpn::WAN_GOSSIP_PACKET) => Route::Plug(Protocol::GossipPacket),
        Some(alpn::WAN_GOSSIP_STREAM) => Route::Plug(Protocol::GossipStream),
        _ => Route::Unknown,
    }
}

/// Whether a peer may speak `protocol`. With TLS configured, raft is for servers of this datacenter and WAN gossip
/// for servers; Consul 1.8 let any certificate of the CA do it (CVE-2021-37219).
pub(super) fn admit(
    protocol: Protocol,
    identity: Option<&PeerIdentity>,
    own: Option<(&str, &str)>,
) -> Result<(), Refusal> {
    let Some((datacenter, domain)) = own else {
        return Ok(()); // No TLS here, so nobody has a certificate.
    };
    match protocol {
        Protocol::Raft if !identity.is_some_and(|peer| peer.is_server_of(datacenter, domain)) => {
            Err(Refusal::NotLocalServer)
        }
        Protocol::GossipPacket | Protocol::GossipStream
            if !identity.is_some_and(|peer| peer.is_server(domain)) =>
        {
            Err(Refusal::NotServer)
        }
        _ => Ok(()),
    }
}

/// Whether a peer that was not asked for a certificate may call `method`.
pub(super) fn is_insecure_method(method: &str) -> bool {
    INSECURE_METHODS.contains(&method)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(inside_tls: bool, can_tls: bool, verify_incoming: bool) -> ByteRules {
        ByteRules {
            inside_tls,
            can_tls,
            verify_incoming,
        }
    }

    #[test]
    fn every_byte_has_a_meaning() {
        let open = rules(false, true, false);
        let inside = rules(true, true, true);
        for (byte, outside_route, inside_route) in [
            (0, Route::Single, Route::Single),
            (1, Route::Plug(Protocol::Raft), Route::Plug(Protocol::Raft)),
            (
                2,
                Route::Refuse(Refusal::OldMultiplexing),
                Route::Refuse(Refusal::OldMultiplexing),
            ),
            (3, Route::UpgradeTls, Route::Refuse(Refusal::InnerTls)),
            (4, Route::Multi, Route::Multi),
            (
                5,
                Route::Plug(Protocol::Snapshot),
                Route::Plug(Protocol::Snapshot),
            ),
            (6, Route::AreaGossip, Route::AreaGossip),
            (7, Route::InsecureTls, Route::Refuse(Refusal::InnerTls)),
            (8, Route::Unknown, Route::Unknown),
            (0x16, Route::Unknown, Route::Unknown),
            (255, Route::Unknown, Route::Unknown),
        ] {
            assert_eq!(by_byte(byte, open), outside_route, "{byte}");
            assert_eq!(by_byte(byte, inside), inside_route, "{byte} inside TLS");
        }
    }

    #[test]
    fn plain_is_refused_when_incoming_is_verified_but_for_the_ways_into_tls() {
        for byte in 0..=255 {
            let route = by_byte(byte, rules(false, true, true));
            let refused = route == Route::Refuse(Refusal::NotTls);
            assert_eq!(refused, !matches!(byte, 3 | 7), "{byte}");
        }
        assert_eq!(
            by_byte(3, rules(false, false, false)),
            Route::Refuse(Refusal::NoTls)
        );
        assert_eq!(
            by_byte(7, rules(false, false, false)),
            Route::Refuse(Refusal::NoTls)
        );
    }

    #[test]
    fn every_alpn_name_has_a_meaning() {
        for name in alpn::ALL {
            assert_ne!(by_alpn(Some(name)), Route::Unknown, "{name}");
        }
        assert_eq!(by_alpn(Some("h2")), Route::Unknown);
        assert_eq!(by_alpn(None), Route::Unknown);
    }

    #[test]
    fn raft_and_wan_gossip_need_a_server_certificate() {
        let own = Some(("dc1", "consul"));
        let local = PeerIdentity::new(["server.dc1.consul"]);
        let remote = PeerIdentity::new(["server.dc2.consul"]);
        let client = PeerIdentity::new(["client.dc1.consul"]);
        let raft = |peer| admit(Protocol::Raft, peer, own);
        assert_eq!(raft(Some(&local)), Ok(()));
        for other in [Some(&remote), Some(&client), None] {
            assert_eq!(raft(other), Err(Refusal::NotLocalServer));
        }
        for protocol in [Protocol::GossipPacket, Protocol::GossipStream] {
            assert_eq!(admit(protocol, Some(&local), own), Ok(()));
            assert_eq!(admit(protocol, Some(&remote), own), Ok(()));
            assert_eq!(admit(protocol, Some(&client), own), Err(Refusal::NotServer));
            assert_eq!(admit(protocol, None, own), Err(Refusal::NotServer));
        }
        assert_eq!(admit(Protocol::Snapshot, Some(&client), own), Ok(()));
        assert_eq!(
            admit(Protocol::Raft, None, None),
            Ok(()),
            "a lab without TLS"
        );
    }
}
