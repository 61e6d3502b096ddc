//! The first JSON value of a body, and for a broken one what Go says about it.

use serde_json::Value;

/// How deep values may nest.
const MAX_DEPTH: usize = 127;

/// The first value of a body.
///
/// # Errors
/// `EOF` for an empty body, else the place where Go's scanner stops.
pub(crate) fn first_value(body: &[u8]) -> Result<Value, String> {
    match serde_json::Deserializer::from_slice(body)
        .into_iter()
        .next()
    {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(explain(body).unwrap_or_else(|| error.to_string())),
        None => Err("EOF".into()),
    }
}

/// Go's words for what is wrong with a text; `None` if Go would find nothing wrong.
fn explain(body: &[u8]) -> Option<String> {
    let mut scanner = Scanner { rest: body };
    let problem = scanner.value(0).err()?;
    Some(match problem {
        Problem::End if body.iter().all(u8::is_ascii_whitespace) => "EOF".into(),
        Problem::End => "unexpected EOF".into(),
        Problem::Depth => "exceeded max depth".into(),
        Problem::Byte(byte, place) => format!("invalid character {} {place}", quoted(byte)),
    })
}

fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".into(),
        b'"' => "'\"'".into(),
        b'\\' => r"'\\'".into(),
        b'\n' => r"'\n'".into(),
        b'\r' => r"'\r'".into(),
        b'\t' => r"'\t'".into(),
        0x20..=0x7e => format!("'{}'", char::from(byte)),
        0xa1.. => format!("'{}'", char::from(byte)),
        _ => format!("'\\x{byte:02x}'"),
    }
}

enum Problem {
    End,
    Depth,
    Byte(u8, String),
}

type Scan = Result<(), Problem>;

struct Scanner<'a> {
    rest: &'a [u8],
}

impl Scanner<'_> {
    fn next(&mut self) -> Result<u8, Problem> {
        let (byte, rest) = self.rest.split_first().ok_or(Problem::End)?;
        self.rest = rest;
        Ok(*byte)
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The next byte that is no blank.
    fn token(&mut self) -> Result<u8, Problem> {
        loop {
            match self.next()? {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                byte => return Ok(byte),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Scan {
        let first = self.token()?;
        self.value_from(first, depth)
    }

    fn value_from(&mut self, first: u8, depth: usize) -> Scan {
        if depth > MAX_DEPTH {
            return Err(Problem::Depth);
        }
        match first {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' => {
                let digit = self.next()?;
                if !digit.is_ascii_digit() {
                    return Err(Problem::Byte(digit, "in numeric literal".into()));
                }
                self.number(digit)
            }
            b'0'..=b'9' => self.number(first),
            other => {
                let place = "looking for beginning of value";
                Err(Problem::Byte(other, place.into()))
            }
        }
    }

    fn object(&mut self, depth: usize) -> Scan {
        let mut first = true;
        loop {
            match self.token()? {
                b'}' if first => return Ok(()),
                b'"' => self.string()?,
                other => {
                    let place = "looking for beginning of object key string";
                    return Err(Problem::Byte(other, place.into()));
                }
            }
            first = false;
            match self.token()? {
                b':' => {}
                other => return Err(Problem::Byte(other, "after object key".into())),
            }
            self.value(depth + 1)?;
            match self.token()? {
                b',' => {}
                b'}' => return Ok(()),
                other => return Err(Problem::Byte(other, "after object key:value pair".into())),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Scan {
        let mut item = self.token()?;
        if item == b']' {
            return Ok(());
        }
        loop {
            self.value_from(item, depth + 1)?;
            match self.token()? {
                b',' => item = self.token()?,
                b']' => return Ok(()),
                other => return Err(Problem::Byte(other, "after array element".into())),
            }
        }
    }

    fn string(&mut self) -> Scan {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                control @ 0..=0x1f => {
                    return Err(Problem::Byte(control, "in string literal".into()));
                }
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Scan {
        match self.next()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => (0..4).try_for_each(|_| match self.next()? {
                hex if hex.is_ascii_hexdigit() => Ok(()),
                other => {
                    let place = "in \\u hexadecimal character escape";
                    Err(Problem::Byte(other, place.into()))
                }
            }),
            other => Err(Problem::Byte(other, "in string escape code".into())),
        }
    }

    fn literal(&mut self, word: &str) -> Scan {
        for expected in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != expected {
                let expected = char::from(expected);
                let place = format!("in literal {word} (expecting '{expected}')");
                return Err(Problem::Byte(byte, place));
            }
        }
        Ok(())
    }

    fn number(&mut self, first: u8) -> Scan {
        if first != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.next()?;
            self.digit("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.next()?;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.next()?;
            }
            self.digit("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn digit(&mut self, place: &str) -> Scan {
        let byte = self.next()?;
        if !byte.is_ascii_digit() {
            return Err(Problem::Byte(byte, place.into()));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        let end = self.rest.iter().position(|b| !b.is_ascii_digit());
        self.rest = self
            .rest
            .get(end.unwrap_or(self.rest.len())..)
            .unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_json_is_explained_as_go_does() {
        for (body, text) in [
            ("", "EOF"),
            ("  \n", "EOF"),
            (
                "{bad",
                "invalid character 'b' looking for beginning of object key string",
            ),
            ("{\"a\"", "unexpected EOF"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            (
                "{\"a\":1 \"b\"}",
                "invalid character '\"' after object key:value pair",
            ),
            (
                "{\"a\":1,}",
                "invalid character '}' looking for beginning of object key string",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            (
                "[1,]",
                "invalid character ']' looking for beginning of value",
            ),
            ("x", "invalid character 'x' looking for beginning of value"),
            (
                "trux",
                "invalid character 'x' in literal true (expecting 'e')",
            ),
            ("-x", "invalid character 'x' in numeric literal"),
            (
                "1.x",
                "invalid character 'x' after decimal point in numeric literal",
            ),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
        ] {
            assert_eq!(first_value(body.as_bytes()).unwrap_err(), text, "{body:?}");
        }
        assert!(first_value(&[b'['; 5000]).is_err(), "no stack overflow");
        assert!(first_value(b"{} trailing").is_ok());
    }
}
