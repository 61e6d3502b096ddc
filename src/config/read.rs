//! A tree and the table of keys to typed values; every unknown key and wrong type is reported, not just the first.

use crate::config::duration;
use crate::config::layer::Settings;
use crate::config::layer::Typed;
use crate::config::problem::Origin;
use crate::config::problem::Problem;
use crate::config::problem::Problems;
use crate::config::read::definition::read_definition;
use crate::config::schema;
use crate::config::schema::Bounds;
use crate::config::schema::Key;
use crate::config::schema::Kind;
use crate::config::tree::Entry;
use crate::config::tree::Node;
use crate::config::tree::Value;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

mod definition;

/// Tolerated without effect, as in Consul.
const IGNORED: &str = "acl_enforce_version_8";

/// Reads one file's tree into `settings`.
pub(super) struct Reader<'a> {
    /// The file's name for messages.
    pub(super) path: &'a Arc<str>,
    /// Where the values go.
    pub(super) settings: &'a mut Settings,
    /// What is wrong.
    pub(super) problems: &'a mut Problems,
    /// What is odd, but accepted.
    pub(super) warnings: &'a mut Problems,
}

impl Reader<'_> {
    /// Reads the whole tree.
    pub(super) fn read(&mut self, root: &Node) {
        match root.as_block() {
            Some(entries) => self.block("", entries),
            None => self.problem(
                root.line,
                "",
                "the file must hold one object: key = value, …",
                "",
            ),
        }
    }

    fn problem(
        &mut self,
        line: u32,
        key: &str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let origin = Origin::file(self.path, line);
        self.problems
            .push(Problem::new(origin, key, what).remedy(remedy));
    }

    fn block(&mut self, parent: &str, entries: &[Entry]) {
        let mut seen = BTreeSet::new();
        for entry in entries {
            let name = entry.key.to_lowercase();
            let path = if parent.is_empty() {
                name
            } else {
                format!("{parent}.{name}")
            };
            if let Some(key) = schema::find(&path) {
                if !seen.insert(path)
                    && matches!(
                        key.kind,
                        Kind::Bool | Kind::Int | Kind::Float | Kind::Text | Kind::Duration
                    )
                {
                    let what = format!(
                        "{} is set twice in this block; the last value counts",
                        key.path
                    );
                    self.warnings.push(Problem::new(
                        Origin::file(self.path, entry.line),
                        key.path,
                        what,
                    ));
                }
                self.value(key, entry);
            } else if schema::is_block(&path) {
                self.nested(&path, entry);
            } else {
                self.unknown(parent, entry);
            }
        }
    }

    /// A block of known keys. Given several times it merges; HCL's list of one block is that block.
    fn nested(&mut self, path: &str, entry: &Entry) {
        match (&entry.node.value, entry.node.as_block()) {
            (Value::Null, _) => {}
            (_, Some(entries)) => self.block(path, entries),
            (_, None) => {
                let what = format!("expected a map, got {}", entry.node.shown());
                self.problem(entry.line, path, what, format!("write {path} {{ … }}"));
            }
        }
    }

    fn unknown(&mut self, parent: &str, entry: &Entry) {
        let path = if parent.is_empty() {
            entry.key.clone()
        } else {
            format!("{parent}.{}", entry.key)
        };
        if path == IGNORED {
            let what = format!("config key {IGNORED:?} is deprecated and should be removed");
            self.warnings.push(Problem::new(
                Origin::file(self.path, entry.line),
                IGNORED,
                what,
            ));
            return;
        }
        let remedy = match schema::nearest(&path) {
            Some(near) => format!("did you mean {near}?"),
            None => "remove it: no known key is similar".to_owned(),
        };
        let shown: String = path.chars().take(200).collect();
        self.problem(
            entry.line,
            &shown,
            format!("invalid config key {shown}"),
            remedy,
        );
    }

    fn value(&mut self, key: &'static Key, entry: &Entry) {
        if entry.node.value == Value::Null {
            return; // JSON's null leaves the key unset.
        }
        let Some(typed) = self.typed(key, entry) else {
            self.settings.refuse(key.path);
            return;
        };
        if let Err((what, remedy)) = check_bounds(key, &typed) {
            self.settings.refuse(key.path);
            self.problem(entry.line, key.path, what, remedy);
            return;
        }
        self.settings
            .set(key.path, typed, Origin::file(self.path, entry.line));
    }

    fn typed(&mut self, key: &'static Key, entry: &Entry) -> Option<Typed> {
        let node = &entry.node;
        match (key.kind, &node.value) {
            (Kind::Bool, Value::Bool(value)) => Some(Typed::Bool(*value)),
            (Kind::Int, Value::Int(value)) => Some(Typed::Int(*value)),
            (Kind::Int, Value::Float(value)) if whole(*value).is_some() => {
                whole(*value).map(Typed::Int)
            }
            #[expect(
                clippy::cast_precision_loss,
                reason = "a rate has no use for the 54th bit"
            )]
            (Kind::Float, Value::Int(value)) => Some(Typed::Float(*value as f64)),
            (Kind::Float, Value::Float(value)) => Some(Typed::Float(*value)),
            (Kind::Text, Value::Text(value)) => Some(Typed::Text(value.clone())),
            (Kind::Duration, Value::Text(value)) => self.duration(key.path, node.line, value),
            (Kind::Texts, Value::List(items)) => Some(Typed::Texts(self.texts(key.path, items))),
            (Kind::TextMap | Kind::DurationMap, _) => {
                let entries = self.entries(key, node)?;
                Some(Typed::TextMap(self.text_map(key, entries)))
            }
            (Kind::Free, _) => match self.entries(key, node).map(|_| node_object(node))? {
                Json::Object(map) => Some(Typed::Free(map)),
                _ => None,
            },
            (Kind::FreeList | Kind::Definitions(_), Value::List(items)) => {
                Some(self.blocks(key, items))
            }
            (Kind::FreeList | Kind::Definitions(_), Value::Object(_)) => {
                Some(self.blocks(key, std::slice::from_ref(node)))
            }
            _ => {
                self.mismatch(key.path, key.kind, node);
                None
            }
        }
    }

    fn mismatch(&mut self, path: &str, kind: Kind, node: &Node) {
        let what = format!(
            "expected type '{}', got {} ({})",
            kind.name(),
            node.shown(),
            node.type_name()
        );
        self.problem(node.line, path, what, remedy_for(kind, node));
    }

    fn duration(&mut self, path: &str, line: u32, text: &str) -> Option<Typed> {
        match duration::parse(text) {
            Ok(duration) => Some(Typed::Duration(duration)),
            Err(why) => {
                self.bad_duration(path, line, text, &why);
                None
            }
        }
    }

    fn bad_duration(&mut self, path: &str, line: u32, text: &str, why: &str) {
        let what = format!("{path}: invalid duration: {text:?}: {why}");
        self.problem(
            line,
            path,
            what,
            "write a number with a unit, such as \"300ms\", \"30s\" or \"1h30m\"",
        );
    }

    fn texts(&mut self, path: &str, items: &[Node]) -> Vec<(String, Origin)> {
        let mut out = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match &item.value {
                Value::Text(text) => out.push((text.clone(), Origin::file(self.path, item.line))),
                _ => self.mismatch(&format!("{path}[{index}]"), Kind::Text, item),
            }
        }
        out
    }

    fn entries<'n>(&mut self, key: &'static Key, node: &'n Node) -> Option<&'n [Entry]> {
        let entries = node.as_block();
        if entries.is_none() {
            self.mismatch(key.path, key.kind, node);
        }
        entries
    }

    fn text_map(&mut self, key: &'static Key, entries: &[Entry]) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        for entry in entries {
            let path = format!("{}[{:?}]", key.path, entry.key);
            let Value::Text(text) = &entry.node.value else {
                self.mismatch(&path, Kind::Text, &entry.node);
                continue;
            };
            match duration::parse(text) {
                Err(why) if key.kind == Kind::DurationMap => {
                    self.bad_duration(&path, entry.line, text, &why)
                }
                _ => {
                    out.insert(entry.key.clone(), text.clone());
                }
            }
        }
        out
    }

    fn blocks(&mut self, key: &'static Key, items: &[Node]) -> Typed {
        let mut out = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{}[{index}]", key.path);
            let json = match (key.kind, item.as_block()) {
                (_, None) => {
                    self.mismatch(&path, Kind::Free, item);
                    continue;
                }
                (Kind::Definitions(fields), Some(entries)) => {
                    read_definition(self, &path, fields, entries)
                }
                (_, Some(_)) => node_object(item),
            };
            out.push((json, Origin::file(self.path, item.line)));
        }
        Typed::Blocks(out)
    }
}

/// The block as JSON, with a list of one block taken as that block.
fn node_object(node: &Node) -> Json {
    match node.to_json() {
        Json::Array(mut items) if items.len() == 1 => items.pop().unwrap_or_default(),
        json => json,
    }
}

/// A float without a fraction that an `i64` holds exactly.
fn whole(value: f64) -> Option<i64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked to be whole and below 2^53"
    )]
    (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64)
}

fn remedy_for(kind: Kind, node: &Node) -> String {
    match (kind, &node.value) {
        (Kind::Bool, _) => "write true or false without quotes".to_owned(),
        (Kind::Int | Kind::Float, Value::Text(text)) if text.parse::<f64>().is_ok() => {
            format!("write {text} without quotes")
        }
        (Kind::Int, _) => "write a whole number".to_owned(),
        (Kind::Float, _) => "write a number".to_owned(),
        (Kind::Duration, Value::Int(value)) => {
            format!("write a duration with its unit, such as \"{value}s\"")
        }
        (Kind::Duration, _) => "write a duration with its unit, such as \"30s\"".to_owned(),
        (Kind::Text, Value::Int(_) | Value::Float(_) | Value::Bool(_)) => {
            format!("put it in quotes: \"{}\"", node.shown())
        }
        (Kind::Text, _) => "write one string in quotes".to_owned(),
        (Kind::Texts, Value::Text(_)) => format!("write a list: [{}]", node.shown()),
        (Kind::Texts, _) => "write a list of strings: [\"a\", \"b\"]".to_owned(),
        (Kind::TextMap | Kind::DurationMap, _) => {
            "write a block of strings: { key = \"value\" }".to_owned()
        }
        (Kind::Free, _) => "write a block: { key = value }".to_owned(),
        (Kind::FreeList | Kind::Definitions(_), _) => {
            "write a list of blocks: [{ … }, { … }]".to_owned()
        }
    }
}

/// Checks a value against its key's bounds; the error is what is wrong and what to do.
pub(super) fn check_bounds(key: &Key, value: &Typed) -> Result<(), (String, String)> {
    let path = key.path;
    match (key.bounds, value) {
        (Bounds::Port, Typed::Int(port)) if *port > 65535 => Err((
            format!("{path}: invalid port: {port}"),
            "a port is 1 to 65535; -1 switches it off".to_owned(),
        )),
        (Bounds::AtLeast(min), Typed::Int(int)) if int < &min => {
            let than = if min == 0 {
                "zero".to_owned()
            } else {
                min.to_string()
            };
            Err((
                format!("{path} cannot be {int}. Must be greater than or equal to {than}"),
                String::new(),
            ))
        }
        (Bounds::Between(min, max), Typed::Int(int)) if *int < min || *int > max => Err((
            format!("{path} cannot be {int}. Must be between {min} and {max}"),
            String::new(),
        )),
        (Bounds::Positive, Typed::Int(int)) if *int <= 0 => Err((
            format!("{path} must be strictly positive, was: {int}"),
            String::new(),
        )),
        (Bounds::Positive, Typed::Float(float)) if *float <= 0.0 => Err((
            format!("{path} must be strictly positive, was: {float}"),
            String::new(),
        )),
        (Bounds::OneOf(known), Typed::Text(text)) => one_of(path, known, text),
        (Bounds::AtLeastSeconds(min), Typed::Duration(duration)) if duration.as_secs() < min => {
            let min = duration::format(std::time::Duration::from_secs(min));
            Err((
                format!(
                    "{path} cannot be {}. Must be at least {min}",
                    duration::format(*duration)
                ),
                String::new(),
            ))
        }
        _ => Ok(()),
    }
}

fn one_of(path: &str, known: &[&str], text: &str) -> Result<(), (String, String)> {
    if known.iter().any(|name| name.eq_ignore_ascii_case(text)) {
        return Ok(());
    }
    let names: Vec<_> = known
        .iter()
        .filter(|name| !name.is_empty())
        .copied()
        .collect();
    let what = match path {
        "connect.ca_provider" => format!("{text} is not a valid CA provider"),
        _ => format!("{text:?} is not a known value of {path}"),
    };
    Err((what, format!("use one of: {}", names.join(", "))))
}
