//! A msgpack value of any shape.

use std::fmt;

use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::Serializer;
use serde::de;
use serde::ser::SerializeMap;

use crate::codec::Error;

/// A msgpack value of any shape, for what is passed on or shown without being understood.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Go's nil.
    Nil,
    /// A truth value.
    Bool(bool),
    /// A non-negative integer.
    Uint(u64),
    /// A negative integer.
    Int(i64),
    /// A floating point number of 32 bits.
    F32(f32),
    /// A floating point number of 64 bits.
    F64(f64),
    /// A string or a byte string: the format does not tell them apart.
    Raw(Vec<u8>),
    /// A list.
    Array(Vec<Value>),
    /// Pairs of key and value, in the order in which they were read.
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// The value of `key` in a map.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map(pairs) = self else {
            return None;
        };
        pairs.iter().find_map(|(k, v)| match k {
            Value::Raw(raw) if raw == key.as_bytes() => Some(v),
            _ => None,
        })
    }

    /// The text of a string that is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Raw(raw) => std::str::from_utf8(raw).ok(),
            _ => None,
        }
    }

    /// JSON to look at: strings that are not UTF-8 become `{"hex": "..."}`, integer keys become text.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::Nil => serde_json::Value::Null,
            Value::Bool(v) => (*v).into(),
            Value::Uint(v) => (*v).into(),
            Value::Int(v) => (*v).into(),
            Value::F32(v) => (*v).into(),
            Value::F64(v) => (*v).into(),
            Value::Raw(raw) => match std::str::from_utf8(raw) {
                Ok(text) => text.into(),
                Err(_) => serde_json::json!({ "hex": hex(raw) }),
            },
            Value::Array(items) => items.iter().map(Value::to_json).collect(),
            Value::Map(pairs) => pairs
                .iter()
                .map(|(key, value)| (key.to_key(), value.to_json()))
                .collect(),
        }
    }

    /// The reverse of [`Value::to_json`], so also takes `{"hex": "..."}` for bytes.
    ///
    /// # Errors
    /// When such hex digits are none.
    pub fn from_json(json: &serde_json::Value) -> Result<Self, Error> {
        Ok(match json {
            serde_json::Value::Null => Value::Nil,
            serde_json::Value::Bool(v) => Value::Bool(*v),
            serde_json::Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(v), _) => Value::Uint(v),
                (None, Some(v)) => Value::Int(v),
                (None, None) => Value::F64(number.as_f64().unwrap_or_default()),
            },
            serde_json::Value::String(text) => Value::Raw(text.as_bytes().into()),
            serde_json::Value::Array(items) => {
                let items = items.iter().map(Value::from_json);
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            serde_json::Value::Object(object) => match object.get("hex") {
                Some(serde_json::Value::String(digits)) if object.len() == 1 => {
                    Value::Raw(from_hex(digits)?)
                }
                _ => {
                    let pairs = object.iter().map(|(key, value)| {
                        let key = Value::Raw(key.as_bytes().into());
                        Ok((key, Value::from_json(value)?))
                    });
                    Value::Map(pairs.collect::<Result<_, Error>>()?)
                }
            },
        })
    }

    fn to_key(&self) -> String {
        match self {
            Value::Raw(raw) => String::from_utf8_lossy(raw).into_owned(),
            other => other.to_json().to_string(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Result<Vec<u8>, Error> {
    let bad = || Error::Custom(format!("{digits:?} are no hex digits"));
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).map_err(|_| bad())?;
        u8::from_str_radix(text, 16).map_err(|_| bad())
    };
    if !digits.len().is_multiple_of(2) {
        return Err(bad());
    }
    digits.as_bytes().chunks(2).map(pair).collect()
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Nil => serializer.serialize_unit(),
            Value::Bool(v) => serializer.serialize_bool(*v),
            Value::Uint(v) => serializer.serialize_u64(*v),
            Value::Int(v) => serializer.serialize_i64(*v),
            Value::F32(v) => serializer.serialize_f32(*v),
            Value::F64(v) => serializer.serialize_f64(*v),
            Value::Raw(raw) => serializer.serialize_bytes(raw),
            Value::Array(items) => serializer.collect_seq(items),
            Value::Map(pairs) => {
                let mut map = serializer.serialize_map(Some(pairs.len()))?;
                for (key, value) in pairs {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> de::Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Uint(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(u64::try_from(v).map_or(Value::Int(v), Value::Uint))
    }

    fn visit_f32<E>(self, v: f32) -> Result<Value, E> {
        Ok(Value::F32(v))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Value::F64(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::Raw(v.into()))
    }

    fn visit_bytes<E>(self, v: &[u8]) -> Result<Value, E> {
        Ok(Value::Raw(v.into()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Value::Map(pairs))
    }
}
