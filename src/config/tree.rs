//! What a configuration file says, before anybody asks what it means: values with their lines.

use serde_json::Map;
use serde_json::Number;
use serde_json::Value as Json;

/// One value and the line it begins on (from 1).
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// The line it begins on.
    pub line: u32,
}

/// A value of HCL 1 or JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// JSON's `null`: the same as leaving the key out.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A string or a heredoc.
    Text(String),
    /// `[a, b]`.
    List(Vec<Node>),
    /// `{ … }` or a block. Keys may repeat: HCL allows it, and the reader of the tree decides.
    Object(Vec<Entry>),
}

/// One `key = value` or `key { … }` of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key, without quotes.
    pub key: String,
    /// The line the key stands on.
    pub line: u32,
    /// Its value.
    pub node: Node,
}

impl Node {
    /// The entries of an object, or of a list that holds exactly one object (HCL's way to say "block").
    #[must_use]
    pub fn as_block(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Object(entries) => Some(entries),
            Value::List(items) => match items.as_slice() {
                [only] => match &only.value {
                    Value::Object(entries) => Some(entries),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    /// The name of the value's type, for messages.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) => "string",
            Value::List(_) => "list",
            Value::Object(_) => "map",
        }
    }

    /// A short form of the value for messages.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Text(value) => format!("{value:?}"),
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Object(_) => "a block".to_owned(),
        }
    }

    /// The value as JSON. A block given several times becomes an array, another repeated key keeps its last value.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => Json::from(*value),
            Value::Float(value) => Number::from_f64(*value).map_or(Json::Null, Json::Number),
            Value::Text(value) => Json::String(value.clone()),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Object(entries) => object_to_json(entries),
        }
    }
}

fn object_to_json(entries: &[Entry]) -> Json {
    let mut out = Map::new();
    for entry in entries {
        let new = entry.node.to_json();
        match out.get_mut(&entry.key) {
            Some(Json::Array(blocks)) if new.is_object() => blocks.push(new),
            Some(old) if old.is_object() && new.is_object() => {
                *old = Json::Array(vec![old.take(), new]);
            }
            Some(old) => *old = new,
            None => {
                out.insert(entry.key.clone(), new);
            }
        }
    }
    Json::Object(out)
}
