//! ALPN names (RFC 7301) of the RPC port, in the order in which Consul offers them.

/// One net/rpc session, as type byte 0.
pub const RPC_SINGLE: &str = "consul/rpc-single";
/// Raft, as type byte 1.
pub const RAFT: &str = "consul/raft";
/// A yamux session of net/rpc streams, as type byte 4.
pub const RPC_MULTI: &str = "consul/rpc-multi";
/// Snapshot save and restore, as type byte 5.
pub const RPC_SNAPSHOT: &str = "consul/rpc-snapshot";
/// Gossip of network areas, as type byte 6.
pub const RPC_GOSSIP: &str = "consul/rpc-gossip";
/// Gossip packets from other datacenters through mesh gateways.
pub const WAN_GOSSIP_PACKET: &str = "consul/wan-gossip/packet";
/// Gossip streams from other datacenters through mesh gateways.
pub const WAN_GOSSIP_STREAM: &str = "consul/wan-gossip/stream";

/// All of them, in the order in which the server prefers them.
pub const ALL: [&str; 7] = [
    RPC_SINGLE,
    RAFT,
    RPC_MULTI,
    RPC_SNAPSHOT,
    RPC_GOSSIP,
    WAN_GOSSIP_PACKET,
    WAN_GOSSIP_STREAM,
];
