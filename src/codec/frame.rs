//! Finds where values end in a stream that has no length prefixes.

use std::time::Duration;

use bytes::Buf;
use bytes::Bytes;
use bytes::BytesMut;
use tokio::io::AsyncRead;
use tokio::io::AsyncReadExt;

use crate::codec::Error;
use crate::codec::MAX_DEPTH;
use crate::codec::head;
use crate::codec::head::Head;

/// Finds the end of one value in bytes that arrive bit by bit; looks at no byte twice.
#[derive(Debug, Default)]
pub struct Scanner {
    /// Bytes of the value that were understood so far; can be beyond what has arrived.
    position: usize,
    /// How many values each open array or map still waits for.
    open: Vec<usize>,
    started: bool,
}

impl Scanner {
    /// Looks at `bytes`, which begin with the value and hold at least what was shown before. Gives the value's
    /// length once it is complete, and is then ready for the next value.
    ///
    /// # Errors
    /// When the bytes are no msgpack, nest deeper than [`MAX_DEPTH`], or the value is longer than `limit` bytes.
    pub fn advance(&mut self, bytes: &[u8], limit: usize) -> Result<Option<usize>, Error> {
        loop {
            if self.started && self.open.is_empty() {
                if self.position > limit {
                    return Err(Error::TooLarge(limit));
                }
                if self.position > bytes.len() {
                    return Ok(None);
                }
                let length = std::mem::take(self).position;
                return Ok(Some(length));
            }
            let Some((head, size)) = head::read(bytes.get(self.position..).unwrap_or_default())?
            else {
                return Ok(None);
            };
            self.step(head, size);
            if self.open.len() > MAX_DEPTH {
                return Err(Error::Depth);
            }
            if self.position > limit {
                return Err(Error::TooLarge(limit));
            }
        }
    }

    fn step(&mut self, head: Head, size: usize) {
        self.started = true;
        self.position = self.position.saturating_add(size);
        if let Some(waits) = self.open.last_mut() {
            *waits -= 1;
        }
        match head {
            Head::Raw(n) => self.position = self.position.saturating_add(n),
            Head::Array(n) if n > 0 => self.open.push(n),
            Head::Map(n) if n > 0 => self.open.push(n.saturating_mul(2)),
            _ => {}
        }
        while self.open.last() == Some(&0) {
            self.open.pop();
        }
    }
}

/// Room that is made for reading; small, because most connections are idle most of the time.
const READ_SIZE: usize = 4096;

/// How long a peer may pause in the middle of a value, whose bytes we hold meanwhile.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a stream gives no further value.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The connection failed, or ended inside a value (`UnexpectedEof`).
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// What arrived is not acceptable msgpack.
    #[error(transparent)]
    Codec(#[from] Error),
}

/// Cuts a byte stream into values; holds no more than has arrived, and never more than one value and a little.
#[derive(Debug)]
pub struct FrameReader {
    buffer: BytesMut,
    scanner: Scanner,
    limit: usize,
    stall: Duration,
}

impl FrameReader {
    /// Values are at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanner: Scanner::default(),
            limit,
            stall: STALL_TIMEOUT,
        }
    }

    /// Changes how long the peer may pause in the middle of a value, one minute by default.
    #[must_use]
    pub fn with_stall_timeout(mut self, stall: Duration) -> Self {
        self.stall = stall;
        self
    }

    /// The next value of `stream`, or `None` when it ends before one begins. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When reading fails, or what arrives is not acceptable; the stream cannot be used further then.
    pub async fn next(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<Option<Bytes>, ReadError> {
        loop {
            if let Some(length) = self.scanner.advance(&self.buffer, self.limit)? {
                return Ok(Some(self.buffer.split_to(length).freeze()));
            }
            if self.buffer.is_empty() {
                self.buffer = BytesMut::new(); // The old one may be as large as the last value.
            }
            self.buffer.reserve(READ_SIZE);
            if self.read_some(stream).await? == 0 {
                if self.buffer.has_remaining() {
                    return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
                }
                return Ok(None);
            }
        }
    }

    /// Waits for bytes: for ever between values, but not in the middle of one.
    async fn read_some(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<usize> {
        if self.buffer.is_empty() {
            return stream.read_buf(&mut self.buffer).await;
        }
        let read = tokio::time::timeout(self.stall, stream.read_buf(&mut self.buffer)).await;
        read.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
    }

    /// What arrived behind the last value, for a stream on which something else follows.
    pub fn into_rest(self) -> BytesMut {
        self.buffer
    }

    /// Whether part of a value has arrived.
    pub fn is_inside_value(&self) -> bool {
        self.buffer.has_remaining()
    }
}
