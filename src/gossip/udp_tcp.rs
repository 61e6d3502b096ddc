//! Gossip in its plain form: packets over UDP, streams over TCP, both on the same port.
//!
//! Two tasks fill the [`Inbox`], one for each protocol. They end when the transport or the inbox is dropped.

use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::net::UdpSocket;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

use crate::gossip::Inbox;
use crate::gossip::Target;
use crate::gossip::Transport;
use crate::gossip::transport::InboxSender;
use crate::hooks::BoxedStream;
use crate::net;
use crate::net::ListenError;

/// Longest packet of UDP.
const MAX_PACKET: usize = 65_535;
/// Rest after a failed accept or receive: mostly, file descriptors or memory have run out.
const PAUSE: Duration = Duration::from_millis(50);
/// How many ports are tried when any will do, but it must be free for both protocols.
const TRIES: usize = 16;

/// A port that gossips over UDP and TCP.
#[derive(Debug)]
pub struct UdpTcp {
    packets: Arc<UdpSocket>,
    address: SocketAddr,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl UdpTcp {
    /// Opens both sockets on `address` and starts to receive; `key` is the configuration key that errors name. Port 0
    /// takes a port that is free for both.
    ///
    /// # Errors
    /// Names the key, the address and what to do.
    pub fn bind(address: SocketAddr, key: &'static str) -> Result<(Self, Inbox), ListenError> {
        let (listener, packets, address) = open(address, key)?;
        let (sender, inbox) = Inbox::channel();
        let packets = Arc::new(packets);
        let tasks = [
            tokio::spawn(receive(packets.clone(), sender.clone())),
            tokio::spawn(accept(listener, sender)),
        ];
        let transport = Self {
            packets,
            address,
            _tasks: tasks.map(AbortOnDropHandle::new),
        };
        Ok((transport, inbox))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn open(
    address: SocketAddr,
    key: &'static str,
) -> Result<(TcpListener, UdpSocket, SocketAddr), ListenError> {
    let mut tries = if address.port() == 0 { TRIES } else { 1 };
    loop {
        tries -= 1;
        let listener = net::listen(address, key)?;
        let local = listener.local_addr();
        let local = local.map_err(|reason| ListenError::Other {
            key,
            address,
            reason,
        })?;
        match net::listen_packets(local, key) {
            Ok(packets) => return Ok((listener, packets, local)),
            Err(ListenError::InUse { .. }) if tries > 0 => {}
            Err(error) => return Err(error),
        }
    }
}

async fn receive(socket: Arc<UdpSocket>, inbox: InboxSender) {
    let mut buffer = vec![0; MAX_PACKET];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            () = inbox.closed() => return,
        };
        match received {
            Ok((len, from)) => {
                metrics::counter!("consul.memberlist.udp.received").increment(len as u64);
                let packet = Bytes::copy_from_slice(buffer.get(..len).unwrap_or_default());
                if inbox.packet(canonical(from), packet).is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "cannot receive gossip packets");
                time::sleep(PAUSE).await;
            }
        }
    }
}

async fn accept(listener: TcpListener, inbox: InboxSender) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = inbox.closed() => return,
        };
        match accepted {
            Ok((stream, from)) => {
                metrics::counter!("consul.memberlist.tcp.accept").increment(1);
                let _ = stream.set_nodelay(true); // Only makes small messages slower where it fails.
                let stream: BoxedStream = Box::new(stream);
                if inbox.stream(canonical(from), stream).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept gossip streams; are there too many open files?");
                time::sleep(PAUSE).await;
            }
        }
    }
}

/// IPv4 as such, also when it came in through a socket of IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[async_trait]
impl Transport for UdpTcp {
    async fn send_packet(&self, to: &Target, packet: Bytes) -> io::Result<()> {
        let mut address = to.address;
        if let (IpAddr::V4(ip), true) = (address.ip(), self.address.is_ipv6()) {
            address.set_ip(ip.to_ipv6_mapped().into()); // The only form that such a socket takes.
        }
        let sent = self.packets.send_to(&packet, address).await?;
        metrics::counter!("consul.memberlist.udp.sent").increment(sent as u64);
        Ok(())
    }

    async fn dial(&self, to: &Target, limit: Duration) -> io::Result<BoxedStream> {
        metrics::counter!("consul.memberlist.tcp.connect").increment(1);
        let dialed = time::timeout(limit, TcpStream::connect(to.address)).await;
        let stream = dialed.map_err(|_| io::ErrorKind::TimedOut)??;
        let _ = stream.set_nodelay(true); // Only makes small messages slower where it fails.
        Ok(Box::new(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::io::AsyncWriteExt;

    fn open(address: &str) -> (UdpTcp, Inbox, Target) {
        let (transport, inbox) = UdpTcp::bind(address.parse().unwrap(), "ports.serf_lan").unwrap();
        let to = Target {
            name: "b".into(),
            address: transport.address(),
        };
        (transport, inbox, to)
    }

    #[tokio::test]
    async fn packets_and_streams_arrive_on_one_port() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (a, _inbox, to_a) = open(address);
            let (_b, mut inbox, to) = open(address);
            a.send_packet(&to, Bytes::from_static(b"hello"))
                .await
                .unwrap();
            let (from, packet) = inbox.packets.recv().await.unwrap();
            assert_eq!((from, &*packet), (to_a.address, &b"hello"[..]));

            let mut out = a.dial(&to, Duration::from_secs(5)).await.unwrap();
            out.write_all(b"state").await.unwrap();
            drop(out);
            let (_, mut stream) = inbox.streams.recv().await.unwrap();
            let mut read = Vec::new();
            stream.read_to_end(&mut read).await.unwrap();
            assert_eq!(read, b"state");
        }
    }

    #[tokio::test]
    async fn a_socket_of_both_families_reaches_the_old_one() {
        let (a, mut inbox_a, _) = open("[::]:0");
        let (b, mut inbox, to) = open("127.0.0.1:0");
        a.send_packet(&to, Bytes::from_static(b"1")).await.unwrap();
        let (from, _) = inbox.packets.recv().await.unwrap();
        let back = Target {
            name: "a".into(),
            address: from,
        };
        b.send_packet(&back, Bytes::from_static(b"2"))
            .await
            .unwrap();
        let (from, _) = inbox_a.packets.recv().await.unwrap();
        assert_eq!(from, to.address);
    }

    #[tokio::test]
    async fn packets_that_nobody_reads_are_dropped() {
        let (sender, mut inbox) = Inbox::channel();
        for _ in 0..Inbox::PACKETS + 10 {
            let from = "127.0.0.1:1".parse().unwrap();
            sender.packet(from, Bytes::new()).unwrap();
        }
        drop(sender);
        let mut waiting = 0;
        while inbox.packets.recv().await.is_some() {
            waiting += 1;
        }
        assert_eq!(waiting, Inbox::PACKETS);
    }

    #[tokio::test]
    async fn a_port_in_use_for_packets_is_said_to_be_so_and_dropping_frees_it() {
        let (a, inbox, to) = open("127.0.0.1:0");
        let error = UdpTcp::bind(to.address, "ports.serf_lan").unwrap_err();
        assert!(matches!(error, ListenError::InUse { .. }), "{error}");
        drop((a, inbox));
        let mut opened = UdpTcp::bind(to.address, "ports.serf_lan");
        while opened.is_err() {
            tokio::task::yield_now().await; // The tasks end soon.
            opened = UdpTcp::bind(to.address, "ports.serf_lan");
        }
    }

    #[tokio::test]
    async fn a_refused_stream_is_an_error() {
        let (a, _inbox, _) = open("127.0.0.1:0");
        let gone = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
        let to = Target {
            name: "gone".into(),
            address: gone.local_addr().unwrap(),
        };
        drop(gone);
        let error = a.dial(&to, Duration::from_secs(5)).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
