//! What one connection is doing: whether requests are under way, and when the client's end is believed.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a client that has said its last word may still wait for its answer. After that it has most likely gone, and
/// a request that waits for a change is given up.
const LISTENS: Duration = Duration::from_secs(1);

/// Counts the requests under way on one connection. Cloning it shares the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation(Arc<AtomicUsize>);

impl Conversation {
    /// A request begins; it ends when the guard is dropped.
    pub(crate) fn begin(&self) -> UnderWay {
        self.0.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// Whether no request is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct UnderWay(Conversation);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells of the client's end only when no request is under way, or after a moment: a client may close its side once it has
/// asked (`nc -N`, some probes) and listen on.
pub(crate) struct HalfClosed<S> {
    io: S,
    conversation: Conversation,
    ended: Option<Pin<Box<Sleep>>>,
}

impl<S> HalfClosed<S> {
    pub(crate) fn new(io: S, conversation: Conversation) -> Self {
        Self {
            io,
            conversation,
            ended: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HalfClosed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.ended.is_none() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.io).poll_read(cx, buffer))?;
            if buffer.filled().len() > before || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        if this.conversation.is_idle() {
            return Poll::Ready(Ok(()));
        }
        let listens = || Box::pin(tokio::time::sleep(LISTENS));
        let ended = this.ended.get_or_insert_with(listens);
        ended.as_mut().poll(cx).map(Ok)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HalfClosed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
