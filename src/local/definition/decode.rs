//! Reading JSON values into definitions, with the errors of Go's decoder.

use crate::model::GoDuration;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Why a value cannot be read. `field` is the outermost key, as in Consul's texts.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// A key that means nothing here.
    #[error("json: unknown field {0:?}")]
    Unknown(String),
    /// A value of another type.
    #[error("json: cannot unmarshal {found} into Go struct field .{field} of type {wanted}")]
    Type {
        /// What stands there.
        found: String,
        /// The outermost key.
        field: &'static str,
        /// What should.
        wanted: &'static str,
    },
    /// The whole is no object.
    #[error("json: cannot unmarshal {0} into Go value of type struct")]
    NoObject(&'static str),
    /// A duration without a unit or with an unknown one.
    #[error("{0}")]
    Duration(String),
}

type Result<T> = std::result::Result<T, DecodeError>;

/// A key without case and underscores.
fn normal(key: &str) -> String {
    key.chars()
        .filter(|c| *c != '_')
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn wrong<T>(value: &Value, field: &'static str, wanted: &'static str) -> Result<T> {
    Err(DecodeError::Type {
        found: type_name(value).to_owned(),
        field,
        wanted,
    })
}

/// Gives every key of an object to `take`, which answers whether it knows the key. Null values are skipped, a null object
/// has no keys.
pub(super) fn each<'a>(
    value: &'a Value,
    field: &'static str,
    mut take: impl FnMut(&str, &'a Value) -> Result<bool>,
) -> Result<()> {
    for (key, value) in object(value, field)?.into_iter().flatten() {
        let known = take(&normal(key), value)?;
        if !known {
            return Err(DecodeError::Unknown(key.clone()));
        }
    }
    Ok(())
}

fn object<'a>(value: &'a Value, field: &'static str) -> Result<Option<&'a Map<String, Value>>> {
    match value {
        Value::Object(map) => Ok(Some(map)),
        Value::Null => Ok(None),
        other if field.is_empty() => Err(DecodeError::NoObject(type_name(other))),
        other => wrong(other, field, "struct"),
    }
}

pub(super) fn text(value: &Value, field: &'static str) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Ok(String::new()),
        other => wrong(other, field, "string"),
    }
}

pub(super) fn flag(value: &Value, field: &'static str) -> Result<bool> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::Null => Ok(false),
        other => wrong(other, field, "bool"),
    }
}

pub(super) fn number(value: &Value, field: &'static str) -> Result<i64> {
    match value {
        Value::Null => Ok(0),
        Value::Number(n) => n.as_i64().map_or_else(
            || {
                Err(DecodeError::Type {
                    found: format!("number {n}"),
                    field,
                    wanted: "int",
                })
            },
            Ok,
        ),
        other => wrong(other, field, "int"),
    }
}

/// A number that does not fit names itself: Consul takes any and then answers nonsense.
pub(super) fn port(value: &Value, field: &'static str) -> Result<u16> {
    let number = number(value, field)?;
    u16::try_from(number).map_err(|_| DecodeError::Type {
        found: format!("number {number}"),
        field,
        wanted: "port (0 to 65535)",
    })
}

pub(super) fn count(value: &Value, field: &'static str) -> Result<u32> {
    let number = number(value, field)?;
    u32::try_from(number).map_err(|_| DecodeError::Type {
        found: format!("number {number}"),
        field,
        wanted: "uint32",
    })
}

pub(super) fn list<T>(
    value: &Value,
    field: &'static str,
    wanted: &'static str,
    item: impl FnMut(&Value) -> Result<T>,
) -> Result<Vec<T>> {
    match value {
        Value::Array(items) => items.iter().map(item).collect(),
        Value::Null => Ok(Vec::new()),
        other => wrong(other, field, wanted),
    }
}

pub(super) fn texts(value: &Value, field: &'static str) -> Result<Vec<String>> {
    list(value, field, "[]string", |item| text(item, field))
}

pub(super) fn map<T>(
    value: &Value,
    field: &'static str,
    wanted: &'static str,
    mut item: impl FnMut(&Value) -> Result<T>,
) -> Result<BTreeMap<String, T>> {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| Ok((key.clone(), item(value)?)))
            .collect(),
        Value::Null => Ok(BTreeMap::new()),
        other => wrong(other, field, wanted),
    }
}

pub(super) fn text_map(value: &Value, field: &'static str) -> Result<BTreeMap<String, String>> {
    map(value, field, "map[string]string", |item| text(item, field))
}

pub(super) fn open_map(value: &Value, field: &'static str) -> Result<BTreeMap<String, Value>> {
    map(value, field, "map[string]interface {}", |item| {
        Ok(item.clone())
    })
}

/// Text in Go's form, or nanoseconds.
pub(super) fn duration(value: &Value, field: &'static str) -> Result<GoDuration> {
    match value {
        Value::String(text) if text.is_empty() => Ok(GoDuration::ZERO),
        Value::String(text) => text
            .parse()
            .map_err(|_| DecodeError::Duration(duration_error(text))),
        Value::Number(_) | Value::Null => Ok(GoDuration(number(value, field)?)),
        other => wrong(other, field, "time.Duration"),
    }
}

/// Go's three texts.
fn duration_error(text: &str) -> String {
    let rest = text.trim_start_matches(['+', '-']);
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let Some(unit) = rest
        .strip_prefix(is_number)
        .map(|r| r.trim_start_matches(is_number))
    else {
        return format!("time: invalid duration {text:?}");
    };
    let unit = unit.split(is_number).next().unwrap_or(unit);
    match unit {
        "" => format!("time: missing unit in duration {text:?}"),
        "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => {
            format!("time: invalid duration {text:?}")
        }
        unknown => format!("time: unknown unit {unknown:?} in duration {text:?}"),
    }
}
