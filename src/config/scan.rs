//! Walking over the bytes of a configuration file: position, errors and string escapes, for both syntaxes.

use std::fmt;

/// Largest configuration file that is read, in bytes.
pub const MAX_BYTES: usize = 16 << 20;

/// Deepest nesting of blocks and lists that is read.
pub const MAX_DEPTH: u32 = 64;

/// Why a text is neither HCL nor JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: usize,
    /// What was found and what was expected.
    pub what: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "At {}:{}: {}", self.line, self.column, self.what)
    }
}

impl std::error::Error for SyntaxError {}

/// A cursor over bytes that knows its line.
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u32,
    line_start: usize,
    depth: u32,
}

impl<'a> Scanner<'a> {
    /// Starts at the beginning of `text`, after a byte order mark.
    pub(super) fn new(text: &'a str) -> Result<Self, SyntaxError> {
        let bytes = text.strip_prefix('\u{feff}').unwrap_or(text).as_bytes();
        let scanner = Self {
            bytes,
            at: 0,
            line: 1,
            line_start: 0,
            depth: 0,
        };
        if bytes.len() > MAX_BYTES {
            return scanner.fail(format!(
                "the file has {} bytes, at most {MAX_BYTES} are read",
                bytes.len()
            ));
        }
        Ok(scanner)
    }

    pub(super) fn line(&self) -> u32 {
        self.line
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(super) fn peek_second(&self) -> Option<u8> {
        self.bytes.get(self.at + 1).copied()
    }

    pub(super) fn bump(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        if byte == b'\n' {
            self.line += 1;
            self.line_start = self.at;
        }
        Some(byte)
    }

    /// Takes the next byte when it is `wanted`.
    pub(super) fn eat(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.bump();
        }
        found
    }

    /// Takes bytes while `keep` says so, as text.
    pub(super) fn take_while(&mut self, keep: impl Fn(u8) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&keep) {
            self.bump();
        }
        String::from_utf8_lossy(self.bytes.get(start..self.at).unwrap_or_default()).into_owned()
    }

    /// Takes the rest of the line with its end, and gives it without.
    pub(super) fn take_line(&mut self) -> String {
        let text = self.take_while(|byte| byte != b'\n');
        self.bump();
        text.strip_suffix('\r').map_or(text.clone(), str::to_owned)
    }

    /// This place, for [`Self::fail_at`].
    pub(super) fn mark(&self) -> (u32, usize) {
        (self.line, self.at.saturating_sub(self.line_start) + 1)
    }

    pub(super) fn fail<T>(&self, what: impl Into<String>) -> Result<T, SyntaxError> {
        Self::fail_at(self.mark(), what)
    }

    /// Fails at a place that was marked: where something began that does not end.
    pub(super) fn fail_at<T>(
        (line, column): (u32, usize),
        what: impl Into<String>,
    ) -> Result<T, SyntaxError> {
        let what = what.into();
        Err(SyntaxError { line, column, what })
    }

    /// What stands here, for messages.
    pub(super) fn found(&self) -> String {
        match self.peek() {
            None => "the end of the file".to_owned(),
            Some(byte) => format!("{:?}", char::from(byte)),
        }
    }

    /// Counts one level of nesting; the caller counts it back with [`Scanner::leave`].
    pub(super) fn enter(&mut self) -> Result<(), SyntaxError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Reads the escape after a backslash that was taken already. Both syntaxes share most of them.
    pub(super) fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), SyntaxError> {
        let plain = match self.bump() {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'a') => 7,
            Some(b'v') => 11,
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'u') => return self.unicode(out),
            Some(b'U') => {
                let code = self.digits(8, 16)?;
                return self.push_char(code, out);
            }
            Some(b'x') => {
                let code = self.digits(2, 16)?;
                return self.push_char(code, out);
            }
            Some(_) => return self.fail("illegal char escape"),
            None => return self.fail("literal not terminated"),
        };
        out.push(plain);
        Ok(())
    }

    /// `\uXXXX`, with the two halves of a pair outside the basic plane.
    fn unicode(&mut self, out: &mut Vec<u8>) -> Result<(), SyntaxError> {
        let first = self.digits(4, 16)?;
        let is_high = (0xd800..0xdc00).contains(&first);
        if is_high && self.peek() == Some(b'\\') && self.peek_second() == Some(b'u') {
            self.bump();
            self.bump();
            let second = self.digits(4, 16)?;
            if (0xdc00..0xe000).contains(&second) {
                return self.push_char(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), out);
            }
        }
        self.push_char(first, out)
    }

    fn digits(&mut self, count: usize, radix: u32) -> Result<u32, SyntaxError> {
        let mut code = 0_u32;
        for _ in 0..count {
            let digit = self
                .bump()
                .and_then(|byte| char::from(byte).to_digit(radix));
            let Some(digit) = digit else {
                return self.fail("illegal char escape: more hexadecimal digits expected");
            };
            code = code.wrapping_mul(radix).wrapping_add(digit);
        }
        Ok(code)
    }

    fn push_char(&self, code: u32, out: &mut Vec<u8>) -> Result<(), SyntaxError> {
        let Some(char) = char::from_u32(code) else {
            return self.fail("illegal char escape: not a Unicode character");
        };
        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    /// Bytes to text; the input was UTF-8 and escapes add whole characters, so this does not fail in practice.
    pub(super) fn text(&self, bytes: Vec<u8>) -> Result<String, SyntaxError> {
        match String::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(_) => self.fail("not UTF-8"),
        }
    }
}
