//! HCL 1 (HashiCorp's configuration language, first version) and JSON to a tree that keeps lines.
//!
//! HCL 1 is not HCL 2: a block may begin on the brace's line, keys may be quoted, a list may hold
//! blocks, a key may come twice, and a file that begins with `{` is JSON.

use crate::config::json;
use crate::config::scan::Scanner;
use crate::config::scan::SyntaxError;
use crate::config::tree::Entry;
use crate::config::tree::Node;
use crate::config::tree::Value;

/// Reads a whole file: JSON when it begins with `{`, else HCL. Gives an object.
///
/// # Errors
/// The first place that cannot be read, or a bound that is exceeded.
pub fn parse(text: &str) -> Result<Node, SyntaxError> {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    if start.starts_with('{') {
        return json::parse(text);
    }
    let mut scanner = Scanner::new(text)?;
    let entries = items(&mut scanner, None)?;
    Ok(Node {
        value: Value::Object(entries),
        line: 1,
    })
}

/// Skips space and comments.
fn space(scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
    loop {
        match (scanner.peek(), scanner.peek_second()) {
            (Some(b' ' | b'\t' | b'\r' | b'\n'), _) => {
                scanner.bump();
            }
            (Some(b'#'), _) | (Some(b'/'), Some(b'/')) => {
                scanner.take_line();
            }
            (Some(b'/'), Some(b'*')) => block_comment(scanner)?,
            _ => return Ok(()),
        }
    }
}

fn block_comment(scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
    let begin = scanner.mark();
    scanner.bump();
    scanner.bump();
    loop {
        match scanner.bump() {
            Some(b'*') if scanner.eat(b'/') => return Ok(()),
            Some(_) => {}
            None => return Scanner::fail_at(begin, "comment not terminated"),
        }
    }
}

/// Entries up to `close`, or to the end of the file.
fn items(scanner: &mut Scanner<'_>, close: Option<u8>) -> Result<Vec<Entry>, SyntaxError> {
    let mut out = Vec::new();
    loop {
        space(scanner)?;
        match scanner.peek() {
            None if close.is_none() => return Ok(out),
            None => return scanner.fail("object expected closing RBRACE got: EOF"),
            found if found == close => {
                scanner.bump();
                return Ok(out);
            }
            Some(_) => out.push(item(scanner)?),
        }
        space(scanner)?;
        scanner.eat(b',');
    }
}

/// `key = value`, `key { … }` or `key "label" … { … }`; labels become nested objects.
fn item(scanner: &mut Scanner<'_>) -> Result<Entry, SyntaxError> {
    let line = scanner.line();
    let key = key(scanner)?;
    let mut labels = Vec::new();
    let mut node = loop {
        space(scanner)?;
        match scanner.peek() {
            Some(b'=' | b':') if labels.is_empty() => {
                scanner.bump();
                break value(scanner)?;
            }
            Some(b'{') => break object(scanner)?,
            Some(b'"' | b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9' | 0x80..) => {
                scanner.enter()?;
                labels.push((scanner.line(), self::key(scanner)?));
            }
            _ => {
                return scanner.fail(format!(
                    "expected '=' or '{{' after {key:?}, {} found",
                    scanner.found()
                ));
            }
        }
    };
    while let Some((line, key)) = labels.pop() {
        scanner.leave();
        node = Node {
            value: Value::Object(vec![Entry { key, line, node }]),
            line,
        };
    }
    Ok(Entry { key, line, node })
}

fn key(scanner: &mut Scanner<'_>) -> Result<String, SyntaxError> {
    if scanner.peek() == Some(b'"') {
        return string(scanner);
    }
    let text = scanner
        .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.') || c >= 0x80);
    if text.is_empty() {
        return scanner.fail(format!("a key expected, {} found", scanner.found()));
    }
    Ok(text)
}

fn value(scanner: &mut Scanner<'_>) -> Result<Node, SyntaxError> {
    space(scanner)?;
    let line = scanner.line();
    let value = match scanner.peek() {
        Some(b'"') => Value::Text(string(scanner)?),
        Some(b'{') => return object(scanner),
        Some(b'[') => list(scanner)?,
        Some(b'<') => Value::Text(heredoc(scanner)?),
        Some(b'0'..=b'9' | b'-' | b'+' | b'.') => number(scanner)?,
        Some(c) if c.is_ascii_alphabetic() => word(scanner)?,
        _ => return scanner.fail(format!("a value expected, {} found", scanner.found())),
    };
    Ok(Node { value, line })
}

fn object(scanner: &mut Scanner<'_>) -> Result<Node, SyntaxError> {
    let line = scanner.line();
    scanner.enter()?;
    scanner.bump();
    let entries = items(scanner, Some(b'}'))?;
    scanner.leave();
    Ok(Node {
        value: Value::Object(entries),
        line,
    })
}

fn list(scanner: &mut Scanner<'_>) -> Result<Value, SyntaxError> {
    scanner.enter()?;
    scanner.bump();
    let mut out = Vec::new();
    loop {
        space(scanner)?;
        if scanner.eat(b']') {
            scanner.leave();
            return Ok(Value::List(out));
        }
        if scanner.peek().is_none() {
            return scanner.fail("list not terminated: ']' expected");
        }
        out.push(value(scanner)?);
        space(scanner)?;
        if !scanner.eat(b',') && scanner.peek() != Some(b']') {
            return scanner.fail(format!(
                "',' or ']' expected in the list, {} found",
                scanner.found()
            ));
        }
    }
}

/// `<<TAG` up to a line with TAG alone; `<<-TAG` takes the indentation of that line off every line.
fn heredoc(scanner: &mut Scanner<'_>) -> Result<String, SyntaxError> {
    let begin = scanner.mark();
    scanner.bump();
    if !scanner.eat(b'<') {
        return scanner.fail("a heredoc begins with '<<'");
    }
    let unindent = scanner.eat(b'-');
    let tag = scanner.take_line().trim().to_owned();
    if tag.is_empty() {
        return scanner.fail("a heredoc needs a tag after '<<'");
    }
    let mut lines = Vec::new();
    let indentation = loop {
        if scanner.peek().is_none() {
            return Scanner::fail_at(
                begin,
                format!("heredoc not terminated: a line {tag:?} expected"),
            );
        }
        let line = scanner.take_line();
        if line.trim() == tag {
            break line.len() - line.trim_start().len();
        }
        lines.push(line);
    };
    let blank = |text: &str| text.bytes().all(|c| matches!(c, b' ' | b'\t'));
    let strip = unindent
        && lines
            .iter()
            .all(|l| l.get(..indentation).is_some_and(blank) || blank(l));
    let from = if strip { indentation } else { 0 };
    Ok(lines
        .iter()
        .map(|line| format!("{}\n", line.get(from..).unwrap_or_default()))
        .collect())
}

/// Decimal, `0x` and leading-zero octal numbers, and floats.
fn number(scanner: &mut Scanner<'_>) -> Result<Value, SyntaxError> {
    let text = scanner.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'+' | b'-'));
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or((1, text.as_str()), |rest| (-1, rest));
    let int = if let Some(hex) = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        i64::from_str_radix(hex, 16).ok()
    } else if digits.len() > 1
        && digits.starts_with('0')
        && digits.bytes().all(|c| c.is_ascii_digit())
    {
        i64::from_str_radix(digits, 8).ok()
    } else {
        digits.parse::<i64>().ok()
    };
    if let Some(int) = int {
        return Ok(Value::Int(int.wrapping_mul(sign)));
    }
    let is_float = digits
        .bytes()
        .all(|c| matches!(c, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse::<f64>() {
        Ok(float) if is_float && float.is_finite() => Ok(Value::Float(float)),
        _ => scanner.fail(format!(
            "{} is not a number; quote it if it is a string (durations are)",
            begin_of(&text)
        )),
    }
}

fn word(scanner: &mut Scanner<'_>) -> Result<Value, SyntaxError> {
    let text = scanner.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'));
    match text.as_str() {
        "true" => Ok(Value::Bool(true)),
        "false" => Ok(Value::Bool(false)),
        _ => scanner.fail(format!(
            "Unknown token: IDENT {}; strings need quotes",
            begin_of(&text)
        )),
    }
}

/// Enough of a word to find it; the rest may belong to a secret that somebody forgot to quote.
fn begin_of(text: &str) -> String {
    let begin: String = text.chars().take(8).collect();
    if begin.len() < text.len() {
        format!("{begin}\u{2026}")
    } else {
        begin
    }
}

/// A quoted string. Inside `${ … }` quotes and line ends belong to the string, as HCL has it.
fn string(scanner: &mut Scanner<'_>) -> Result<String, SyntaxError> {
    let begin = scanner.mark();
    scanner.bump();
    let mut out = Vec::new();
    let mut depth = 0_u32;
    loop {
        match scanner.bump() {
            None => return Scanner::fail_at(begin, "literal not terminated"),
            Some(b'"') if depth == 0 => return scanner.text(out),
            Some(b'\n') if depth == 0 => return Scanner::fail_at(begin, "literal not terminated"),
            Some(b'\\') if depth == 0 => scanner.escape(&mut out)?,
            Some(b'$') if scanner.peek() == Some(b'{') => {
                scanner.bump();
                depth += 1;
                out.extend_from_slice(b"${");
            }
            Some(byte) => {
                match byte {
                    b'{' if depth > 0 => depth += 1,
                    b'}' if depth > 0 => depth -= 1,
                    _ => {}
                }
                out.push(byte);
            }
        }
    }
}

#[cfg(test)]
mod tests;
