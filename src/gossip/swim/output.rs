//! What the core wants done, and what it tells.

use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;

use bytes::Bytes;

use crate::gossip::Target;
use crate::gossip::swim::Node;
use crate::gossip::wire::message::Ping;

/// What the core wants done, or tells; in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Seal and send a packet.
    Packet(OutPacket),
    /// Ask over a stream whether the node is there, and say so with
    /// [`stream_ping_done`](crate::gossip::swim::Swim::stream_ping_done). No answer, or none in time, is a no.
    StreamPing {
        /// Whom to ask.
        to: Target,
        /// What to send.
        ping: Ping,
        /// When the answer stops to count.
        deadline: Instant,
    },
    /// Exchange all states with a member over a stream: send
    /// [`local_state`](crate::gossip::swim::Swim::local_state), give what comes back to
    /// [`merge_remote_state`](crate::gossip::swim::Swim::merge_remote_state). Not a join.
    PushPull {
        /// With whom.
        to: Target,
    },
    /// For the layer above.
    Event(Event),
}

/// A packet to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutPacket {
    /// Where to.
    pub to: Target,
    /// One message, or a compound of several: neither compressed nor encrypted yet.
    pub body: Vec<u8>,
    /// Whether the receiver is known to understand checksums.
    pub checksum: bool,
    /// The number of the probe when it is our own probe. If sending fails because of the remote end, say so with
    /// [`probe_not_sent`](crate::gossip::swim::Swim::probe_not_sent).
    pub probe: Option<u32>,
}

/// Names a broadcast whose end somebody waits for. Chosen by who queues it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A node is alive that was not known, or was dead, or had left; also we ourselves, first of all.
    Join(Node),
    /// A node is dead or has left, as its state says.
    Leave(Node),
    /// A node changed its meta.
    Update(Node),
    /// Two nodes claim one name.
    Conflict {
        /// The one that keeps it.
        existing: Node,
        /// The one that is ignored.
        other: Node,
    },
    /// A message of the layer above.
    User {
        /// Who sent the packet: with gateways, the gateway.
        from: SocketAddr,
        /// The message.
        message: Bytes,
    },
    /// A node answered a direct probe in time.
    Pong {
        /// Who.
        node: Node,
        /// From sending the probe to the answer.
        rtt: Duration,
        /// What the layer above there has put into it.
        payload: Bytes,
    },
    /// A broadcast was sent as often as it ever will be, or there is nobody to send it to.
    Broadcast(Token),
}
