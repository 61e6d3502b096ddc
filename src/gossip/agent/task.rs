//! The one task of an agent: hands what arrives to the core, and does what the core wants done.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::broadcast;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time;

use crate::gossip::Inbox;
use crate::gossip::Member;
use crate::gossip::Target;
use crate::gossip::Transport;
use crate::gossip::agent::exchange::Protection;
use crate::gossip::agent::exchange::StreamError;
use crate::gossip::agent::keyring_file;
use crate::gossip::agent::shared::Shared;
use crate::gossip::agent::shared::now;
use crate::gossip::agent::snapshot_file::SnapshotFile;
use crate::gossip::agent::streams;
use crate::gossip::serf::Exchange;
use crate::gossip::serf::MemberChange;
use crate::gossip::serf::Output;
use crate::gossip::swim::OutPacket;
use crate::gossip::swim::Token;
use crate::gossip::wire::Keyring;
use crate::gossip::wire::message::Ping;
use crate::gossip::wire::packet;
use crate::gossip::wire::serf::UserEvent;
use crate::hooks::BoxedStream;

/// Packets that are taken in before the core's wishes are looked at again.
const BATCH: usize = 64;
/// Packets on their way out. More are dropped: the network is stuck.
const MAX_SENDS: usize = 1024;
/// How long a packet may take to get out.
const SEND_LIMIT: Duration = Duration::from_secs(10);

/// Somebody to be joined, and who wants to know what came of it.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) to: Target,
    pub(super) reply: oneshot::Sender<Result<(), StreamError>>,
}

/// Files of the pool.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) keyring: Option<PathBuf>,
    pub(super) snapshot: Option<SnapshotFile>,
}

/// What handles are told.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) members: watch::Sender<Arc<[Member]>>,
    pub(super) events: broadcast::Sender<UserEvent>,
}

/// The task and all that only it uses.
pub(super) struct Task {
    pub(super) shared: Arc<Shared>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) inbox: Inbox,
    pub(super) joins: mpsc::Receiver<Join>,
    pub(super) told: Told,
    pub(super) files: Files,
    streams: JoinSet<()>,
    sends: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl Task {
    pub(super) fn new(
        shared: Arc<Shared>,
        (transport, inbox): (Arc<dyn Transport>, Inbox),
        joins: mpsc::Receiver<Join>,
        told: Told,
        files: Files,
    ) -> Self {
        Self {
            shared,
            transport,
            inbox,
            joins,
            told,
            files,
            streams: JoinSet::new(),
            sends: FuturesUnordered::new(),
        }
    }

    /// Runs until the agent shall stop, or nothing can arrive any more.
    pub(super) async fn run(mut self) {
        let shared = self.shared.clone();
        let ended = shared.stopped.clone().drop_guard();
        loop {
            self.settle();
            let deadline = shared.look(|core| core.next_deadline());
            tokio::select! {
                () = shared.stop.cancelled() => break,
                packet = self.inbox.packets.recv() => match packet {
                    Some(packet) => self.take_packets(packet),
                    None => break,
                },
                Some((from, stream)) = self.inbox.streams.recv() => self.serve(from, stream),
                Some(join) = self.joins.recv() => self.join(join),
                () = shared.wake.notified() => {}
                Some(()) = self.sends.next() => {}
                Some(_) = self.streams.join_next() => {}
                () = until(deadline) => self.tick(),
            }
        }
        self.settle();
        self.streams.shutdown().await;
        if let Some(file) = self.files.snapshot.take() {
            file.close().await;
        }
        drop(self); // Lets go of the network first.
        drop(ended);
    }

    fn tick(&self) {
        let health = self.shared.work(|core, now, rng| {
            core.tick(now, rng);
            core.swim().health_score()
        });
        metrics::gauge!("consul.memberlist.health.score").set(f64::from(health));
    }

    /// Does all that the core wants done.
    fn settle(&mut self) {
        let mut members_changed = false;
        while let Some(output) = self.shared.work(|core, _, _| core.poll_output()) {
            members_changed |= matches!(output, Output::Member(..));
            self.perform(output);
        }
        if members_changed {
            let members = self.shared.look(|core| core.members().cloned().collect());
            self.told.members.send_replace(members);
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Packet(packet) => self.send(packet),
            Output::StreamPing { to, ping, deadline } => self.probe(to, ping, deadline),
            Output::PushPull { to } => self.exchange(to, Exchange::Regular),
            Output::Reconnect { to } => self.exchange(to, Exchange::Meet),
            Output::Rejoin { to } => self.rejoin(to),
            Output::Member(change, member) => {
                count(change);
                tracing::info!(member = %member.name, status = member.status.as_str(), "gossip: member {change:?}");
            }
            Output::UserEvent(event) => {
                metrics::counter!("consul.serf.events").increment(1);
                let _ = self.told.events.send(event); // Maybe nobody listens.
            }
            Output::KeyReport { query, report } => {
                let waiting = self.shared.waiting.lock().reports.remove(&query);
                waiting.map(|waiting| waiting.send(report));
            }
            Output::Done { token, .. } => {
                let waiting = self.shared.waiting.lock().commands.remove(&token);
                waiting.map(|waiting| waiting.send(()));
            }
            Output::SaveKeyring { token, keyring } => self.save(token, keyring),
            Output::Snapshot(write) => {
                if self
                    .files
                    .snapshot
                    .as_ref()
                    .is_some_and(|file| !file.write(write))
                {
                    tracing::warn!(
                        "the disk is too slow for the gossip snapshot, which misses a change now"
                    );
                }
            }
            Output::Query(query) => tracing::debug!(?query, "nobody here answers this query"),
            // Nobody here asks queries but for keys.
            Output::QueryAck { .. } | Output::QueryAnswer { .. } | Output::QueryDone { .. } => {}
            Output::ConflictLost => {
                tracing::error!(
                    "gossip: most members know another node by this agent's name; rename one of them"
                );
                self.shared.stop.cancel();
            }
            Output::Left => self.shared.left.cancel(),
        }
    }

    fn probe(&mut self, to: Target, ping: Ping, deadline: Instant) {
        let limit = deadline.saturating_duration_since(now());
        let allowed = self.transport.reliable_probe_allowed(&to.name);
        self.stream(async move |shared, transport| {
            let seq_no = ping.seq_no;
            let answered = allowed && streams::ping(&shared, &*transport, &to, ping, limit).await;
            shared.tell(|core, _, _| core.stream_ping_done(seq_no, answered));
        });
    }

    fn rejoin(&mut self, to: Vec<Target>) {
        self.stream(async move |shared, transport| {
            streams::rejoin(&shared, &*transport, to).await;
        });
    }

    /// Runs something on a stream of its own.
    fn stream<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        run: impl FnOnce(Arc<Shared>, Arc<dyn Transport>) -> F,
    ) {
        self.streams
            .spawn(run(self.shared.clone(), self.transport.clone()));
    }

    fn exchange(&mut self, to: Target, exchange: Exchange) {
        self.stream(async move |shared, transport| {
            if let Err(error) = streams::push_pull(&shared, &*transport, &to, exchange).await {
                tracing::debug!(%to, %error, "gossip: the exchange of states failed");
            }
        });
    }

    fn join(&mut self, join: Join) {
        self.stream(async move |shared, transport| {
            let _ = join
                .reply
                .send(streams::join(&shared, &*transport, &join.to).await);
        });
    }

    fn serve(&mut self, from: SocketAddr, stream: BoxedStream) {
        match self.shared.limits.admit(from, stream) {
            Some(admitted) => {
                self.streams
                    .spawn(streams::serve(self.shared.clone(), admitted));
            }
            None => {
                metrics::counter!("consul.memberlist.tcp.refused").increment(1);
                let why = "there are too many gossip streams, or too many of this address";
                self.shared
                    .complain(from.ip(), "a gossip stream is closed", &why);
            }
        }
    }

    /// Opens a packet, and others that wait, and hands their messages to the core.
    fn take_packets(&mut self, first: (SocketAddr, Bytes)) {
        let protection = self.shared.protection.load_full();
        let mut next = Some(first);
        for _ in 0..BATCH {
            let Some((from, bytes)) = next else {
                return;
            };
            match packet::open(&bytes, &protection.incoming()) {
                Ok(packet) => self.take(from, packet),
                Err(error) => {
                    metrics::counter!("consul.memberlist.packet.refused").increment(1);
                    self.shared
                        .complain(from.ip(), "a gossip packet is ignored", &error);
                }
            }
            next = self.inbox.packets.try_recv().ok();
        }
    }

    fn take(&self, from: SocketAddr, packet: packet::Packet) {
        if let Some(error) = packet.first_error {
            metrics::counter!("consul.memberlist.message.refused").increment(packet.skipped as u64);
            self.shared
                .complain(from.ip(), "gossip messages are ignored", &error);
        }
        self.shared.work(|core, now, rng| {
            for message in packet.messages {
                core.handle_message(now, from, message, rng);
            }
        });
    }

    fn send(&mut self, packet: OutPacket) {
        if self.sends.len() >= MAX_SENDS {
            metrics::counter!("consul.memberlist.packet.unsent").increment(1);
            return;
        }
        let OutPacket {
            to,
            body,
            checksum,
            probe,
        } = packet;
        let protection = self.shared.protection.load();
        let sealed = packet::seal(body, &protection.outgoing(checksum), rand::random());
        let sealed = match sealed {
            Ok(sealed) => Bytes::from(sealed),
            Err(error) => {
                tracing::error!(%error, "a gossip packet cannot be sealed");
                return;
            }
        };
        let (shared, transport) = (self.shared.clone(), self.transport.clone());
        self.sends.push(Box::pin(async move {
            let sent = time::timeout(SEND_LIMIT, transport.send_packet(&to, sealed)).await;
            let Err(error) = sent.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            else {
                return;
            };
            shared.complain(to.address.ip(), "a gossip packet cannot be sent", &error);
            if let Some(seq_no) = probe {
                shared.tell(|core, now, rng| core.probe_not_sent(now, seq_no, rng));
            }
        }));
    }

    /// Puts changed keys in force, and remembers them.
    fn save(&mut self, token: Token, keyring: Keyring) {
        let saved = match &self.files.keyring {
            Some(path) => keyring_file::save(path, &keyring).map_err(|error| error.to_string()),
            None => Ok(()),
        };
        if let Err(error) = &saved {
            tracing::error!(%error, "the gossip keys are changed, but a restart will not know that");
        }
        let protection = Protection {
            keyring: Some(keyring),
            ..Protection::clone(&self.shared.protection.load())
        };
        self.shared.protection.store(Arc::new(protection));
        self.shared
            .work(|core, now, rng| core.keyring_saved(now, token, saved, rng));
    }
}

/// Counts what happened to a member, by Consul's names.
fn count(change: MemberChange) {
    match change {
        MemberChange::Join => metrics::counter!("consul.serf.member.join").increment(1),
        MemberChange::Leave => metrics::counter!("consul.serf.member.left").increment(1),
        MemberChange::Failed => metrics::counter!("consul.serf.member.failed").increment(1),
        MemberChange::Update => metrics::counter!("consul.serf.member.update").increment(1),
        MemberChange::Reap => metrics::counter!("consul.serf.member.reap").increment(1),
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
