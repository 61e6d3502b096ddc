//! What the core wants done, and what it tells.

use std::time::Instant;

use bytes::Bytes;

use crate::gossip::Member;
use crate::gossip::Target;
use crate::gossip::serf::IncomingQuery;
use crate::gossip::serf::KeyReport;
use crate::gossip::serf::MemberChange;
use crate::gossip::serf::QueryId;
use crate::gossip::serf::Write;
use crate::gossip::swim::OutPacket;
use crate::gossip::swim::Token;
use crate::gossip::wire::Keyring;
use crate::gossip::wire::message::Ping;
use crate::gossip::wire::serf::UserEvent;
use crate::model::NodeName;

/// What the core wants done, or tells; in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Seal and send a packet, as [swim](crate::gossip::swim::Output::Packet) asks.
    Packet(OutPacket),
    /// Ask over a stream whether a node is there, as [swim](crate::gossip::swim::Output::StreamPing) asks.
    StreamPing {
        /// Whom to ask.
        to: Target,
        /// What to send.
        ping: Ping,
        /// When the answer stops to count.
        deadline: Instant,
    },
    /// Exchange all states with a member over a stream: [`Exchange::Regular`](crate::gossip::serf::Exchange).
    PushPull {
        /// With whom.
        to: Target,
    },
    /// Try to reach a member that failed: [`Exchange::Meet`](crate::gossip::serf::Exchange). It need not succeed.
    Reconnect {
        /// Whom.
        to: Target,
    },
    /// Join again after a restart: the first of these that lets us, by [`Exchange::Meet`](crate::gossip::serf::Exchange);
    /// say so with [`joined`](crate::gossip::serf::Serf::joined).
    Rejoin {
        /// Members before the restart.
        to: Vec<Target>,
    },
    /// Something happened to a member.
    Member(MemberChange, Member),
    /// Somebody, maybe we, tells all members something.
    UserEvent(UserEvent),
    /// Somebody, maybe we, asks something that is not serf's own. Answer with
    /// [`respond`](crate::gossip::serf::Serf::respond), or not at all.
    Query(IncomingQuery),
    /// A member has received our query.
    QueryAck {
        /// The query.
        query: QueryId,
        /// Who.
        from: NodeName,
    },
    /// A member answers our query.
    QueryAnswer {
        /// The query.
        query: QueryId,
        /// Who.
        from: NodeName,
        /// What it answers.
        payload: Bytes,
    },
    /// Nothing more comes for this query.
    QueryDone {
        /// The query.
        query: QueryId,
    },
    /// What came of an operation on the keys of all members.
    KeyReport {
        /// The query by which it was done.
        query: QueryId,
        /// What came of it.
        report: KeyReport,
    },
    /// Save the keys, which changed, and say so with [`keyring_saved`](crate::gossip::serf::Serf::keyring_saved). They
    /// count from now on.
    SaveKeyring {
        /// Names this change.
        token: Token,
        /// The keys.
        keyring: Keyring,
    },
    /// Write to the snapshot file.
    Snapshot(Write),
    /// The command with this token is done.
    Done {
        /// The token that came with the command.
        token: Token,
        /// Whether it was sent often enough in time. If not, it still goes around, and push/pulls carry it.
        sent: bool,
    },
    /// Most members know another node by our name: shut down.
    ConflictLost,
    /// We have left the pool; the shell may stop now.
    Left,
}
