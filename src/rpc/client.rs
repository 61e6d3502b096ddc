//! The calling side: one connection to one server, used for many calls.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::compat::Compat;
use tokio_util::compat::FuturesAsyncReadCompatExt;
use tokio_util::compat::TokioAsyncReadCompatExt;

use crate::codec;
use crate::codec::FrameReader;
use crate::codec::ReadError;
use crate::net::Stream;
use crate::net::Tls;
use crate::rpc::MAX_BODY;
use crate::rpc::dial::Channel;
use crate::rpc::dial::Target;
use crate::rpc::dial::dial;
use crate::rpc::wire::RequestHeader;
use crate::rpc::wire::ResponseHeader;
use crate::rpc::yamux_config;

/// Streams kept open for further calls on a multiplexed session.
const MAX_IDLE_STREAMS: usize = 64;

/// Why a call has no answer. The texts are those that Consul's tools and people look for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server could not be reached; nothing was sent.
    #[error("rpc error getting client: failed to get conn: {0}")]
    Connect(String),
    /// The server's own error.
    #[error("rpc error making call: {0}")]
    Remote(String),
    /// No answer in time; the server may still be at it.
    #[error("rpc error making call: no answer from {address} within {timeout:?}")]
    Timeout {
        /// The server or gateway.
        address: SocketAddr,
        /// The time the caller gave.
        timeout: Duration,
    },
    /// The session had ended before the question was sent as a whole: the server has not begun with it.
    #[error("rpc error getting client: failed to start stream: {0}")]
    Ended(io::Error),
    /// The connection ended or broke before the answer; the session is useless.
    #[error("rpc error making call: {0}")]
    Broken(#[from] io::Error),
    /// The question or the answer is no msgpack of the kind wanted.
    #[error("rpc error making call: {0}")]
    Codec(#[from] codec::Error),
    /// An answer to something that was not asked.
    #[error("rpc error making call: the server answered request {got} instead of {wanted}")]
    Sequence {
        /// The number of our request.
        wanted: u64,
        /// The number in the answer.
        got: u64,
    },
}

impl From<ReadError> for ClientError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => Self::Broken(error),
            ReadError::Codec(error) => Self::Codec(error),
        }
    }
}

/// A connection to a server that carries any number of calls. Clones share it.
#[derive(Debug, Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    address: SocketAddr,
    lanes: Lanes,
}

#[derive(Debug)]
enum Lanes {
    /// One stream; a call that is given up midway leaves it unusable (`None`).
    Single(Box<tokio::sync::Mutex<Option<Lane<Stream>>>>),
    Multi {
        open: mpsc::Sender<oneshot::Sender<yamux::Stream>>,
        idle: Mutex<Vec<Lane<Compat<yamux::Stream>>>>,
    },
}

impl Session {
    /// Connects to `target`; `limit` is for TCP, TLS and all.
    ///
    /// # Errors
    /// [`ClientError::Connect`] with what failed and what to do.
    pub async fn connect(target: &Target, tls: &Tls, limit: Duration) -> Result<Self, ClientError> {
        let channel = match target.multiplexed {
            true => Channel::Multi,
            false => Channel::Single,
        };
        let stream = dial(target, channel, tls, limit)
            .await
            .map_err(|error| ClientError::Connect(format!("{}: {error}", target.address)))?;
        let lanes = if target.multiplexed {
            let (open, requests) = mpsc::channel(1);
            let connection =
                yamux::Connection::new(stream.compat(), yamux_config(), yamux::Mode::Client);
            tokio::spawn(drive(connection, requests));
            Lanes::Multi {
                open,
                idle: Mutex::default(),
            }
        } else {
            Lanes::Single(Box::new(tokio::sync::Mutex::new(Some(Lane::new(stream)))))
        };
        let address = target.address;
        Ok(Self {
            inner: Arc::new(Inner { address, lanes }),
        })
    }

    /// Calls `method` with a msgpack `body` and gives the msgpack answer. When the future is dropped, the server
    /// learns that nobody waits any more.
    ///
    /// # Errors
    /// See [`ClientError`]; only after [`ClientError::Remote`] is the session certainly still good.
    pub async fn call(
        &self,
        method: &str,
        body: &[u8],
        limit: Duration,
    ) -> Result<Bytes, ClientError> {
        let called = timeout(limit, self.call_in_lane(method, body)).await;
        called.unwrap_or(Err(ClientError::Timeout {
            address: self.inner.address,
            timeout: limit,
        }))
    }

    /// Calls `method` with values instead of bytes.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub async fn call_with<A: Serialize, R: DeserializeOwned>(
        &self,
        method: &str,
        argument: &A,
        limit: Duration,
    ) -> Result<R, ClientError> {
        let reply = self.call(method, &codec::to_vec(argument)?, limit).await?;
        Ok(codec::from_slice(&reply)?)
    }

    /// Whether calls can still be made. A session that broke is noticed as soon as the system tells.
    pub(super) fn is_open(&self) -> bool {
        match &self.inner.lanes {
            Lanes::Single(_) => true, // Told by the next call.
            Lanes::Multi { open, .. } => !open.is_closed(),
        }
    }

    /// As [`Session::call`], without a limit.
    pub(super) async fn call_in_lane(
        &self,
        method: &str,
        body: &[u8],
    ) -> Result<Bytes, ClientError> {
        match &self.inner.lanes {
            Lanes::Single(lane) => {
                let mut place = lane.lock().await;
                let mut lane = place.take().ok_or_else(closed)?;
                let called = lane.call(method, body).await;
                *place = lane.is_good(&called).then_some(lane);
                called
            }
            Lanes::Multi { open, idle } => {
                let reused = idle.lock().pop();
                let mut lane = match reused {
                    Some(lane) => lane,
                    None => open_lane(open).await?,
                };
                let called = lane.call(method, body).await;
                if lane.is_good(&called) {
                    let mut idle = idle.lock();
                    if idle.len() < MAX_IDLE_STREAMS {
                        idle.push(lane);
                    }
                }
                called
            }
        }
    }
}

fn closed() -> ClientError {
    ClientError::Ended(shutdown())
}

/// What Go's multiplexer says of a session that is over.
pub(super) fn shutdown() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "session shutdown")
}

async fn open_lane(
    open: &mpsc::Sender<oneshot::Sender<yamux::Stream>>,
) -> Result<Lane<Compat<yamux::Stream>>, ClientError> {
    let (sender, receiver) = oneshot::channel();
    open.send(sender).await.map_err(|_| closed())?;
    let stream = receiver.await.map_err(|_| closed())?;
    Ok(Lane::new(stream.compat()))
}

/// One stream with net/rpc on it.
#[derive(Debug)]
struct Lane<S> {
    stream: S,
    reader: FrameReader,
    seq: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Lane<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            reader: FrameReader::new(MAX_BODY),
            seq: 0,
        }
    }

    async fn call(&mut self, method: &str, body: &[u8]) -> Result<Bytes, ClientError> {
        self.seq += 1;
        let header = RequestHeader {
            service_method: method.to_owned(),
            seq: self.seq,
        };
        let mut request = codec::to_vec(&header)?;
        request.extend_from_slice(body);
        let written = self.stream.write_all(&request).await;
        written.map_err(ClientError::Ended)?;
        self.stream.flush().await?;
        let header: ResponseHeader = codec::from_slice(&self.value().await?)?;
        let reply = self.value().await?;
        if header.seq != self.seq {
            return Err(ClientError::Sequence {
                wanted: self.seq,
                got: header.seq,
            });
        }
        if header.error.is_empty() {
            Ok(reply)
        } else {
            Err(ClientError::Remote(header.error))
        }
    }

    async fn value(&mut self) -> Result<Bytes, ClientError> {
        let value = self.reader.next(&mut self.stream).await?;
        let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "EOF");
        Ok(value.ok_or_else(ended)?)
    }

    /// Whether the stream can be used again. Servers close it after an error of net/rpc itself.
    fn is_good(&self, called: &Result<Bytes, ClientError>) -> bool {
        let clean = !self.reader.is_inside_value();
        clean
            && match called {
                Ok(_) => true,
                Err(ClientError::Remote(text)) => !text.starts_with("rpc: "),
                Err(_) => false,
            }
    }
}

type Connection = yamux::Connection<Compat<Stream>>;

/// Moves the bytes of a yamux session and opens streams on it, until the session or its last user goes.
async fn drive(
    mut connection: Connection,
    mut requests: mpsc::Receiver<oneshot::Sender<yamux::Stream>>,
) {
    let mut waiting: Option<oneshot::Sender<yamux::Stream>> = None;
    let moved = poll_fn(|cx| {
        loop {
            if waiting.is_none() {
                match requests.poll_recv(cx) {
                    Poll::Ready(Some(request)) => waiting = Some(request),
                    Poll::Ready(None) => return Poll::Ready(true),
                    Poll::Pending => {}
                }
            }
            if waiting.is_some() {
                match connection.poll_new_outbound(cx) {
                    Poll::Ready(Ok(stream)) => {
                        // Whoever asked may have given up; the stream is dropped then.
                        let _ = waiting.take().map(|request| request.send(stream));
                        continue;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(false),
                    Poll::Pending => {}
                }
            }
            match connection.poll_next_inbound(cx) {
                Poll::Ready(Some(Ok(stream))) => drop(stream), // Servers open no streams to their callers.
                Poll::Ready(_) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    if moved.await {
        // A polite end; a peer that does not take it within a second is left alone.
        let goodbye = timeout(
            Duration::from_secs(1),
            poll_fn(|cx| connection.poll_close(cx)),
        );
        let _ = goodbye.await;
    }
}
