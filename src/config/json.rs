//! JSON (RFC 8259) to a tree that keeps lines; `serde_json` would lose them.

use crate::config::scan::Scanner;
use crate::config::scan::SyntaxError;
use crate::config::tree::Entry;
use crate::config::tree::Node;
use crate::config::tree::Value;

/// Reads one JSON value and nothing after it.
///
/// # Errors
/// The first place that is not JSON, or a bound that is exceeded.
pub fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut scanner = Scanner::new(text)?;
    let node = value(&mut scanner)?;
    space(&mut scanner);
    match scanner.peek() {
        None => Ok(node),
        Some(_) => scanner.fail(format!(
            "{} after the end of the JSON value",
            scanner.found()
        )),
    }
}

fn space(scanner: &mut Scanner<'_>) {
    while matches!(scanner.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
        scanner.bump();
    }
}

fn value(scanner: &mut Scanner<'_>) -> Result<Node, SyntaxError> {
    space(scanner);
    let line = scanner.line();
    let value = match scanner.peek() {
        Some(b'{') => nested(scanner, object)?,
        Some(b'[') => nested(scanner, list)?,
        Some(b'"') => Value::Text(string(scanner)?),
        Some(b'-' | b'0'..=b'9') => number(scanner)?,
        Some(b't' | b'f' | b'n') => word(scanner)?,
        _ => return scanner.fail(format!("a value expected, {} found", scanner.found())),
    };
    Ok(Node { value, line })
}

fn nested(
    scanner: &mut Scanner<'_>,
    read: fn(&mut Scanner<'_>) -> Result<Value, SyntaxError>,
) -> Result<Value, SyntaxError> {
    scanner.enter()?;
    scanner.bump();
    let value = read(scanner)?;
    scanner.leave();
    Ok(value)
}

fn object(scanner: &mut Scanner<'_>) -> Result<Value, SyntaxError> {
    let mut entries = Vec::new();
    space(scanner);
    if scanner.eat(b'}') {
        return Ok(Value::Object(entries));
    }
    loop {
        space(scanner);
        let line = scanner.line();
        if scanner.peek() != Some(b'"') {
            return scanner.fail(format!("a quoted key expected, {} found", scanner.found()));
        }
        let key = string(scanner)?;
        space(scanner);
        if !scanner.eat(b':') {
            return scanner.fail(format!(
                "':' expected after the key {key:?}, {} found",
                scanner.found()
            ));
        }
        let node = value(scanner)?;
        entries.push(Entry { key, line, node });
        space(scanner);
        if scanner.eat(b'}') {
            return Ok(Value::Object(entries));
        }
        if !scanner.eat(b',') {
            return scanner.fail(format!("',' or '}}' expected, {} found", scanner.found()));
        }
    }
}

fn list(scanner: &mut Scanner<'_>) -> Result<Value, SyntaxError> {
    let mut items = Vec::new();
    space(scanner);
    if scanner.eat(b']') {
        return Ok(Value::List(items));
    }
    loop {
        items.push(value(scanner)?);
        space(scanner);
        if scanner.eat(b']') {
            return Ok(Value::List(items));
        }
        if !scanner.eat(b',') {
            return scanner.fail(format!("',' or ']' expected, {} found", scanner.found()));
        }
    }
}

fn string(scanner: &mut Scanner<'_>) -> Result<String, SyntaxError> {
    let begin = scanner.mark();
    scanner.bump();
    let mut out = Vec::new();
    loop {
        match scanner.bump() {
            Some(b'"') => return scanner.text(out),
            Some(b'\\') => scanner.escape(&mut out)?,
            Some(byte) if byte < 0x20 => {
                return scanner.fail("a control character inside a string");
            }
            Some(byte) => out.push(byte),
            None => return Scanner::fail_at(begin, "literal not terminated"),
        }
    }
}

fn number(scanner: &mut Scanner<'_>) -> Result<Value, SyntaxError> {
    let text = scanner.take_while(|c| matches!(c, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
    match serde_json::from_str::<serde_json::Number>(&text) {
        Ok(number) => match number.as_i64() {
            Some(int) => Ok(Value::Int(int)),
            None => Ok(Value::Float(number.as_f64().unwrap_or(f64::MAX))),
        },
        Err(_) => scanner.fail(format!("{text:?} is not a number")),
    }
}

fn word(scanner: &mut Scanner<'_>) -> Result<Value, SyntaxError> {
    let text = scanner.take_while(|c| c.is_ascii_alphanumeric());
    match text.as_str() {
        "true" => Ok(Value::Bool(true)),
        "false" => Ok(Value::Bool(false)),
        "null" => Ok(Value::Null),
        _ => scanner.fail(format!("a value expected, {text:?} found")),
    }
}
