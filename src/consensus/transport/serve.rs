//! Serves the raft connections of the other servers. The RPC port has checked their certificates.

use crate::consensus::handle::Consensus;
use crate::consensus::transport::receive;
use crate::consensus::transport::wire::{Frame, Greeting, Kind, WireError, encode_answer};
use crate::net::Stream;
use crate::rpc::Incoming;
use crate::telemetry::Quiet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncWriteExt, BufReader, BufWriter, ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// How long a peer may take to say who it is.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests of one connection served at a time.
const AT_ONCE: usize = 8;
/// Bytes read or written with one call of the system.
const BUFFER: usize = 64 << 10;

/// Serves what [`rpc::Plugs`](crate::rpc::Plugs) hands over for [`rpc::Protocol::Raft`](crate::rpc::Protocol) until
/// `stop`; then all connections are closed. A peer that does not belong here is refused with a line in the log.
pub async fn serve_raft(
    consensus: Consensus,
    mut incoming: mpsc::Receiver<Incoming>,
    stop: CancellationToken,
) {
    let quiet = Arc::new(Quiet::default());
    let mut connections = JoinSet::new();
    loop {
        let next = tokio::select! {
            next = incoming.recv() => next,
            Some(_) = connections.join_next() => continue,
            () = stop.cancelled() => break,
        };
        let Some(Incoming { stream, context }) = next else {
            break;
        };
        let span = tracing::debug_span!("raft peer", peer = %context.peer);
        let served = connection(consensus.clone(), stream, context.peer, quiet.clone());
        connections.spawn(served.instrument(span));
    }
    connections.shutdown().await;
}

async fn connection(consensus: Consensus, stream: Stream, peer: SocketAddr, quiet: Arc<Quiet>) {
    let (read, write) = tokio::io::split(stream);
    let mut read = BufReader::with_capacity(BUFFER, read);
    let mut write = BufWriter::with_capacity(BUFFER, write);
    let mut who = None;
    let served = async {
        let greeting = greet(&mut read, &mut write).await?;
        tracing::debug!(node = %greeting, "raft connection");
        who = Some(greeting);
        serve(consensus, read, write).await
    };
    match served.await {
        Ok(()) => {}
        Err(WireError::Io(error)) => tracing::debug!(%error, "raft connection ended"),
        Err(error) => {
            if let Some(unsaid) = quiet.speak(now(), peer.ip(), &error.to_string()) {
                let node = who.map_or_else(|| "unknown".to_owned(), |who| who.to_string());
                tracing::warn!(%peer, node, unsaid, "raft connection refused: {error}");
            }
        }
    }
}

/// Reads the greeting and answers it.
async fn greet(
    read: &mut BufReader<ReadHalf<Stream>>,
    write: &mut BufWriter<WriteHalf<Stream>>,
) -> Result<Greeting, WireError> {
    let greeting = tokio::time::timeout(GREETING_TIMEOUT, Greeting::read(read)).await;
    let greeting = greeting.unwrap_or(Err(WireError::Slow));
    let answer = match &greeting {
        Ok(_) => encode_answer(Ok(())),
        // Whoever does not speak our language would not understand why.
        Err(error @ (WireError::Version(_) | WireError::Greeting(_))) => {
            encode_answer(Err(&error.to_string()))
        }
        Err(_) => return greeting,
    };
    write.write_all(&answer).await?;
    write.flush().await?;
    greeting
}

/// Answers requests, several at a time, until the peer closes or breaks the rules.
async fn serve(
    consensus: Consensus,
    read: BufReader<ReadHalf<Stream>>,
    write: BufWriter<WriteHalf<Stream>>,
) -> Result<(), WireError> {
    let (answers, waiting) = mpsc::channel(AT_ONCE);
    let led = LedHere {
        term: Arc::default(),
        consensus: consensus.clone(),
    };
    tokio::select! {
        ended = read_requests(consensus, read, answers, led.term.clone()) => ended,
        ended = write_answers(write, waiting) => ended,
    }
}

/// Tells when a connection ends on which the leader spoke: its process may have ended.
struct LedHere {
    /// The leader's term; 0 when no leader spoke.
    term: Arc<AtomicU64>,
    consensus: Consensus,
}

impl Drop for LedHere {
    fn drop(&mut self) {
        let term = self.term.load(Ordering::Relaxed);
        if term > 0 {
            self.consensus.inner.contact.leader_gone(term);
        }
    }
}

async fn read_requests(
    consensus: Consensus,
    mut read: BufReader<ReadHalf<Stream>>,
    answers: mpsc::Sender<Frame>,
    led: Arc<AtomicU64>,
) -> Result<(), WireError> {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut working = JoinSet::new();
    while let Some(frame) = Frame::read(&mut read).await? {
        if frame.kind != Kind::Request {
            return Err(WireError::Kind(1));
        }
        let place = places.clone().acquire_owned().await;
        let (consensus, answers, led) = (consensus.clone(), answers.clone(), led.clone());
        working.spawn(async move {
            let _place = place;
            let (kind, body) = match receive(&consensus, &frame.body).await {
                Ok(received) => {
                    led.fetch_max(received.led.unwrap_or_default(), Ordering::Relaxed);
                    (Kind::Answer, received.reply)
                }
                Err(error) => (Kind::Failure, error.to_string().into()),
            };
            let number = frame.number;
            let _ = answers.send(Frame { number, kind, body }).await; // The connection may be over.
        });
        while working.try_join_next().is_some() {}
    }
    Ok(())
}

async fn write_answers(
    mut write: BufWriter<WriteHalf<Stream>>,
    mut waiting: mpsc::Receiver<Frame>,
) -> Result<(), WireError> {
    while let Some(frame) = waiting.recv().await {
        let mut next = Some(frame);
        while let Some(frame) = next {
            write.write_all(&frame.header()?).await?;
            write.write_all(&frame.body).await?;
            next = waiting.try_recv().ok();
        }
        write.flush().await?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the shell reads the clock")]
fn now() -> Instant {
    Instant::now()
}
