//! The first bytes of a msgpack value: what it is and how long.

use crate::codec::Error;

/// What a value is, and for scalars its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Head {
    Nil,
    Bool(bool),
    Uint(u64),
    /// Negative only.
    Int(i64),
    F32(f32),
    F64(f64),
    /// A string or byte string of so many bytes follows.
    Raw(usize),
    /// So many values follow.
    Array(usize),
    /// So many pairs of values follow.
    Map(usize),
}

/// Reads the head at the start of `bytes` and gives its length too; `None` when `bytes` end inside it.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Head, usize)>, Error> {
    let Some((&marker, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    let low = usize::from(marker);
    let fixed = match marker {
        0x00..=0x7f => Some(Head::Uint(marker.into())),
        0x80..=0x8f => Some(Head::Map(low & 0x0f)),
        0x90..=0x9f => Some(Head::Array(low & 0x0f)),
        0xa0..=0xbf => Some(Head::Raw(low & 0x1f)),
        0xc0 => Some(Head::Nil),
        0xc2 => Some(Head::Bool(false)),
        0xc3 => Some(Head::Bool(true)),
        0xe0..=0xff => Some(Head::Int(i64::from(marker.cast_signed()))),
        _ => None,
    };
    if let Some(head) = fixed {
        return Ok(Some((head, 1)));
    }
    let size = match marker {
        0xc4 | 0xcc | 0xd0 | 0xd9 => 1,
        0xc5 | 0xcd | 0xd1 | 0xda | 0xdc | 0xde => 2,
        0xc6 | 0xca | 0xce | 0xd2 | 0xdb | 0xdd | 0xdf => 4,
        0xcb | 0xcf | 0xd3 => 8,
        _ => return Err(Error::Marker(marker)),
    };
    let Some(number) = rest.get(..size) else {
        return Ok(None);
    };
    let n = number.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    Ok(Some((long(marker, n, size)?, 1 + size)))
}

/// The head whose marker says that the big-endian number `n` of `size` bytes follows.
fn long(marker: u8, n: u64, size: usize) -> Result<Head, Error> {
    let length = || usize::try_from(n).map_err(|_| Error::Length(n));
    Ok(match marker {
        0xca => Head::F32(f32::from_bits(n as u32)),
        0xcb => Head::F64(f64::from_bits(n)),
        0xcc..=0xcf => Head::Uint(n),
        0xd0..=0xd3 => {
            let shift = 64 - 8 * size;
            match (n << shift).cast_signed() >> shift {
                negative @ ..0 => Head::Int(negative),
                other => Head::Uint(other.cast_unsigned()),
            }
        }
        0xdc | 0xdd => Head::Array(length()?),
        0xde | 0xdf => Head::Map(length()?),
        _ => Head::Raw(length()?),
    })
}
