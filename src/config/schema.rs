//! Every key of Consul 1.8's configuration, and our own, as data: type, default, bounds, and when it acts.

use crate::config::schema::definitions::CHECK;
use crate::config::schema::definitions::Field;
use crate::config::schema::definitions::SERVICE;
use std::collections::BTreeMap;
use std::sync::LazyLock;

pub mod definitions;
mod nearest;
mod table;

pub use nearest::nearest;
pub(super) use nearest::similar as nearest_name;
pub use table::KEYS;

/// What kind of value a key holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int,
    /// Any number.
    Float,
    /// A string.
    Text,
    /// A Go duration string that is not negative.
    Duration,
    /// A list of strings; lists of several files add up.
    Texts,
    /// A block of strings; blocks of several files merge key by key.
    TextMap,
    /// A block of Go durations.
    DurationMap,
    /// A block whose keys are free.
    Free,
    /// A list of blocks whose keys are free.
    FreeList,
    /// A list of blocks with known keys: service and check definitions.
    Definitions(&'static [Field]),
}

impl Kind {
    /// The type's name in messages, as Consul's decoder has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "number",
            Self::Text | Self::Duration => "string",
            Self::Texts => "list of strings",
            Self::TextMap | Self::DurationMap => "map of strings",
            Self::Free => "map",
            Self::FreeList | Self::Definitions(_) => "list of blocks",
        }
    }
}

/// Which values of the right type a key accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bounds {
    /// Any.
    Any,
    /// A port: up to 65535; 0 and below mean "off".
    Port,
    /// A whole number not below this.
    AtLeast(i64),
    /// A whole number between these, both included.
    Between(i64, i64),
    /// A number above zero.
    Positive,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// A duration of at least so many seconds.
    AtLeastSeconds(u64),
}

/// When a key has its effect in this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Active {
    /// Now.
    Now,
    /// In a coming version: accepted, checked, and named at start-up.
    Later,
    /// Never: it belongs to Consul's enterprise edition or to a part that Crossway does without.
    Never,
}

/// One key of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The full path with dots (`ports.http`).
    pub path: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// The default as one would write it; empty for none.
    pub default: &'static str,
    /// Accepted values.
    pub bounds: Bounds,
    /// Whether a reload applies a new value.
    pub reloadable: bool,
    /// When it acts.
    pub active: Active,
    /// The key that replaced this one.
    pub replaced_by: Option<&'static str>,
}

impl Key {
    const fn new(path: &'static str, kind: Kind, default: &'static str) -> Self {
        Self {
            path,
            kind,
            default,
            bounds: Bounds::Any,
            reloadable: false,
            active: Active::Now,
            replaced_by: None,
        }
    }

    const fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    const fn reloads(mut self) -> Self {
        self.reloadable = true;
        self
    }

    const fn later(mut self) -> Self {
        self.active = Active::Later;
        self
    }

    const fn never(mut self) -> Self {
        self.active = Active::Never;
        self
    }

    const fn replaced_by(mut self, path: &'static str) -> Self {
        self.replaced_by = Some(path);
        self
    }
}

const fn bool(path: &'static str, default: &'static str) -> Key {
    Key::new(path, Kind::Bool, default)
}
const fn int(path: &'static str, default: &'static str) -> Key {
    Key::new(path, Kind::Int, default)
}
const fn port(path: &'static str, default: &'static str) -> Key {
    Key::new(path, Kind::Int, default).bounds(Bounds::Port)
}
const fn float(path: &'static str, default: &'static str) -> Key {
    Key::new(path, Kind::Float, default)
}
const fn text(path: &'static str, default: &'static str) -> Key {
    Key::new(path, Kind::Text, default)
}
const fn time(path: &'static str, default: &'static str) -> Key {
    Key::new(path, Kind::Duration, default)
}
const fn texts(path: &'static str) -> Key {
    Key::new(path, Kind::Texts, "")
}
const fn text_map(path: &'static str) -> Key {
    Key::new(path, Kind::TextMap, "")
}
const fn free(path: &'static str) -> Key {
    Key::new(path, Kind::Free, "")
}
const fn free_list(path: &'static str) -> Key {
    Key::new(path, Kind::FreeList, "")
}
const fn services(path: &'static str) -> Key {
    Key::new(path, Kind::Definitions(&SERVICE), "")
}
const fn checks(path: &'static str) -> Key {
    Key::new(path, Kind::Definitions(CHECK), "")
}

static BY_PATH: LazyLock<BTreeMap<&'static str, &'static Key>> =
    LazyLock::new(|| KEYS.iter().map(|key| (key.path, key)).collect());

/// The key with this full path (lower case).
#[must_use]
pub fn find(path: &str) -> Option<&'static Key> {
    BY_PATH.get(path).copied()
}

/// Whether `path` is a block that holds known keys.
#[must_use]
pub fn is_block(path: &str) -> bool {
    let prefix = format!("{path}.");
    BY_PATH
        .range(prefix.as_str()..)
        .next()
        .is_some_and(|(key, _)| key.starts_with(&prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_stands_once_and_replacements_exist() {
        assert_eq!(BY_PATH.len(), KEYS.len());
        for key in KEYS {
            assert!(
                key.replaced_by.is_none_or(|path| find(path).is_some()),
                "{}",
                key.path
            );
            assert_eq!(key.path, key.path.to_lowercase());
            assert!(
                !is_block(key.path),
                "{} is both a value and a block",
                key.path
            );
        }
    }

    #[test]
    fn blocks_are_known_by_their_keys() {
        assert!(
            is_block("ports") && is_block("acl.tokens") && is_block("auto_config.authorization")
        );
        assert!(!is_block("port") && !is_block("ports.http") && !is_block(""));
    }
}
