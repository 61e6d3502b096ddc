//! A stream whose arriving bytes somebody looks at, while all that is written passes through.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How a stream is read, when not just as it is.
pub trait Reading {
    /// Reads from `io` as [`AsyncRead::poll_read`] does.
    ///
    /// # Errors
    /// What the stream says, or why it is not read any further.
    fn poll_read(
        &mut self,
        io: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>>;
}

/// A stream that is read in some way, and written through.
#[derive(Debug)]
pub struct ReadBy<R, S> {
    /// The way.
    pub reading: R,
    io: S,
}

impl<R, S> ReadBy<R, S> {
    /// Reads `io` in this way.
    pub fn new(reading: R, io: S) -> Self {
        Self { reading, io }
    }
}

impl<R: Reading + Unpin, S: AsyncRead + Unpin> AsyncRead for ReadBy<R, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.reading.poll_read(Pin::new(&mut this.io), cx, buffer)
    }
}

impl<R: Unpin, S: AsyncWrite + Unpin> AsyncWrite for ReadBy<R, S> {
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
