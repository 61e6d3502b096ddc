//! JSON as Consul's clients know it.
//!
//! The model's own serde form is that of the RPC wire, so each noun has views here: structs that borrow the model and
//! name, order and leave out fields as Consul's JSON does. They are written straight to bytes.

pub mod agent;
pub mod ca;
pub mod catalog;
pub mod check;
pub mod config_entry;
pub mod federation_state;
pub mod kv;

use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::ser::{CompactFormatter, Formatter};
use std::io::{self, Write};

/// Go escapes what could end a script in an HTML page; everything else is as serde writes it.
struct GoFormatter(CompactFormatter);

impl Formatter for GoFormatter {
    /// Go writes whole numbers without a fraction, and exponents for the very small and very large alone.
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size == 0.0 || (1e-6..1e21).contains(&size) {
            return write!(writer, "{value}");
        }
        let text = format!("{value:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                write!(writer, "{digits}e+{exponent}")
            }
            _ => writer.write_all(text.as_bytes()),
        }
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let escapes = |c: char| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
        let mut rest = fragment;
        while let Some(at) = rest.find(escapes) {
            let (plain, tail) = rest.split_at(at);
            self.0.write_string_fragment(writer, plain)?;
            let mut chars = tail.chars();
            if let Some(c) = chars.next() {
                write!(writer, "\\u{:04x}", u32::from(c))?;
            }
            rest = chars.as_str();
        }
        self.0.write_string_fragment(writer, rest)
    }
}

/// Encodes a value.
///
/// # Errors
/// A map with keys that are no text; the views have none.
pub fn bytes<T: Serialize>(value: &T) -> Result<Bytes, serde_json::Error> {
    let mut out = Vec::with_capacity(512);
    let formatter = GoFormatter(CompactFormatter);
    value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut out, formatter,
    ))?;
    Ok(out.into())
}

/// Encodes a sequence of views without collecting them.
///
/// # Errors
/// As [`bytes()`].
pub fn list<T: Serialize>(items: impl Iterator<Item = T>) -> Result<Bytes, serde_json::Error> {
    let mut out = Vec::with_capacity(4096);
    out.push(b'[');
    let mut serializer = serde_json::Serializer::with_formatter(out, GoFormatter(CompactFormatter));
    for (n, item) in items.enumerate() {
        if n > 0 {
            let mut out = serializer.into_inner();
            out.push(b',');
            serializer = serde_json::Serializer::with_formatter(out, GoFormatter(CompactFormatter));
        }
        item.serialize(&mut serializer)?;
    }
    let mut out = serializer.into_inner();
    out.push(b']');
    Ok(out.into())
}

/// The form of `?pretty`: four blanks per level and a newline at the end.
pub fn pretty(compact: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let (mut depth, mut in_text, mut escaped, mut opened) = (0usize, false, false, false);
    let newline = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.resize(out.len() + depth * 4, b' ');
    };
    for &byte in compact {
        if in_text {
            out.push(byte);
            in_text = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        let closes = matches!(byte, b'}' | b']');
        if opened && !closes {
            newline(&mut out, depth);
        }
        if closes {
            depth = depth.saturating_sub(1);
            if !opened {
                newline(&mut out, depth);
            }
        }
        opened = matches!(byte, b'{' | b'[');
        depth += usize::from(opened);
        out.push(byte);
        match byte {
            b'"' => in_text = true,
            b':' => out.push(b' '),
            b',' => newline(&mut out, depth),
            _ => {}
        }
    }
    out.push(b'\n');
    out.into()
}

/// A list that Go has as nil when it is empty.
pub(crate) struct NilList<'a, T>(pub(crate) &'a [T]);

impl<T: Serialize> Serialize for NilList<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.is_empty() {
            true => serializer.serialize_unit(),
            false => self.0.serialize(serializer),
        }
    }
}

/// A map that Go has as nil when it is empty.
pub(crate) struct NilMap<'a, K, V>(pub(crate) &'a std::collections::BTreeMap<K, V>);

impl<K: Serialize, V: Serialize> Serialize for NilMap<'_, K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.is_empty() {
            true => serializer.serialize_unit(),
            false => self.0.serialize(serializer),
        }
    }
}

pub(crate) fn is_empty(text: &&str) -> bool {
    text.is_empty()
}

pub(crate) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

pub(crate) fn no_items<T>(items: &&[T]) -> bool {
    items.is_empty()
}

pub(crate) fn no_pairs<K, V>(map: &&std::collections::BTreeMap<K, V>) -> bool {
    map.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_as_go_does() {
        let text = "a<b>&\u{2028}\"\n";
        let got = bytes(&text).unwrap();
        assert_eq!(got, "\"a\\u003cb\\u003e\\u0026\\u2028\\\"\\n\"");
        assert_eq!(serde_json::from_slice::<String>(&got).unwrap(), text);
    }

    #[test]
    fn pretty_is_gos_indentation() {
        let got = pretty(br#"{"a":[],"b":{"c":[1,"x,{\"y"]},"d":{}}"#);
        let expected = "{\n    \"a\": [],\n    \"b\": {\n        \"c\": [\n            1,\n            \"x,{\\\"y\"\n        ]\n    },\n    \"d\": {}\n}\n";
        assert_eq!(got, expected);
        assert_eq!(pretty(b"true"), "true\n");
    }

    #[test]
    fn lists_are_written_item_by_item() {
        assert_eq!(list([1, 2].iter()).unwrap(), "[1,2]");
        assert_eq!(list(std::iter::empty::<u8>()).unwrap(), "[]");
    }
}
