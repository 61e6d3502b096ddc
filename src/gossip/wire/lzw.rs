//! Compressed messages: LZW, least significant bit first, 8 bit literals, as Go's compress/lzw writes it.

use serde::Deserialize;
use serde::Serialize;
use weezl::BitOrder;
use weezl::LzwStatus;
use weezl::decode;
use weezl::encode;

use crate::codec;
use crate::gossip::wire::Blob;
use crate::gossip::wire::Error;
use crate::gossip::wire::message::Kind;

/// Bits of a literal.
const LITERAL_BITS: u8 = 8;
/// The only algorithm that memberlist knows.
const LZW: u8 = 0;

/// The body of a compressed message.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Compressed {
    algo: u8,
    buf: Blob,
}

/// Wraps `plain` as a compressed message, its kind included.
pub(super) fn compress(plain: &[u8]) -> Result<Vec<u8>, Error> {
    let packed = encode::Encoder::new(BitOrder::Lsb, LITERAL_BITS).encode(plain);
    let body = Compressed {
        algo: LZW,
        buf: packed.map_err(|_| Error::Lzw)?.into(),
    };
    let mut out = vec![Kind::Compress.into()];
    codec::append(&mut out, &body)?;
    Ok(out)
}

/// What the body of a compressed message unfolds to, at most `limit` bytes.
pub(super) fn decompress(mut body: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let body: Compressed = codec::take(&mut body)?;
    match body.algo {
        LZW => unpack(&body.buf, limit),
        other => Err(Error::Algorithm(other)),
    }
}

fn unpack(packed: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let most = limit.saturating_add(1); // One more than allowed, to see that it is more.
    let mut decoder = decode::Decoder::new(BitOrder::Lsb, LITERAL_BITS);
    let mut out = vec![0; packed.len().saturating_mul(3).max(64).min(most)];
    let (mut read, mut written) = (0, 0);
    loop {
        let input = packed.get(read..).unwrap_or_default();
        let room = out.get_mut(written..).unwrap_or_default();
        let step = decoder.decode_bytes(input, room);
        read += step.consumed_in;
        written += step.consumed_out;
        let done = matches!(step.status.map_err(|_| Error::Lzw)?, LzwStatus::Done);
        if written > limit {
            let what = "decompressed data";
            return Err(Error::TooLarge {
                what,
                size: written,
                limit,
            });
        }
        if done {
            out.truncate(written);
            return Ok(out);
        }
        if written == out.len() {
            out.resize(out.len().saturating_mul(2).min(most), 0);
        } else if step.consumed_in == 0 && step.consumed_out == 0 {
            return Err(Error::Truncated);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compressed_comes_back() {
        for len in [0, 1, 255, 1400, 100_000] {
            let plain: Vec<u8> = (0..len).map(|n: u32| (n % 251 * (n % 241)) as u8).collect();
            let message = compress(&plain).unwrap();
            assert_eq!(decompress(&message[1..], 100_000), Ok(plain), "{len}");
        }
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let bomb = compress(&vec![0; 1 << 20]).unwrap();
        assert!(bomb.len() < 4096);
        let error = decompress(&bomb[1..], 1000).unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit: 1000, .. }));
        assert!(decompress(&bomb[1..], 1 << 20).is_ok());
    }

    #[test]
    fn cut_off_data_is_an_error() {
        let body = Compressed {
            algo: 0,
            buf: Blob::from(&compress(b"some text, some text").unwrap()[16..20]),
        };
        assert!(decompress(&codec::to_vec(&body).unwrap(), 100).is_err());
        let body = Compressed {
            algo: 1,
            buf: Blob::default(),
        };
        let other = codec::to_vec(&body).unwrap();
        assert_eq!(decompress(&other, 100), Err(Error::Algorithm(1)));
    }
}
