//! Packets: one or more messages, maybe compressed, with a checksum, encrypted.

use crate::gossip::wire::Error;
use crate::gossip::wire::Incoming;
use crate::gossip::wire::Message;
use crate::gossip::wire::Outgoing;
use crate::gossip::wire::keyring::Nonce;
use crate::gossip::wire::lzw;
use crate::gossip::wire::message::Kind;

/// Bytes of a packet that memberlist fills by default: it fits an Ethernet frame.
pub const DEFAULT_SIZE: usize = 1400;
/// Most messages of one compound message: their count is one byte.
pub const MAX_PARTS: usize = 255;
/// Bytes that a compound message adds, and bytes that it adds for each of its parts.
pub const COMPOUND_OVERHEAD: (usize, usize) = (2, 2);

/// Most bytes of all compressed messages of a packet once they are unfolded: a UDP packet of 64 KiB whose text halves
/// twice.
const MAX_UNFOLDED: usize = 256 * 1024;
/// Compressed and compound messages inside each other. Go peers send two: a compressed compound.
const MAX_NESTING: usize = 6;
/// Bytes of a checksum with its kind.
const CHECKSUM_LEN: usize = 5;

/// What a packet says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packet {
    /// The messages that could be read, in their order.
    pub messages: Vec<Message>,
    /// How many could not.
    pub skipped: usize,
    /// Why the first of those could not.
    pub first_error: Option<Error>,
}

/// Bytes that messages (with what a compound adds) may take in a packet of `size` bytes.
pub fn room(size: usize, outgoing: &Outgoing<'_>) -> usize {
    let checksum = if outgoing.checksum { CHECKSUM_LEN } else { 0 };
    let encryption = outgoing
        .keyring
        .map_or(0, |_| outgoing.encryption.overhead());
    size.saturating_sub(checksum + encryption)
}

/// One message that holds all `parts`; a single part stays what it is.
///
/// # Errors
/// When there are no parts, more than [`MAX_PARTS`], or one of more than 65,535 bytes.
pub fn compound<P: AsRef<[u8]>>(parts: &[P]) -> Result<Vec<u8>, Error> {
    if let [single] = parts {
        return Ok(single.as_ref().to_vec());
    }
    if parts.is_empty() {
        return Err(Error::Empty);
    }
    let too_large = |what, size, limit| Error::TooLarge { what, size, limit };
    let count = u8::try_from(parts.len())
        .map_err(|_| too_large("a count of messages", parts.len(), MAX_PARTS))?;
    let total: usize = parts.iter().map(|part| part.as_ref().len() + 2).sum();
    let mut out = Vec::with_capacity(2 + total);
    out.extend_from_slice(&[Kind::Compound.into(), count]);
    for part in parts {
        let len = part.as_ref().len();
        let len = u16::try_from(len)
            .map_err(|_| too_large("a message in a packet", len, u16::MAX.into()))?;
        out.extend_from_slice(&len.to_be_bytes());
    }
    for part in parts {
        out.extend_from_slice(part.as_ref());
    }
    Ok(out)
}

/// Wraps a message, or a [`compound`] of several, as a packet to send.
///
/// `nonce` counts only with a keyring, and must then be new and random.
///
/// # Errors
/// When encryption fails.
pub fn seal(message: Vec<u8>, outgoing: &Outgoing<'_>, nonce: Nonce) -> Result<Vec<u8>, Error> {
    let mut packet = message;
    if outgoing.compress {
        let compressed = lzw::compress(&packet)?;
        if compressed.len() < packet.len() {
            packet = compressed;
        }
    }
    if outgoing.checksum {
        let mut out = Vec::with_capacity(CHECKSUM_LEN + packet.len());
        out.push(Kind::Checksum.into());
        out.extend_from_slice(&crc32fast::hash(&packet).to_be_bytes());
        out.extend_from_slice(&packet);
        packet = out;
    }
    if let Some(ring) = outgoing.keyring {
        let mut out = Vec::new();
        ring.seal(outgoing.encryption, nonce, &packet, &[], &mut out)?;
        packet = out;
    }
    Ok(packet)
}

/// Reads a packet. One bad message of a compound does not spoil the others.
///
/// # Errors
/// When it cannot be decrypted, must be encrypted and is not, or is damaged.
pub fn open(packet: &[u8], incoming: &Incoming<'_>) -> Result<Packet, Error> {
    let Some(ring) = incoming.keyring else {
        return read(packet);
    };
    match ring.open(packet, &[]) {
        Ok(plain) => read(&plain),
        Err(_) if incoming.allow_plain => read(packet),
        Err(error) => Err(error),
    }
}

fn read(packet: &[u8]) -> Result<Packet, Error> {
    let mut out = Packet::default();
    let mut reader = Reader {
        unfolded: 0,
        out: &mut out,
    };
    reader.read(without_checksum(packet)?, 0);
    Ok(out)
}

/// What the checksum protects, if there is one.
fn without_checksum(packet: &[u8]) -> Result<&[u8], Error> {
    match packet.split_first() {
        Some((&kind, rest)) if kind == u8::from(Kind::Checksum) => {
            let (said, body) = rest.split_first_chunk().ok_or(Error::Truncated)?;
            let (said, computed) = (u32::from_be_bytes(*said), crc32fast::hash(body));
            match said == computed {
                true => Ok(body),
                false => Err(Error::Checksum { said, computed }),
            }
        }
        _ => Ok(packet),
    }
}

struct Reader<'a> {
    /// Bytes that were unfolded so far.
    unfolded: usize,
    out: &'a mut Packet,
}

impl Reader<'_> {
    /// Reads a message and those that it contains.
    fn read(&mut self, message: &[u8], nesting: usize) {
        if let Err(error) = self.try_read(message, nesting) {
            self.skip(1, error);
        }
    }

    fn skip(&mut self, count: usize, error: Error) {
        self.out.skipped += count;
        self.out.first_error.get_or_insert(error);
    }

    fn try_read(&mut self, message: &[u8], nesting: usize) -> Result<(), Error> {
        let (&kind, body) = message.split_first().ok_or(Error::Empty)?;
        if nesting > MAX_NESTING {
            return Err(Error::Depth);
        }
        match Kind::try_from(kind)? {
            Kind::Compress => {
                let plain = lzw::decompress(body, MAX_UNFOLDED - self.unfolded)?;
                self.unfolded += plain.len();
                self.read(&plain, nesting + 1);
            }
            Kind::Compound => self.read_parts(body, nesting + 1)?,
            _ => self.out.messages.push(Message::decode(message)?),
        }
        Ok(())
    }

    /// Reads the parts that are there in full, as Go peers do.
    fn read_parts(&mut self, body: &[u8], nesting: usize) -> Result<(), Error> {
        let (&count, body) = body.split_first().ok_or(Error::Truncated)?;
        let count = usize::from(count);
        let (lengths, mut rest) = body.split_at_checked(2 * count).ok_or(Error::Truncated)?;
        let (lengths, _) = lengths.as_chunks::<2>();
        for (index, length) in lengths.iter().enumerate() {
            let length = usize::from(u16::from_be_bytes(*length));
            let Some((part, after)) = rest.split_at_checked(length) else {
                self.skip(count - index, Error::Truncated);
                return Ok(());
            };
            self.read(part, nesting);
            rest = after;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
