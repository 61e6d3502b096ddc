//! As much of the tar format (POSIX ustar) as an archive needs: a few plain files in a known order.

use crate::store::archive::{ArchiveError, damaged};

const BLOCK: usize = 512;
/// Where fields lie in a header.
const NAME: std::ops::Range<usize> = 0..100;
const SIZE: std::ops::Range<usize> = 124..136;
const SUM: std::ops::Range<usize> = 148..156;

/// Adds a file.
pub(super) fn append(out: &mut Vec<u8>, name: &str, content: &[u8]) {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(field) = header.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    put(NAME.start, name.as_bytes());
    put(100, b"0000600\0"); // mode
    put(108, b"0000000\0"); // owner
    put(116, b"0000000\0"); // group
    put(SIZE.start, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0"); // time
    put(156, b"0"); // a plain file
    put(257, b"ustar\x0000");
    let sum = format!("{:06o}\0 ", checksum(&header));
    if let Some(field) = header.get_mut(SUM) {
        field.copy_from_slice(sum.as_bytes());
    }
    out.extend(header);
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
}

/// Ends the archive.
pub(super) fn end(out: &mut Vec<u8>) {
    out.resize(out.len() + 2 * BLOCK, 0);
}

/// The sum of the header's bytes, its own field counted as blanks.
fn checksum(header: &[u8]) -> u32 {
    let byte = |(at, byte): (usize, &u8)| match SUM.contains(&at) {
        true => u32::from(b' '),
        false => u32::from(*byte),
    };
    header.iter().enumerate().map(byte).sum()
}

/// The files of an archive that were not read yet.
pub(super) struct Files<'a>(pub(super) &'a [u8]);

impl<'a> Files<'a> {
    /// The next file, which must have this name.
    pub(super) fn next(&mut self, name: &str) -> Result<&'a [u8], ArchiveError> {
        let bad = |problem: &str| damaged(&format!("{name}: {problem}"));
        let (header, rest) = self
            .0
            .split_at_checked(BLOCK)
            .ok_or_else(|| bad("it is not there"))?;
        let octal = |range: std::ops::Range<usize>| {
            let text = std::str::from_utf8(header.get(range)?).ok()?;
            let digits = text.trim_matches([' ', '\0']);
            usize::from_str_radix(digits, 8).ok()
        };
        if octal(SUM) != usize::try_from(checksum(header)).ok() {
            return Err(bad("its header has a wrong checksum"));
        }
        let found = header.get(NAME).unwrap_or_default();
        if found.split(|byte| *byte == 0).next() != Some(name.as_bytes()) {
            return Err(bad("another file is in its place"));
        }
        let size = octal(SIZE).ok_or_else(|| bad("its header has no size"))?;
        let padded = size.checked_next_multiple_of(BLOCK);
        let padded = padded.filter(|padded| *padded <= rest.len());
        let padded = padded.ok_or_else(|| bad("it ends too early"))?;
        self.0 = rest.get(padded..).unwrap_or_default();
        Ok(rest.get(..size).unwrap_or_default())
    }
}
