//! A network in memory under gossip: packets can be lost and late, and members cut off from each other.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time;

use crate::gossip::Inbox;
use crate::gossip::Target;
use crate::gossip::Transport;
use crate::gossip::transport::InboxSender;
use crate::hooks::BoxedStream;

/// Bytes that one side of a stream may be ahead of the other.
const PIPE: usize = 64 * 1024;

/// A network in memory. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Network(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: StdRng,
    members: BTreeMap<SocketAddr, InboxSender>,
    /// Ordered pairs that do not reach each other.
    cut: BTreeSet<(SocketAddr, SocketAddr)>,
    loss: f64,
    delay: Duration,
}

impl Network {
    /// A network that loses nothing and delivers at once; `seed` decides about loss and delay later.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng: StdRng::seed_from_u64(seed),
            members: BTreeMap::new(),
            cut: BTreeSet::new(),
            loss: 0.0,
            delay: Duration::ZERO,
        })))
    }

    /// A place at `address`. Attaching there again takes it away from who had it.
    pub fn attach(&self, address: SocketAddr) -> (Memory, Inbox) {
        let (sender, inbox) = Inbox::channel();
        self.0.lock().members.insert(address, sender);
        let network = self.clone();
        (Memory { network, address }, inbox)
    }

    /// Loses this share of the packets, and delays each of the others by up to `delay`.
    pub fn worsen(&self, loss: f64, delay: Duration) {
        let mut state = self.0.lock();
        (state.loss, state.delay) = (loss, delay);
    }

    /// Keeps packets and new streams of `from` away from `to`; not the other way round.
    pub fn cut(&self, from: SocketAddr, to: SocketAddr) {
        self.0.lock().cut.insert((from, to));
    }

    /// Cuts every member of one group off from every member of the other, both ways.
    pub fn part(&self, one: &[SocketAddr], other: &[SocketAddr]) {
        for &a in one {
            for &b in other {
                self.cut(a, b);
                self.cut(b, a);
            }
        }
    }

    /// Mends all that was cut.
    pub fn heal(&self) {
        self.0.lock().cut.clear();
    }

    /// Whoever is at `to` and can be reached from there.
    fn way(&self, from: SocketAddr, to: SocketAddr) -> io::Result<InboxSender> {
        let state = self.0.lock();
        match state.members.get(&to) {
            _ if state.cut.contains(&(from, to)) => Err(io::ErrorKind::TimedOut.into()),
            Some(inbox) => Ok(inbox.clone()),
            None => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }

    /// When the next packet arrives, or that it never does.
    fn fate(&self) -> Option<Duration> {
        let state = &mut *self.0.lock();
        let lost = state.rng.random_bool(state.loss);
        let delay = state.delay.mul_f64(state.rng.random());
        (!lost).then_some(delay)
    }
}

/// One member's side of a [`Network`].
#[derive(Debug)]
pub struct Memory {
    network: Network,
    address: SocketAddr,
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut state = self.network.0.lock();
        // Whoever took the place over stays.
        if state
            .members
            .get(&self.address)
            .is_some_and(InboxSender::is_closed)
        {
            state.members.remove(&self.address);
        }
    }
}

#[async_trait]
impl Transport for Memory {
    async fn send_packet(&self, to: &Target, packet: Bytes) -> io::Result<()> {
        let (Ok(inbox), Some(delay)) = (
            self.network.way(self.address, to.address),
            self.network.fate(),
        ) else {
            return Ok(()); // As with UDP, nobody is told.
        };
        let from = self.address;
        if delay.is_zero() {
            let _ = inbox.packet(from, packet);
        } else {
            tokio::spawn(async move {
                time::sleep(delay).await;
                let _ = inbox.packet(from, packet);
            });
        }
        Ok(())
    }

    async fn dial(&self, to: &Target, limit: Duration) -> io::Result<BoxedStream> {
        let inbox = match self.network.way(self.address, to.address) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                time::sleep(limit).await;
                return Err(error);
            }
            other => other?,
        };
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let sent = inbox.stream(self.address, Box::new(theirs)).await;
        sent.map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(Box::new(ours))
    }
}
