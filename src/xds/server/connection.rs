//! What is known of a connection besides HTTP/2: its other end, whether that says anything at all, and whether it takes
//! what it is given.
//!
//! HTTP/2 keeps a connection open whose client answers pings, even if the client never makes room for responses. So each
//! stream notes when it hands out a piece of a response, and takes the note back when there is room for more; the connection
//! ends when a note gets too old.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

use crate::net::{ReadBy, Reading};
use std::time::Duration;

/// HTTP/2 connections begin with so many bytes of the client (RFC 9113, 3.4); keepalive begins after them only.
const PREFACE_LEN: usize = 24;
/// How long a client may take for them.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// The other end, as the services see it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) owed: Owed,
}

/// By when the streams of one connection have to have taken what they were given. Cloning it shares the notes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owed(Arc<Mutex<Notes>>);

#[derive(Debug, Default)]
struct Notes {
    last: u64,
    deadlines: BTreeMap<u64, Instant>,
}

impl Owed {
    /// A name for the notes of one stream.
    pub(crate) fn stream(&self) -> OwedBy {
        let mut notes = self.0.lock();
        notes.last += 1;
        OwedBy {
            owed: self.clone(),
            stream: notes.last,
        }
    }

    fn first(&self) -> Option<Instant> {
        self.0.lock().deadlines.values().min().copied()
    }
}

/// The note of one stream; dropping it takes it back.
#[derive(Debug)]
pub(crate) struct OwedBy {
    owed: Owed,
    stream: u64,
}

impl OwedBy {
    /// The client was given something and has to make room until then.
    pub(crate) fn until(&self, deadline: Instant) {
        self.owed.0.lock().deadlines.insert(self.stream, deadline);
    }

    /// The client has made room.
    pub(crate) fn settled(&self) {
        self.owed.0.lock().deadlines.remove(&self.stream);
    }
}

impl Drop for OwedBy {
    fn drop(&mut self) {
        self.settled();
    }
}

/// A connection that knows its other end, and fails if that says nothing or takes nothing.
pub(super) type Connection<IO> = ReadBy<Watched, IO>;

/// What a connection's reader looks after.
pub(super) struct Watched {
    peer: Peer,
    greeting: Option<Greeting>,
    /// Wakes the reader when the first note gets too old.
    alarm: Option<Pin<Box<Sleep>>>,
}

/// The wait for the client's preface.
struct Greeting {
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

impl Watched {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            peer: Peer {
                address,
                owed: Owed::default(),
            },
            greeting: Some(Greeting {
                missing: PREFACE_LEN,
                deadline: Box::pin(tokio::time::sleep(PREFACE_TIMEOUT)),
            }),
            alarm: None,
        }
    }

    /// Whether something is overdue. A connection is polled after each write of its streams, so the alarm is never late.
    fn is_overdue(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.peer.owed.first() else {
            self.alarm = None;
            return false;
        };
        let deadline = deadline.into();
        let new = || Box::pin(tokio::time::sleep_until(deadline));
        let alarm = self.alarm.get_or_insert_with(new);
        if alarm.deadline() != deadline {
            alarm.as_mut().reset(deadline);
        }
        alarm.as_mut().poll(cx).is_ready()
    }
}

impl Reading for Watched {
    fn poll_read(
        &mut self,
        io: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_overdue(cx) {
            tracing::warn!(peer = %self.peer.address, "the client takes no responses: its connection is closed");
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        let read = io.poll_read(cx, buffer);
        let Some(greeting) = &mut self.greeting else {
            return read;
        };
        if read.is_pending() && greeting.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let got = buffer.filled().len().saturating_sub(before);
        greeting.missing = greeting.missing.saturating_sub(got);
        if greeting.missing == 0 {
            self.greeting = None;
        }
        read
    }
}

impl<IO> Connected for Connection<IO> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.reading.peer.clone()
    }
}
