//! How gossip gets out and in: the seam between the agent of a pool and the network under it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::gossip::Target;
use crate::hooks::BoxedStream;
use crate::model::NodeName;

/// Gets packets and streams to a member. What it sends is sealed already.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Sends a packet. That it was sent does not say that it arrived.
    ///
    /// # Errors
    /// What the system says, or that there is no way to the member.
    async fn send_packet(&self, to: &Target, packet: Bytes) -> io::Result<()>;

    /// Opens a stream, in at most `limit`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after `limit`; what the system says; or that there is no way to the member.
    async fn dial(&self, to: &Target, limit: Duration) -> io::Result<BoxedStream>;

    /// Whether a member whose packets are not answered is probed over a stream, too.
    fn reliable_probe_allowed(&self, to: &NodeName) -> bool {
        let _ = to;
        true
    }
}

/// What arrives for the agent of a pool, and from where. Whoever fills it must drop packets rather than wait.
#[derive(Debug)]
pub struct Inbox {
    /// Packets, as they were sent.
    pub packets: mpsc::Receiver<(SocketAddr, Bytes)>,
    /// Streams that others opened.
    pub streams: mpsc::Receiver<(SocketAddr, BoxedStream)>,
}

impl Inbox {
    /// Packets that may wait for the agent: memberlist's depth.
    pub const PACKETS: usize = 1024;
    /// Streams that may wait for the agent.
    pub const STREAMS: usize = 64;

    /// An inbox and the two ends that fill it.
    pub fn channel() -> (InboxSender, Self) {
        let (packets, from_packets) = mpsc::channel(Self::PACKETS);
        let (streams, from_streams) = mpsc::channel(Self::STREAMS);
        let inbox = Self {
            packets: from_packets,
            streams: from_streams,
        };
        (InboxSender { packets, streams }, inbox)
    }
}

/// Fills an [`Inbox`].
#[derive(Debug, Clone)]
pub struct InboxSender {
    packets: mpsc::Sender<(SocketAddr, Bytes)>,
    streams: mpsc::Sender<(SocketAddr, BoxedStream)>,
}

impl InboxSender {
    /// Hands a packet over, or drops it and counts that while too many wait.
    ///
    /// # Errors
    /// [`Closed`] when the agent is gone.
    pub fn packet(&self, from: SocketAddr, packet: Bytes) -> Result<(), Closed> {
        match self.packets.try_send((from, packet)) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                metrics::counter!("consul.memberlist.packet.dropped").increment(1);
                Ok(())
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Closed),
        }
    }

    /// Hands a stream over, once there is room for it.
    ///
    /// # Errors
    /// [`Closed`] when the agent is gone.
    pub async fn stream(&self, from: SocketAddr, stream: BoxedStream) -> Result<(), Closed> {
        let sent = self.streams.send((from, stream)).await;
        sent.map_err(|_| Closed)
    }

    /// Whether the agent is gone.
    pub fn is_closed(&self) -> bool {
        self.packets.is_closed()
    }

    /// Waits until the agent is gone.
    pub async fn closed(&self) {
        self.packets.closed().await;
    }
}

/// The agent of the pool is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the gossip agent has stopped")]
pub struct Closed;
