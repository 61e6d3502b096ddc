//! Typed values by key, and how later sources override or extend earlier ones.

use crate::config::duration;
use crate::config::problem::Origin;
use crate::config::schema;
use crate::config::schema::Active;
use crate::config::schema::KEYS;
use crate::config::schema::Kind;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// A value of a key's type.
#[derive(Debug, Clone, PartialEq)]
pub enum Typed {
    /// For [`Kind::Bool`].
    Bool(bool),
    /// For [`Kind::Int`].
    Int(i64),
    /// For [`Kind::Float`].
    Float(f64),
    /// For [`Kind::Text`].
    Text(String),
    /// For [`Kind::Duration`].
    Duration(Duration),
    /// For [`Kind::Texts`]: each item with its place.
    Texts(Vec<(String, Origin)>),
    /// For [`Kind::TextMap`] and [`Kind::DurationMap`] (whose texts are checked durations).
    TextMap(BTreeMap<String, String>),
    /// For [`Kind::Free`].
    Free(serde_json::Map<String, Json>),
    /// For [`Kind::FreeList`] and [`Kind::Definitions`]: each block with its place.
    Blocks(Vec<(Json, Origin)>),
}

/// All values that somebody set, by full key.
#[derive(Clone, Default)]
pub struct Settings {
    values: BTreeMap<&'static str, (Typed, Origin)>,
    /// Keys that somebody tried to set to something that was refused.
    refused: BTreeSet<&'static str>,
}

/// Values may be tokens and keys: only the names are shown.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

impl Settings {
    /// Sets a value: lists grow at their end, maps merge key by key, anything else is replaced.
    pub fn set(&mut self, key: &'static str, value: Typed, origin: Origin) {
        let Some((old, place)) = self.values.get_mut(key) else {
            self.values.insert(key, (value, origin));
            return;
        };
        match (old, value) {
            (Typed::Texts(old), Typed::Texts(new)) => old.extend(new),
            (Typed::Blocks(old), Typed::Blocks(new)) => old.extend(new),
            (Typed::TextMap(old), Typed::TextMap(new)) => old.extend(new),
            (Typed::Free(old), Typed::Free(new)) => old.extend(new),
            (old, new) => *old = new,
        }
        *place = origin;
    }

    /// Notes that the key's value was refused: what its absence would break is not worth a second report.
    pub fn refuse(&mut self, key: &'static str) {
        self.refused.insert(key);
    }

    /// Whether a value of the key was refused.
    #[must_use]
    pub fn was_refused(&self, key: &str) -> bool {
        self.refused.contains(key)
    }

    /// Sets everything that `later` sets.
    pub fn extend(&mut self, later: &Self) {
        for (key, (value, origin)) in &later.values {
            self.set(key, value.clone(), origin.clone());
        }
    }

    /// Moves values of replaced keys to the keys that replaced them, where those are not set.
    ///
    /// Gives `(old key, new key, place)` of each replaced key that is in use.
    pub fn follow_replacements(&mut self) -> Vec<(&'static str, &'static str, Origin)> {
        let mut moved = Vec::new();
        for key in KEYS {
            let Some(new) = key.replaced_by else { continue };
            let Some((value, origin)) = self.values.remove(key.path) else {
                continue;
            };
            moved.push((key.path, new, origin.clone()));
            self.values.entry(new).or_insert((value, origin));
        }
        moved
    }

    /// Whether somebody set the key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Where the key was set last.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        self.values
            .get(key)
            .map_or(Origin::BuiltIn, |(_, origin)| origin.clone())
    }

    /// Keys that are set, but do not act `now`, with the state they are in.
    pub fn inactive(&self) -> impl Iterator<Item = (&'static str, Active)> {
        self.values
            .iter()
            .filter(|(_, (_, origin))| *origin != Origin::BuiltIn)
            .filter_map(|(path, (value, _))| {
                let key = schema::find(path)?;
                let acts = key.active == Active::Now || default_of(path).as_ref() == Some(value);
                (!acts).then_some((*path, key.active))
            })
    }

    fn get(&self, key: &str) -> Option<Typed> {
        debug_assert!(schema::find(key).is_some(), "{key} is not in the table");
        self.values
            .get(key)
            .map(|(value, _)| value.clone())
            .or_else(|| default_of(key))
    }

    /// Whether a key has the same value in both, wherever it was set.
    #[must_use]
    pub fn agrees(&self, other: &Self, key: &str) -> bool {
        fn bare<T: Clone>(items: &[(T, Origin)]) -> Vec<&T> {
            items.iter().map(|(item, _)| item).collect()
        }
        match (self.get(key), other.get(key)) {
            (Some(Typed::Texts(a)), Some(Typed::Texts(b))) => bare(&a) == bare(&b),
            (Some(Typed::Blocks(a)), Some(Typed::Blocks(b))) => bare(&a) == bare(&b),
            (a, b) => a == b,
        }
    }

    /// Takes a key's value, or its absence, from `other`.
    pub fn adopt(&mut self, other: &Self, key: &'static str) {
        match other.values.get(key) {
            Some(value) => self.values.insert(key, value.clone()),
            None => self.values.remove(key),
        };
    }

    /// A switch, or its default.
    #[must_use]
    pub fn bool(&self, key: &str) -> bool {
        matches!(self.get(key), Some(Typed::Bool(true)))
    }

    /// A switch without a fixed default.
    #[must_use]
    pub fn bool_or(&self, key: &str, default: bool) -> bool {
        if self.has(key) {
            self.bool(key)
        } else {
            default
        }
    }

    /// A number, or its default, or 0.
    #[must_use]
    pub fn int(&self, key: &str) -> i64 {
        match self.get(key) {
            Some(Typed::Int(value)) => value,
            _ => 0,
        }
    }

    /// A number that fits the caller's type; what does not fit was refused before.
    #[must_use]
    pub fn uint<T: TryFrom<i64> + Default>(&self, key: &str) -> T {
        T::try_from(self.int(key)).unwrap_or_default()
    }

    /// A port; 0 and below mean "off".
    #[must_use]
    pub fn port(&self, key: &str) -> Option<u16> {
        u16::try_from(self.int(key)).ok().filter(|port| *port > 0)
    }

    /// A rate without an upper end when it is not set or not above zero.
    #[must_use]
    pub fn rate(&self, key: &str) -> Option<f64> {
        match self.get(key) {
            Some(Typed::Float(value)) if value > 0.0 && value < f64::MAX => Some(value),
            _ => None,
        }
    }

    /// A string, or its default, or nothing.
    #[must_use]
    pub fn text(&self, key: &str) -> String {
        self.some_text(key).unwrap_or_default()
    }

    /// A string that is not empty.
    #[must_use]
    pub fn some_text(&self, key: &str) -> Option<String> {
        match self.get(key) {
            Some(Typed::Text(value)) => Some(value).filter(|text| !text.is_empty()),
            _ => None,
        }
    }

    /// A duration, or its default, or zero.
    #[must_use]
    pub fn duration(&self, key: &str) -> Duration {
        match self.get(key) {
            Some(Typed::Duration(value)) => value,
            _ => Duration::ZERO,
        }
    }

    /// The items of a list.
    #[must_use]
    pub fn texts(&self, key: &str) -> Vec<String> {
        self.texts_with_origin(key)
            .into_iter()
            .map(|(text, _)| text)
            .collect()
    }

    /// The items of a list with their places.
    #[must_use]
    pub fn texts_with_origin(&self, key: &str) -> Vec<(String, Origin)> {
        match self.get(key) {
            Some(Typed::Texts(items)) => items,
            _ => Vec::new(),
        }
    }

    /// The pairs of a block.
    #[must_use]
    pub fn text_map(&self, key: &str) -> BTreeMap<String, String> {
        match self.get(key) {
            Some(Typed::TextMap(map)) => map,
            _ => BTreeMap::new(),
        }
    }

    /// A block with free keys.
    #[must_use]
    pub fn free(&self, key: &str) -> serde_json::Map<String, Json> {
        match self.get(key) {
            Some(Typed::Free(map)) => map,
            _ => serde_json::Map::new(),
        }
    }

    /// A list of blocks with their places.
    #[must_use]
    pub fn blocks(&self, key: &str) -> Vec<(Json, Origin)> {
        match self.get(key) {
            Some(Typed::Blocks(blocks)) => blocks,
            _ => Vec::new(),
        }
    }
}

/// The table's default as a value.
fn default_of(path: &str) -> Option<Typed> {
    let key = schema::find(path)?;
    match key.kind {
        _ if key.default.is_empty() => None,
        Kind::Bool => Some(Typed::Bool(key.default == "true")),
        Kind::Int => key.default.parse().ok().map(Typed::Int),
        Kind::Float => key.default.parse().ok().map(Typed::Float),
        Kind::Text => Some(Typed::Text(key.default.to_owned())),
        Kind::Duration => duration::parse(key.default).ok().map(Typed::Duration),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_in_the_table_is_of_its_type() {
        for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
            assert!(default_of(key.path).is_some(), "{}", key.path);
        }
    }

    #[test]
    fn scalars_are_replaced_lists_grow_maps_merge() {
        let mut settings = Settings::default();
        let map = |k: &str, v: &str| Typed::TextMap(BTreeMap::from([(k.to_owned(), v.to_owned())]));
        let list = |text: &str| Typed::Texts(vec![(text.to_owned(), Origin::BuiltIn)]);
        for turn in ["1", "2"] {
            let origin = || Origin::Flag(turn.into());
            settings.set("node_name", Typed::Text(turn.to_owned()), origin());
            settings.set("retry_join", list(turn), origin());
            settings.set("node_meta", map("both", turn), origin());
            settings.set("node_meta", map(turn, turn), origin());
        }
        assert_eq!(settings.text("node_name"), "2");
        assert_eq!(settings.origin("node_name"), Origin::Flag("2".into()));
        assert_eq!(settings.texts("retry_join"), ["1", "2"]);
        let meta: Vec<_> = settings.text_map("node_meta").into_iter().collect();
        let pairs = [("1", "1"), ("2", "2"), ("both", "2")];
        assert_eq!(meta, pairs.map(|(k, v)| (k.to_owned(), v.to_owned())));
    }

    #[test]
    fn old_keys_yield_to_new_ones() {
        let mut settings = Settings::default();
        settings.set("acl_token", Typed::Text("old".to_owned()), Origin::BuiltIn);
        settings.set(
            "acl_agent_token",
            Typed::Text("old".to_owned()),
            Origin::BuiltIn,
        );
        settings.set(
            "acl.tokens.agent",
            Typed::Text("new".to_owned()),
            Origin::BuiltIn,
        );
        assert_eq!(settings.follow_replacements().len(), 2);
        assert_eq!(settings.text("acl.tokens.default"), "old");
        assert_eq!(settings.text("acl.tokens.agent"), "new");
    }
}
