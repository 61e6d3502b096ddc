//! What stands on a raft connection between two servers. Numbers are big endian.
//!
//! ```text
//!  dialler                                              listener
//!    greeting: magic, version, length (u16), who   -->
//!                                                  <--    answer: magic, version, 0 or 1, length (u16), text
//!    frame: length (u32), number (u32), kind, body -->
//!                                                  <--    frame with the same number, whenever it is ready
//! ```
//!
//! No first byte of the magic means anything to the raft library of Consul, and none of its requests begins like the
//! magic: the two notice at once that they are strangers.

use crate::model::{NodeId, NodeName};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The first bytes in both directions.
pub(crate) const MAGIC: [u8; 8] = *b"CWRAFT\r\n";
/// Version of what follows.
pub(crate) const VERSION: u8 = 1;
/// Largest body of a frame in bytes. A log entry has at most 10 MiB: 2 MiB of commands and one more of at most 8 MiB.
pub(crate) const MAX_BODY: usize = 16 << 20;
/// Largest name or text in a greeting or its answer, in bytes.
const MAX_TEXT: usize = 1024;
/// Memory taken for a body before any of it has come, in bytes.
const AHEAD: usize = 64 << 10;
/// How long a frame may take from its first byte to its last.
const FRAME_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes before the body of a frame.
const HEADER: usize = 9;

/// Why bytes are not what belongs on a raft connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The raft library of Consul.
    #[error(
        "it speaks the raft protocol of Consul; servers of Consul and of Crossway cannot form one datacenter: take it out of this one's retry_join, or give it another datacenter name"
    )]
    Consul,
    /// Neither a Crossway nor a Consul server.
    #[error("it does not speak raft; its first bytes are {0:02x?}")]
    Foreign([u8; 8]),
    /// Another version of this protocol.
    #[error(
        "it speaks version {0} of the raft protocol, this server speaks {VERSION}; run one version on all servers"
    )]
    Version(u8),
    /// The other side does not want us.
    #[error("it refused: {0}")]
    Refused(String),
    /// A length out of bounds.
    #[error("it announced {length} bytes, the limit is {limit}")]
    TooLong {
        /// What was announced.
        length: usize,
        /// What is allowed.
        limit: usize,
    },
    /// An unknown kind of frame.
    #[error("it sent a frame of unknown kind {0}")]
    Kind(u8),
    /// The greeting does not decode.
    #[error("its greeting does not decode: {0}")]
    Greeting(String),
    /// A frame does not end.
    #[error("a frame took more than {FRAME_TIMEOUT:?}")]
    Slow,
    /// The connection ended or broke.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Who dials, for the other side's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) node: NodeName,
    pub(crate) id: NodeId,
}

impl fmt::Display for Greeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.node, self.id)
    }
}

impl Greeting {
    /// The greeting's bytes. A name that is too long is left out.
    pub(crate) fn encode(&self) -> Bytes {
        let who = rmp_serde::to_vec_named(self).unwrap_or_default();
        let who = if who.len() > MAX_TEXT { &[] } else { &*who };
        encode(&[VERSION], who)
    }

    /// Reads a dialler's greeting.
    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Self, WireError> {
        read_magic(stream).await?;
        let who = read_text(stream).await?;
        rmp_serde::from_slice(&who).map_err(|error| WireError::Greeting(error.to_string()))
    }
}

/// The listener's answer to a greeting: `Err` says why it closes the connection.
pub(crate) fn encode_answer(answer: Result<(), &str>) -> Bytes {
    let text = answer.err().unwrap_or_default();
    let text = text.as_bytes().get(..MAX_TEXT).unwrap_or(text.as_bytes());
    encode(&[VERSION, u8::from(answer.is_err())], text)
}

/// Reads that answer.
pub(crate) async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> Result<(), WireError> {
    read_magic(stream).await?;
    let refused = stream.read_u8().await? != 0;
    let text = read_text(stream).await?;
    if refused {
        let text = String::from_utf8_lossy(&text).into_owned();
        return Err(WireError::Refused(text));
    }
    Ok(())
}

fn encode(head: &[u8], text: &[u8]) -> Bytes {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(head);
    let length = u16::try_from(text.len()).unwrap_or_default();
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text);
    out.into()
}

async fn read_magic(stream: &mut (impl AsyncRead + Unpin)) -> Result<(), WireError> {
    let mut found = [0; MAGIC.len()];
    // One byte first: Consul's requests may be shorter than the magic, and we would wait for more.
    let (first, rest) = found.split_at_mut(1);
    stream.read_exact(first).await?;
    if let [0..=3] = first {
        return Err(WireError::Consul); // AppendEntries, RequestVote, InstallSnapshot, TimeoutNow.
    }
    stream.read_exact(rest).await?;
    if found != MAGIC {
        return Err(WireError::Foreign(found));
    }
    match stream.read_u8().await? {
        VERSION => Ok(()),
        other => Err(WireError::Version(other)),
    }
}

async fn read_text(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, WireError> {
    let length = usize::from(stream.read_u16().await?);
    if length > MAX_TEXT {
        let limit = MAX_TEXT;
        return Err(WireError::TooLong { length, limit });
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text).await?;
    Ok(text)
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From the dialler: a raft request.
    Request,
    /// From the listener: the answer to it.
    Answer,
    /// From the listener: why there is no answer, as text.
    Failure,
}

/// One message. Its number ties an answer to its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) body: Bytes,
}

impl Frame {
    /// What stands before the body.
    ///
    /// # Errors
    /// If the body is larger than a peer accepts.
    pub(crate) fn header(&self) -> Result<[u8; HEADER], WireError> {
        let length = self.body.len();
        let small = u32::try_from(length).ok().filter(|_| length <= MAX_BODY);
        let small = small.ok_or(WireError::TooLong {
            length,
            limit: MAX_BODY,
        })?;
        let kind = match self.kind {
            Kind::Request => 0,
            Kind::Answer => 1,
            Kind::Failure => 2,
        };
        let ([a, b, c, d], [e, f, g, h]) = (small.to_be_bytes(), self.number.to_be_bytes());
        Ok([a, b, c, d, e, f, g, h, kind])
    }

    /// Reads the next frame; `None` at a clean end. Memory grows with what comes, not with what is announced.
    pub(crate) async fn read(
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<Option<Self>, WireError> {
        let mut first = [0];
        if stream.read(&mut first).await? == 0 {
            return Ok(None);
        }
        let rest = Self::read_rest(first, stream);
        let read = tokio::time::timeout(FRAME_TIMEOUT, rest).await;
        read.unwrap_or(Err(WireError::Slow)).map(Some)
    }

    async fn read_rest(
        [a]: [u8; 1],
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<Self, WireError> {
        let mut header = [0; HEADER - 1];
        stream.read_exact(&mut header).await?;
        let [b, c, d, e, f, g, h, kind] = header;
        let kind = match kind {
            0 => Kind::Request,
            1 => Kind::Answer,
            2 => Kind::Failure,
            other => return Err(WireError::Kind(other)),
        };
        let (length, limit) = (u32::from_be_bytes([a, b, c, d]) as usize, MAX_BODY);
        if length > limit {
            return Err(WireError::TooLong { length, limit });
        }
        let mut body = Vec::with_capacity(length.min(AHEAD));
        let read = stream.take(length as u64).read_to_end(&mut body).await?;
        if read < length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(Self {
            number: u32::from_be_bytes([e, f, g, h]),
            kind,
            body: body.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting() -> Greeting {
        Greeting {
            node: "n1".into(),
            id: "0a000000-0000-4000-8000-000000000001".into(),
        }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(future)
    }

    fn bytes(frame: &Frame) -> Vec<u8> {
        [&frame.header().unwrap()[..], &frame.body].concat()
    }

    #[test]
    fn greetings_answers_and_frames_come_back_as_they_were() {
        run(async {
            let hello = greeting().encode();
            assert_eq!(Greeting::read(&mut &*hello).await.unwrap(), greeting());
            read_answer(&mut &*encode_answer(Ok(()))).await.unwrap();
            let refused = read_answer(&mut &*encode_answer(Err("no"))).await;
            assert!(matches!(refused, Err(WireError::Refused(text)) if text == "no"));
            for (kind, body) in [
                (Kind::Request, vec![7; 100_000]),
                (Kind::Answer, vec![]),
                (Kind::Failure, vec![1]),
            ] {
                let (number, body) = (u32::MAX, body.into());
                let frame = Frame { number, kind, body };
                let all = bytes(&frame);
                let mut rest = &*all;
                assert_eq!(Frame::read(&mut rest).await.unwrap(), Some(frame));
                assert_eq!(Frame::read(&mut rest).await.unwrap(), None, "a clean end");
                for end in 1..all.len().min(50) {
                    let cut = Frame::read(&mut &all[..end]).await;
                    assert!(matches!(cut, Err(WireError::Io(_))), "cut at {end}");
                }
            }
        });
    }

    /// Consul's raft library begins a request with its type, 0 to 3, and msgpack behind it.
    #[test]
    fn strangers_are_told_from_each_other_by_their_first_bytes() {
        run(async {
            for first in 0..=3 {
                let found = Greeting::read(&mut &[first, 0x8a][..]).await.unwrap_err();
                assert!(matches!(found, WireError::Consul), "{first}: {found}");
            }
            let found = Greeting::read(&mut &b"GET /v1/status"[..]).await;
            assert!(matches!(found, Err(WireError::Foreign(bytes)) if &bytes == b"GET /v1/"));
            let mut newer = greeting().encode().to_vec();
            newer[8] = 9;
            let found = Greeting::read(&mut &*newer).await;
            assert!(matches!(found, Err(WireError::Version(9))));
        });
    }

    #[test]
    fn a_length_out_of_bounds_is_refused_before_memory_is_taken() {
        run(async {
            let mut frame = [0; HEADER];
            frame[..4].copy_from_slice(&u32::MAX.to_be_bytes());
            let found = Frame::read(&mut &frame[..]).await;
            assert!(matches!(found, Err(WireError::TooLong { .. })));
            let large = Frame {
                number: 0,
                kind: Kind::Request,
                body: vec![0; MAX_BODY + 1].into(),
            };
            assert!(matches!(large.header(), Err(WireError::TooLong { .. })));
            let mut long = [&MAGIC[..], &[VERSION, 0xff, 0xff]].concat();
            long.extend([0; 100]);
            let found = Greeting::read(&mut &*long).await;
            assert!(matches!(found, Err(WireError::TooLong { .. })));
        });
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(garbage: Vec<u8>, at: proptest::sample::Index, new: u8) {
            run(async {
                let _ = Frame::read(&mut &*garbage).await;
                let _ = Greeting::read(&mut &*[&MAGIC[..], &[VERSION], &garbage].concat()).await;
                let _ = read_answer(&mut &*[&MAGIC[..], &[VERSION], &garbage].concat()).await;
                let body = garbage.clone().into();
                let mut frame = bytes(&Frame { number: 1, kind: Kind::Request, body });
                *at.get_mut(&mut frame) = new;
                let mut rest = &*frame;
                while let Ok(Some(frame)) = Frame::read(&mut rest).await {
                    assert!(frame.body.len() <= garbage.len());
                }
            });
        }
    }
}
