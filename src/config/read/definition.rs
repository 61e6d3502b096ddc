//! Service and check definitions: known fields checked, old spellings turned into today's, given as JSON.

use crate::config::duration;
use crate::config::read::Reader;
use crate::config::schema::definitions::Field;
use crate::config::schema::definitions::Shape;
use crate::config::schema::nearest_name;
use crate::config::tree::Entry;
use crate::config::tree::Node;
use crate::config::tree::Value;
use serde_json::Map;
use serde_json::Value as Json;

/// Reads a block against its fields. Names come out in lower case with underscores.
pub(super) fn read_definition(
    reader: &mut Reader<'_>,
    path: &str,
    fields: &'static [Field],
    entries: &[Entry],
) -> Json {
    let mut out = Map::new();
    for entry in entries {
        let name = entry.key.to_lowercase();
        let found = fields
            .iter()
            .find(|f| f.name == name || (!f.alias.is_empty() && f.alias == name));
        let path = format!("{path}.{}", entry.key);
        let Some(field) = found else {
            let remedy = match nearest_name(&name, fields.iter().map(|field| field.name)) {
                Some(near) => format!("did you mean {near}?"),
                None => format!(
                    "known here: {}",
                    fields.iter().map(|f| f.name).collect::<Vec<_>>().join(", ")
                ),
            };
            reader.problem(
                entry.line,
                &path,
                format!("invalid config key {path}"),
                remedy,
            );
            continue;
        };
        if let Some(json) = read_field(reader, &path, field.shape, &entry.node) {
            insert(&mut out, field, json);
        }
    }
    Json::Object(out)
}

/// Repeated blocks of a list field add up (`checks { … } checks { … }`).
fn insert(out: &mut Map<String, Json>, field: &Field, json: Json) {
    match (out.get_mut(field.name), json) {
        (Some(Json::Array(old)), Json::Array(new)) if matches!(field.shape, Shape::Blocks(_)) => {
            old.extend(new)
        }
        (_, json) => {
            out.insert(field.name.to_owned(), json);
        }
    }
}

fn read_field(reader: &mut Reader<'_>, path: &str, shape: Shape, node: &Node) -> Option<Json> {
    match (shape, &node.value) {
        (_, Value::Null) => None,
        (Shape::Bool, Value::Bool(_))
        | (Shape::Int, Value::Int(_))
        | (Shape::Text, Value::Text(_))
        | (Shape::Free, _) => Some(collapsed(node)),
        (Shape::Duration, Value::Text(text)) => match duration::parse(text) {
            Ok(_) => Some(node.to_json()),
            Err(why) => {
                reader.bad_duration(path, node.line, text, &why);
                None
            }
        },
        (Shape::Texts, Value::List(items)) => {
            let texts = reader.texts(path, items);
            Some(
                texts
                    .into_iter()
                    .map(|(text, _)| Json::String(text))
                    .collect(),
            )
        }
        (Shape::Blocks(fields), Value::List(items)) => {
            let mut blocks = Vec::new();
            for (index, item) in items.iter().enumerate() {
                blocks.extend(read_block(
                    reader,
                    &format!("{path}[{index}]"),
                    fields,
                    item,
                ));
            }
            Some(Json::Array(blocks))
        }
        (Shape::Blocks(fields), Value::Object(_)) => {
            read_block(reader, &format!("{path}[0]"), fields, node)
                .map(|block| Json::Array(vec![block]))
        }
        (Shape::Block(fields), _) => read_block(reader, path, fields, node),
        (Shape::BlockMap(fields), _) => read_map(reader, path, node, |reader, path, node| {
            read_block(reader, path, fields, node)
        }),
        (Shape::TextMap, _) => read_map(reader, path, node, |reader, path, node| {
            read_field(reader, path, Shape::Text, node)
        }),
        (Shape::TextsMap, _) => read_map(reader, path, node, |reader, path, node| {
            read_field(reader, path, Shape::Texts, node)
        }),
        _ => {
            mismatch(reader, path, shape, node);
            None
        }
    }
}

/// HCL's list of one block, as a block.
fn collapsed(node: &Node) -> Json {
    match (&node.value, node.to_json()) {
        (Value::List(_), Json::Array(mut items))
            if items.len() == 1 && items.iter().all(Json::is_object) =>
        {
            items.pop().unwrap_or_default()
        }
        (_, json) => json,
    }
}

fn read_block(
    reader: &mut Reader<'_>,
    path: &str,
    fields: &'static [Field],
    node: &Node,
) -> Option<Json> {
    match node.as_block() {
        Some(entries) => Some(read_definition(reader, path, fields, entries)),
        None => {
            mismatch(reader, path, Shape::Block(fields), node);
            None
        }
    }
}

fn read_map(
    reader: &mut Reader<'_>,
    path: &str,
    node: &Node,
    read: impl Fn(&mut Reader<'_>, &str, &Node) -> Option<Json>,
) -> Option<Json> {
    let Some(entries) = node.as_block() else {
        mismatch(reader, path, Shape::TextMap, node);
        return None;
    };
    let mut out = Map::new();
    for entry in entries {
        if let Some(json) = read(reader, &format!("{path}[{:?}]", entry.key), &entry.node) {
            out.insert(entry.key.clone(), json);
        }
    }
    Some(Json::Object(out))
}

fn mismatch(reader: &mut Reader<'_>, path: &str, shape: Shape, node: &Node) {
    let (name, remedy) = match shape {
        Shape::Bool => ("bool", "write true or false without quotes"),
        Shape::Int => ("int", "write a whole number without quotes"),
        Shape::Text => ("string", "put it in quotes"),
        Shape::Duration => ("string", "write a duration with its unit, such as \"30s\""),
        Shape::Texts => ("list of strings", "write a list: [\"a\", \"b\"]"),
        Shape::Blocks(_) => ("list of blocks", "write a list of blocks: [{ … }, { … }]"),
        _ => ("map", "write a block: { … }"),
    };
    let what = format!(
        "expected type '{name}', got {} ({})",
        node.shown(),
        node.type_name()
    );
    reader.problem(node.line, path, what, remedy);
}
