//! What one connection is doing: whether requests are under way, and when the client's end is believed.

use crate::net::Reading;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
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
pub(crate) struct LastWord {
    conversation: Conversation,
    ended: Option<Pin<Box<Sleep>>>,
}

impl LastWord {
    /// Of a stream on which this is said.
    pub(crate) fn new(conversation: Conversation) -> Self {
        Self {
            conversation,
            ended: None,
        }
    }
}

impl Reading for LastWord {
    fn poll_read(
        &mut self,
        io: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended.is_none() {
            let before = buffer.filled().len();
            ready!(io.poll_read(cx, buffer))?;
            if buffer.filled().len() > before || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        if self.conversation.is_idle() {
            return Poll::Ready(Ok(()));
        }
        let listens = || Box::pin(tokio::time::sleep(LISTENS));
        let ended = self.ended.get_or_insert_with(listens);
        ended.as_mut().poll(cx).map(Ok)
    }
}
