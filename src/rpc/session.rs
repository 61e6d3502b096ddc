//! One net/rpc stream: requests in, replies out as they become ready.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinError;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::codec;
use crate::codec::FrameReader;
use crate::codec::ReadError;
use crate::hooks::Edition;
use crate::net::ReadBy;
use crate::rpc::CallContext;
use crate::rpc::Handler;
use crate::rpc::MAX_BODY;
use crate::rpc::RpcError;
use crate::rpc::Transport;
use crate::rpc::budget::{Budget, Exceeded, Share};
use crate::rpc::route::is_insecure_method;
use crate::rpc::wire::EMPTY_BODY;
use crate::rpc::wire::RequestHeader;
use crate::rpc::wire::ResponseHeader;

/// Calls that may be under way on one stream; further requests wait unread.
const MAX_CALLS: usize = 256;

/// How long the peer may take none of our bytes before the stream is given up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Replies up to this size are copied behind their header, so that both go out at once.
const COPY_LIMIT: usize = 16 * 1024;

/// The largest request header, in bytes.
const MAX_HEADER: usize = 4096;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("request header: {0}")]
    Header(codec::Error),
    #[error("a request header of {0} bytes")]
    LongHeader(usize),
    #[error("write: {0}")]
    Write(#[from] std::io::Error),
}

/// What all sessions of a connection share.
pub(super) struct Caller<H> {
    pub(super) handler: H,
    pub(super) edition: Arc<dyn Edition>,
    pub(super) context: CallContext,
}

impl<H: Handler> Clone for Caller<H> {
    fn clone(&self) -> Self {
        Self {
            handler: self.handler.clone(),
            edition: self.edition.clone(),
            context: self.context.clone(),
        }
    }
}

/// A call that was answered, one way or the other.
struct Answer {
    header: RequestHeader,
    /// Bytes of the request.
    bytes: usize,
    result: Result<Bytes, RpcError>,
}

/// A request of which the header has been read.
#[derive(Default)]
struct Requests {
    header: Option<RequestHeader>,
    header_bytes: usize,
}

impl Requests {
    /// The next whole request and its bytes, or `None` when the stream ends. Dropping the future loses nothing.
    async fn next(
        &mut self,
        reader: &mut FrameReader,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<Option<(RequestHeader, Bytes, usize)>, SessionError> {
        if self.header.is_none() {
            let Some(bytes) = reader.next(stream).await? else {
                return Ok(None);
            };
            if bytes.len() > MAX_HEADER {
                return Err(SessionError::LongHeader(bytes.len()));
            }
            self.header_bytes = bytes.len();
            self.header = Some(codec::from_slice(&bytes).map_err(SessionError::Header)?);
        }
        let Some(body) = reader.next(stream).await? else {
            return Err(ReadError::Io(std::io::ErrorKind::UnexpectedEof.into()).into());
        };
        let bytes = self.header_bytes + body.len();
        Ok(self.header.take().map(|header| (header, body, bytes)))
    }
}

/// Serves net/rpc on `stream` until the peer ends it. Calls run side by side, so one that waits for a change holds up
/// no other; those that are under way when the stream ends are dropped.
pub(super) async fn serve<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    caller: Caller<H>,
    budget: Budget,
) -> Result<(), SessionError> {
    let mut stream = ReadBy::new(Share::new(budget), stream);
    let mut reader = FrameReader::new(MAX_BODY);
    let mut requests = Requests::default();
    let mut calls: JoinSet<Answer> = JoinSet::new();
    loop {
        let answer = tokio::select! {
            request = requests.next(&mut reader, &mut stream), if calls.len() < MAX_CALLS => {
                if let Some(exceeded) = stream.reading.exceeded() {
                    tracing::warn!(peer = %caller.context.peer, %exceeded, "RPC stream closed");
                    let header = request.ok().flatten().map(|(header, ..)| header);
                    return match header.or(requests.header) {
                        Some(header) => write_answer(&mut stream, refusal(header, exceeded)).await,
                        None => Ok(()),
                    };
                }
                let Some((header, body, bytes)) = request? else {
                    return Ok(());
                };
                calls.spawn(answer(caller.clone(), header, body, bytes));
                continue;
            }
            Some(answer) = calls.join_next() => answer,
        };
        let Some(answer) = joined(answer) else {
            return Ok(());
        };
        stream.reading.give_back(answer.bytes);
        let ends = matches!(&answer.result, Err(error) if error.ends_stream());
        write_answer(&mut stream, answer).await?;
        if ends {
            return Ok(());
        }
    }
}

/// The answer to a request whose address has too many bytes here already.
fn refusal(header: RequestHeader, exceeded: Exceeded) -> Answer {
    Answer {
        header,
        bytes: 0,
        result: Err(RpcError::Failed(exceeded.to_string())),
    }
}

/// The answer of a call's task; a handler that panicked ends its stream, as nothing can be said about the call.
fn joined(answer: Result<Answer, JoinError>) -> Option<Answer> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) => {
            tracing::error!(%error, "an RPC handler panicked; its stream is closed");
            None
        }
    }
}

async fn answer<H: Handler>(
    caller: Caller<H>,
    header: RequestHeader,
    body: Bytes,
    bytes: usize,
) -> Answer {
    let method = header.service_method.as_str();
    metrics::counter!("consul.rpc.request").increment(1);
    tracing::trace!(method, seq = header.seq, bytes = body.len(), "request");
    let result = match check(&caller, method, &body) {
        Ok(()) => {
            caller
                .handler
                .call(caller.context.clone(), method, body)
                .await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = &result {
        metrics::counter!("consul.rpc.request_error").increment(1);
        tracing::debug!(method, peer = %caller.context.peer, %error, "request failed");
    }
    Answer {
        header,
        bytes,
        result,
    }
}

/// What is refused before the handler sees it.
fn check<H>(caller: &Caller<H>, method: &str, body: &Bytes) -> Result<(), RpcError> {
    if !method.contains('.') {
        return Err(RpcError::IllFormed(method.to_owned()));
    }
    if caller.context.transport == Transport::InsecureTls && !is_insecure_method(method) {
        return Err(RpcError::UnknownService(method.to_owned()));
    }
    let validated = caller.edition.validate_request(method, body);
    validated.map_err(RpcError::Failed)
}

async fn write_answer(
    stream: &mut (impl AsyncWrite + Unpin),
    answer: Answer,
) -> Result<(), SessionError> {
    let (error, body) = match answer.result {
        Ok(body) => (String::new(), body),
        Err(error) => (error.to_string(), Bytes::from_static(EMPTY_BODY)),
    };
    let header = ResponseHeader {
        service_method: answer.header.service_method,
        seq: answer.header.seq,
        error,
    };
    let mut head = codec::to_vec(&header).map_err(SessionError::Header)?;
    if body.len() <= COPY_LIMIT {
        head.extend_from_slice(&body);
        write_all(stream, &head).await?;
    } else {
        write_all(stream, &head).await?;
        write_all(stream, &body).await?;
    }
    within(stream.flush()).await?;
    Ok(())
}

/// Writes all of `bytes`, as long as the peer keeps taking some.
async fn write_all(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let written = within(stream.write(bytes)).await?;
        if written == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

async fn within<T>(io: impl Future<Output = std::io::Result<T>>) -> std::io::Result<T> {
    timeout(WRITE_TIMEOUT, io)
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}
