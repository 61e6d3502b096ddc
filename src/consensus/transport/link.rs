//! One connection to a peer, made when it is needed and made again when it breaks.
//!
//! Many requests are under way at a time; each has a number, and answers come in any order. A request whose asker gave
//! up before it was written is not sent any more.

use crate::consensus::transport::TransportError;
use crate::consensus::transport::dial::Dialler;
use crate::consensus::transport::wire::{Frame, Kind, WireError};
use crate::net::Stream;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader, BufWriter, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// Requests that may wait to be written.
const QUEUE: usize = 16;
/// Requests that may wait for an answer; whoever leaves so many unanswered is taken for dead.
const UNANSWERED: usize = 64;
/// How long a connection is kept that nobody uses. A leader uses all of its own all the time.
const IDLE: Duration = Duration::from_secs(60);
/// Rest after a failed dial; doubled with each failure up to the longest.
const FIRST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_millis(400);
/// Bytes read or written with one call of the system.
const BUFFER: usize = 64 << 10;

type Answer = oneshot::Sender<Result<Bytes, TransportError>>;

/// A request with the place for its answer.
pub(crate) struct Ask {
    request: Bytes,
    answer: Answer,
}

/// The way to a peer. Dropping it ends the connection.
#[derive(Clone)]
pub(crate) struct Link {
    asks: mpsc::Sender<Ask>,
}

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the connection was idle")]
    Idle,
    #[error("nobody needs the connection any more")]
    Unused,
    #[error("no answer within {0:?}")]
    Stalled(Duration),
    #[error("{UNANSWERED} requests are unanswered")]
    TooMany,
    #[error("the peer closed the connection")]
    Closed,
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Requests that were written and wait for an answer.
#[derive(Default)]
struct Waiting {
    /// With the time at which each was written, oldest first.
    asks: BTreeMap<u32, (Answer, Instant)>,
    /// When the peer was last heard.
    heard: Option<Instant>,
}

/// Shared by the two halves of a connection.
#[derive(Default)]
struct Pending {
    waiting: Mutex<Waiting>,
    /// Told when the first of the waiting requests is written.
    begun: Notify,
}

impl Link {
    /// Starts a task that connects when the first request comes. A peer that says nothing for `stall` although it owes
    /// an answer is dialled anew.
    pub(crate) fn start(dialler: Dialler, stall: Duration) -> Self {
        let (asks, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(run(dialler, stall, waiting));
        Self { asks }
    }

    /// Whether it fell idle and ended: a new one is needed then.
    pub(crate) fn is_over(&self) -> bool {
        self.asks.is_closed()
    }

    /// Sends a request and waits for its answer, however long that takes. `None` if the link is over and the request was
    /// not sent.
    pub(crate) async fn call(&self, request: Bytes) -> Option<Result<Bytes, TransportError>> {
        let (answer, answered) = oneshot::channel();
        self.asks.send(Ask { request, answer }).await.ok()?;
        answered.await.ok()
    }
}

async fn run(dialler: Dialler, stall: Duration, mut asks: mpsc::Receiver<Ask>) {
    let (mut rest, mut lost) = (FIRST_REST, false);
    let peer = dialler.address();
    while let Ok(Some(first)) = timeout(IDLE, asks.recv()).await {
        let failure = match dialler.dial().await {
            Ok(stream) => {
                rest = FIRST_REST;
                if std::mem::take(&mut lost) {
                    tracing::info!(peer, "the raft peer is reached again");
                }
                match serve(stream, first, &mut asks, stall).await {
                    End::Idle | End::Unused => return,
                    end => TransportError(format!("{peer}: {end}")),
                }
            }
            Err(failure) => {
                let _ = first.answer.send(Err(failure.clone())); // The asker may have given up.
                failure
            }
        };
        if !std::mem::replace(&mut lost, true) {
            tracing::warn!("no raft connection to {failure}");
        }
        refuse(&mut asks, &failure, rest).await;
        rest = (rest * 2).min(LONGEST_REST);
    }
}

/// Refuses whoever asks during the rest after a failure.
async fn refuse(asks: &mut mpsc::Receiver<Ask>, failure: &TransportError, rest: Duration) {
    let refusing = async {
        while let Some(ask) = asks.recv().await {
            let _ = ask.answer.send(Err(failure.clone()));
        }
    };
    let _ = timeout(rest, refusing).await; // Passing time is the purpose.
}

/// Uses a connection until it ends; whoever waits for an answer then learns why there is none.
async fn serve(stream: Stream, first: Ask, asks: &mut mpsc::Receiver<Ask>, stall: Duration) -> End {
    let pending = Pending::default();
    let (read, write) = tokio::io::split(stream);
    let ended = tokio::select! {
        end = write_requests(write, first, asks, &pending) => end,
        end = read_answers(read, &pending) => end,
        end = stalled(&pending, stall) => Err(end),
    };
    let end = ended.err().unwrap_or(End::Closed);
    let waiting = std::mem::take(&mut *pending.waiting.lock());
    for (answer, _) in waiting.asks.into_values() {
        let _ = answer.send(Err(TransportError(end.to_string())));
    }
    end
}

async fn write_requests(
    write: WriteHalf<Stream>,
    first: Ask,
    asks: &mut mpsc::Receiver<Ask>,
    pending: &Pending,
) -> Result<(), End> {
    let mut write = BufWriter::with_capacity(BUFFER, write);
    let (mut next, mut number) = (Some(first), 0_u32);
    loop {
        while let Some(ask) = next.take() {
            if !ask.answer.is_closed() {
                number = number.wrapping_add(1);
                send(&mut write, ask, number, pending).await?;
            }
            next = asks.try_recv().ok();
        }
        write.flush().await?;
        let ask = timeout(IDLE, asks.recv()).await.map_err(|_| End::Idle)?;
        next = Some(ask.ok_or(End::Unused)?);
    }
}

async fn send(
    write: &mut BufWriter<WriteHalf<Stream>>,
    ask: Ask,
    number: u32,
    pending: &Pending,
) -> Result<(), End> {
    let frame = Frame {
        number,
        kind: Kind::Request,
        body: ask.request,
    };
    let header = match frame.header() {
        Ok(header) => header,
        Err(error) => {
            let _ = ask.answer.send(Err(TransportError(error.to_string())));
            return Ok(()); // Nothing was written: the connection is good.
        }
    };
    {
        let mut waiting = pending.waiting.lock();
        if waiting.asks.len() >= UNANSWERED {
            return Err(End::TooMany);
        }
        waiting.asks.insert(number, (ask.answer, Instant::now()));
    }
    pending.begun.notify_one();
    write.write_all(&header).await?;
    write.write_all(&frame.body).await?;
    Ok(())
}

async fn read_answers(read: ReadHalf<Stream>, pending: &Pending) -> Result<(), End> {
    let mut read = BufReader::with_capacity(BUFFER, read);
    while let Some(frame) = Frame::read(&mut read).await? {
        let answered = match frame.kind {
            Kind::Answer => Ok(frame.body),
            Kind::Failure => {
                let text = String::from_utf8_lossy(&frame.body);
                Err(TransportError(text.into_owned()))
            }
            Kind::Request => return Err(WireError::Kind(0).into()),
        };
        let asked = {
            let mut waiting = pending.waiting.lock();
            waiting.heard = Some(Instant::now());
            waiting.asks.remove(&frame.number)
        };
        if let Some((answer, _)) = asked {
            let _ = answer.send(answered); // The asker may have given up.
        }
    }
    Ok(())
}

/// Ends when the peer owes an answer and was silent for `stall`: the connection may lead nowhere, and TCP would find
/// out only after minutes.
async fn stalled(pending: &Pending, stall: Duration) -> End {
    loop {
        let since = {
            let waiting = pending.waiting.lock();
            let oldest = waiting.asks.values().map(|(_, at)| *at).min();
            oldest.map(|oldest| waiting.heard.map_or(oldest, |heard| heard.max(oldest)))
        };
        let Some(since) = since else {
            pending.begun.notified().await;
            continue;
        };
        if since.elapsed() >= stall {
            return End::Stalled(stall);
        }
        sleep_until(since + stall).await;
    }
}
