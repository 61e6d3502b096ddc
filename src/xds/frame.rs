//! Messages as gRPC carries them: a five-byte prefix and the encoded message, in pieces.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};

/// Prefix of every message: one byte that tells whether it is compressed, four bytes of length.
const PREFIX: usize = 5;
/// Pieces below this many bytes are copied together; larger ones are passed on as they are.
const COPY_BELOW: usize = 1024;

/// Builds one framed message from small fields and shared pieces.
#[derive(Debug)]
pub struct FrameBuilder {
    done: Vec<Bytes>,
    open: BytesMut,
    len: usize,
}

impl Default for FrameBuilder {
    fn default() -> Self {
        Self {
            done: Vec::new(),
            open: BytesMut::zeroed(PREFIX),
            len: 0,
        }
    }
}

impl FrameBuilder {
    /// Appends a string field with a tag below 16; an empty string is left out, as proto3 has it.
    pub fn text(&mut self, tag: u8, text: &str) {
        if !text.is_empty() {
            self.repeated_text(tag, text);
        }
    }

    /// Appends one element of a repeated string field with a tag below 16.
    pub fn repeated_text(&mut self, tag: u8, text: &str) {
        self.open.put_u8(tag << 3 | 2);
        encode_varint(text.len() as u64, &mut self.open);
        self.open.put_slice(text.as_bytes());
        self.len += 1 + encoded_len_varint(text.len() as u64) + text.len();
    }

    /// Appends encoded fields.
    pub fn fields(&mut self, piece: Bytes) {
        self.len += piece.len();
        if piece.len() < COPY_BELOW {
            self.open.put_slice(&piece);
        } else {
            let open = self.open.split().freeze();
            self.done
                .extend([open, piece].into_iter().filter(|p| !p.is_empty()));
        }
    }

    /// The framed message. Its length must be below 4 GiB.
    pub fn finish(mut self) -> Vec<Bytes> {
        let mut prefix = [0; PREFIX];
        let len = u32::try_from(self.len).unwrap_or(u32::MAX);
        if let Some(field) = prefix.get_mut(1..) {
            field.copy_from_slice(&len.to_be_bytes());
        }
        if !self.open.is_empty() {
            self.done.push(self.open.freeze());
        }
        if let Some(first) = self.done.first_mut() {
            let mut head = BytesMut::from(std::mem::take(first));
            head.iter_mut().zip(prefix).for_each(|(byte, p)| *byte = p);
            *first = head.freeze();
        }
        self.done
    }
}

/// Why a stream of bytes is no stream of messages.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// The message is compressed, and no compression was offered.
    #[error("compressed messages are not supported; send them uncompressed")]
    Compressed,
    /// The message is too long.
    #[error("a message of {0} bytes is longer than the limit of {1} bytes")]
    TooLong(usize, usize),
    /// The stream ended within a message.
    #[error("the stream ended within a message")]
    Truncated,
}

/// Cuts a stream of bytes into messages. Holds no memory between messages.
#[derive(Debug)]
pub struct Deframer {
    limit: usize,
    buffer: BytesMut,
    chunk: Bytes,
}

impl Deframer {
    /// Accepts messages of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            buffer: BytesMut::new(),
            chunk: Bytes::new(),
        }
    }

    /// Appends received bytes. Call [`Self::next_message`] until it gives `None` before the next push.
    pub fn push(&mut self, bytes: Bytes) {
        if self.buffer.is_empty() && self.chunk.is_empty() {
            self.chunk = bytes; // The usual case: a message arrives in one piece and is not copied.
        } else {
            self.buffer
                .extend_from_slice(&std::mem::take(&mut self.chunk));
            self.buffer.extend_from_slice(&bytes);
        }
    }

    /// The next complete message.
    ///
    /// # Errors
    /// A compressed or too long message; the stream cannot be read any further then.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, FrameError> {
        let held: &[u8] = if self.buffer.is_empty() {
            &self.chunk
        } else {
            &self.buffer
        };
        let Some((prefix, rest)) = held.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let [compressed, len @ ..] = *prefix;
        let len = u32::from_be_bytes(len) as usize;
        if compressed != 0 {
            return Err(FrameError::Compressed);
        }
        if len > self.limit {
            return Err(FrameError::TooLong(len, self.limit));
        }
        if rest.len() < len {
            return Ok(None);
        }
        if self.buffer.is_empty() {
            self.chunk.advance(PREFIX);
            return Ok(Some(self.chunk.split_to(len)));
        }
        self.buffer.advance(PREFIX);
        let message = self.buffer.split_to(len).freeze();
        // What is left moves out, so that the memory of a large message goes with the message.
        self.chunk = std::mem::take(&mut self.buffer).freeze();
        Ok(Some(message))
    }

    /// Whether the stream may end here.
    ///
    /// # Errors
    /// There is an incomplete message.
    pub fn end(&self) -> Result<(), FrameError> {
        if self.buffer.is_empty() && self.chunk.is_empty() {
            Ok(())
        } else {
            Err(FrameError::Truncated)
        }
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    #[test]
    fn a_built_frame_is_the_message() {
        let part = |len: usize| {
            DeltaDiscoveryResponse {
                removed_resources: vec!["x".repeat(len)],
                ..Default::default()
            }
            .encode_to_vec()
        };
        let mut frame = FrameBuilder::default();
        frame.text(1, "");
        frame.text(4, "type");
        for len in [10, 5000, 3000, 20] {
            frame.fields(part(len).into());
        }
        frame.repeated_text(6, "end");
        let pieces = frame.finish();
        assert_eq!(pieces.len(), 4, "large pieces stay by themselves");
        let mut deframer = Deframer::new(100_000);
        pieces.into_iter().for_each(|piece| deframer.push(piece));
        let message = deframer.next_message().unwrap().unwrap();
        let message = DeltaDiscoveryResponse::decode(message).unwrap();
        assert_eq!(message.type_url, "type");
        let lens: Vec<_> = message.removed_resources.iter().map(String::len).collect();
        assert_eq!(lens, [10, 5000, 3000, 20, 3]);
        assert_eq!(deframer.end(), Ok(()));
    }

    #[test]
    fn bad_prefixes_are_refused_before_anything_is_kept() {
        let mut deframer = Deframer::new(10);
        deframer.push(Bytes::from_static(&[1, 0, 0, 0, 0]));
        assert_eq!(deframer.next_message(), Err(FrameError::Compressed));
        let mut deframer = Deframer::new(10);
        deframer.push(Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]));
        let error = deframer.next_message().unwrap_err();
        assert_eq!(error, FrameError::TooLong(0xffff_ffff, 10));
    }

    proptest! {
        #[test]
        fn messages_survive_any_cutting(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..8),
            cuts in proptest::collection::vec(1usize..40, 1..20),
        ) {
            let mut stream = BytesMut::new();
            for message in &messages {
                stream.put_u8(0);
                stream.put_u32(message.len() as u32);
                stream.put_slice(message);
            }
            let mut stream = stream.freeze();
            let mut deframer = Deframer::new(50);
            let mut got = Vec::new();
            for cut in cuts.iter().cycle() {
                if stream.is_empty() {
                    break;
                }
                deframer.push(stream.split_to((*cut).min(stream.len())));
                while let Some(message) = deframer.next_message().unwrap() {
                    got.push(message.to_vec());
                }
            }
            prop_assert_eq!(got, messages);
            prop_assert_eq!(deframer.end(), Ok(()));
        }
    }
}
