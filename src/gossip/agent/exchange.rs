//! One message over a stream, in or out; and what protects it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::time;

use crate::gossip::swim::MergeError;
use crate::gossip::wire;
use crate::gossip::wire::Incoming;
use crate::gossip::wire::Keyring;
use crate::gossip::wire::Outgoing;
use crate::gossip::wire::StreamDecoder;
use crate::gossip::wire::StreamMessage;
use crate::gossip::wire::stream;
use crate::hooks::BoxedStream;
use crate::model::NodeName;

/// Bytes asked of a stream at once.
const CHUNK: usize = 16 * 1024;
/// Bytes of a message that any stream may send before it needs a share of the [`Budget`].
const FREE: usize = 4 * CHUNK;
/// Shares of [`FREE`] bytes that all streams have together: 64 MiB.
const SHARES: usize = 1024;

/// Why an exchange over a stream failed.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The stream could not be opened, or broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The peer closed the stream without a message.
    #[error("the peer closed the stream without an answer")]
    Closed,
    /// What came is no gossip, or not protected as it must be.
    #[error("{0}")]
    Wire(#[from] wire::Error),
    /// The peer says why it refuses.
    #[error("the peer refused: {0}")]
    Refused(String),
    /// A message that has no place here.
    #[error("the peer answered with another kind of message than was asked for")]
    Unexpected,
    /// Other streams hold all the memory that messages on their way may take.
    #[error("too many large messages arrive at once; try again later")]
    Busy,
    /// The peer is another node than the one that was meant.
    #[error("this is not node '{0}', which was meant: has its address changed hands?")]
    OtherNode(NodeName),
    /// The two may not be in one pool.
    #[error("{0}")]
    NotMerged(#[from] MergeError),
    /// An address without the name that the pool needs.
    #[error(
        "the name is missing: write name/address, because this pool finds members by their names"
    )]
    NoName,
    /// The agent has been shut down.
    #[error("the agent has been shut down")]
    Stopped,
}

/// How what goes out and comes in is protected.
#[derive(Debug, Clone, Default)]
pub(super) struct Protection {
    pub(super) keyring: Option<Keyring>,
    pub(super) verify_incoming: bool,
    pub(super) verify_outgoing: bool,
    pub(super) compress: bool,
}

impl Protection {
    pub(super) fn incoming(&self) -> Incoming<'_> {
        Incoming {
            keyring: self.keyring.as_ref(),
            allow_plain: !self.verify_incoming,
        }
    }

    /// `checksum` is for packets to members that understand it.
    pub(super) fn outgoing(&self, checksum: bool) -> Outgoing<'_> {
        Outgoing {
            compress: self.compress,
            checksum,
            keyring: self.keyring.as_ref().filter(|_| self.verify_outgoing),
            ..Outgoing::default()
        }
    }
}

/// The memory that messages on their way in may take, all streams together.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Semaphore>);

impl Default for Budget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SHARES)))
    }
}

/// Reads one message. The caller sets the deadline.
pub(super) async fn read(
    stream: &mut BoxedStream,
    protection: &Protection,
    budget: &Budget,
) -> Result<StreamMessage, StreamError> {
    let mut decoder = StreamDecoder::default();
    let mut arrived = BytesMut::new();
    let mut shares: Vec<OwnedSemaphorePermit> = Vec::new();
    loop {
        arrived.reserve(CHUNK);
        if stream.read_buf(&mut arrived).await? == 0 {
            return Err(match arrived.is_empty() {
                true => StreamError::Closed,
                false => wire::Error::Truncated.into(),
            });
        }
        if let Some(message) = decoder.advance(&arrived, &protection.incoming())? {
            return Ok(message);
        }
        while arrived.len() >= FREE * (shares.len() + 1) {
            let share = budget.0.clone().try_acquire_owned();
            shares.push(share.map_err(|_| StreamError::Busy)?);
        }
    }
}

/// Writes one message. The caller sets the deadline.
pub(super) async fn write(
    stream: &mut BoxedStream,
    protection: &Protection,
    message: &StreamMessage,
) -> Result<(), StreamError> {
    let bytes = stream::seal(message, &protection.outgoing(false), rand::random())?;
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    metrics::counter!("consul.memberlist.tcp.sent").increment(bytes.len() as u64);
    Ok(())
}

/// Writes one message and reads the answer.
pub(super) async fn ask(
    stream: &mut BoxedStream,
    protection: &Protection,
    budget: &Budget,
    message: &StreamMessage,
) -> Result<StreamMessage, StreamError> {
    // A peer that cannot read the message says so and closes at once, and then writing fails: what it said counts.
    let written = write(stream, protection, message).await;
    match (read(stream, protection, budget).await, written) {
        (Ok(StreamMessage::Refused(why)), _) => Err(StreamError::Refused(why)),
        (Ok(answer), _) => Ok(answer),
        (Err(StreamError::Io(_) | StreamError::Closed), Err(error)) => Err(error),
        (Err(error), _) => Err(error),
    }
}

/// Bounds an exchange.
pub(super) async fn within<T>(
    limit: Duration,
    exchange: impl Future<Output = Result<T, StreamError>>,
) -> Result<T, StreamError> {
    match time::timeout(limit, exchange).await {
        Ok(Err(StreamError::Io(error))) if error.kind() == io::ErrorKind::TimedOut => {
            Err(StreamError::Timeout(limit))
        }
        Ok(result) => result,
        Err(_) => Err(StreamError::Timeout(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gossip::wire::Key;
    use crate::gossip::wire::message::Ack;
    use bytes::Bytes;

    fn keyed(key: u8) -> Protection {
        Protection {
            keyring: Some(Keyring::new(Key::new(&[key; 16]).unwrap())),
            verify_incoming: true,
            verify_outgoing: true,
            compress: true,
        }
    }

    fn pair() -> (BoxedStream, BoxedStream) {
        let (a, b) = tokio::io::duplex(1 << 20);
        (Box::new(a), Box::new(b))
    }

    #[tokio::test]
    async fn an_answer_comes_back_whatever_protects_it() {
        let budget = Budget::default();
        for protection in [Protection::default(), keyed(1)] {
            let (mut a, mut b) = pair();
            let question = StreamMessage::User(Bytes::from(vec![7; 200_000]));
            let answer = StreamMessage::Ack(Ack::default());
            let asked = ask(&mut a, &protection, &budget, &question);
            let served = async {
                let read = read(&mut b, &protection, &budget).await.unwrap();
                assert_eq!(read, question);
                write(&mut b, &protection, &answer).await.unwrap();
            };
            let (asked, ()) = tokio::join!(asked, served);
            assert_eq!(asked.unwrap(), answer);
        }
        assert_eq!(budget.0.available_permits(), SHARES);
    }

    #[tokio::test]
    async fn a_wrong_key_a_missing_key_and_a_refusal_are_told_apart() {
        let budget = Budget::default();
        let refusal = StreamMessage::Refused("no".to_owned());
        let mut seen = Vec::new();
        for (ours, theirs) in [
            (keyed(1), keyed(2)),
            (keyed(1), Protection::default()),
            (Protection::default(), keyed(2)),
            (keyed(1), keyed(1)),
        ] {
            let (mut a, mut b) = pair();
            write(&mut b, &theirs, &refusal).await.unwrap();
            let ping = StreamMessage::Ping(Default::default());
            seen.push(ask(&mut a, &ours, &budget, &ping).await.unwrap_err());
        }
        assert!(matches!(seen[0], StreamError::Wire(wire::Error::NoKey)));
        assert!(matches!(
            seen[1],
            StreamError::Wire(wire::Error::NotEncrypted)
        ));
        assert!(matches!(seen[2], StreamError::Wire(wire::Error::Encrypted)));
        assert!(matches!(&seen[3], StreamError::Refused(why) if why == "no"));
    }

    #[tokio::test]
    async fn large_messages_share_a_bounded_memory() {
        let budget = Budget(Arc::new(Semaphore::new(1)));
        for (len, fits) in [(FREE + 100, true), (4 * FREE, false)] {
            let (mut a, mut b) = pair();
            let plain = Protection::default();
            let message = StreamMessage::User(Bytes::from(vec![7; len]));
            write(&mut a, &plain, &message).await.unwrap();
            let read = read(&mut b, &plain, &budget).await;
            match fits {
                true => assert_eq!(read.unwrap(), message),
                false => assert!(matches!(read, Err(StreamError::Busy))),
            }
            assert_eq!(budget.0.available_permits(), 1);
        }
    }

    #[tokio::test]
    async fn a_stream_that_stalls_ends_at_the_deadline() {
        let (mut a, _b) = pair();
        let limit = Duration::from_millis(20);
        let read = async {
            let (plain, budget) = (Protection::default(), Budget::default());
            read(&mut a, &plain, &budget).await
        };
        let stalled = within(limit, read).await;
        assert!(matches!(stalled, Err(StreamError::Timeout(at)) if at == limit));
    }
}
