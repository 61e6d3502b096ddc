//! What a node says about itself: serf's tags, carried in memberlist's node meta.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;

use crate::codec;
use crate::gossip::wire::Error;
use crate::gossip::wire::fields;

/// Most bytes of a node's meta, and so of its encoded tags: memberlist's `MetaMaxSize`.
pub const MAX_META: usize = 512;

/// First byte of meta that holds tags; without it, the meta is the text of the `role` tag alone (serf before 0.4).
const MAGIC: u8 = 255;

/// Names and values that a node advertises to its pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tags(#[serde(deserialize_with = "fields::bounded_map")] BTreeMap<String, String>);

impl Tags {
    /// The value of the tag `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether the tag `name` is there, whatever its value.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Sets a tag.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// Takes a tag away and tells whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// All tags in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// The node meta that carries these tags.
    ///
    /// # Errors
    /// [`Error::Meta`] when it would be longer than [`MAX_META`].
    pub fn to_meta(&self) -> Result<Vec<u8>, Error> {
        let mut out = vec![MAGIC];
        codec::append(&mut out, self)?;
        if out.len() > MAX_META {
            return Err(Error::Meta(out.len()));
        }
        Ok(out)
    }

    /// Reads node meta.
    ///
    /// # Errors
    /// When it is longer than [`MAX_META`], or starts as tags but holds none.
    pub fn from_meta(meta: &[u8]) -> Result<Self, Error> {
        if meta.len() > MAX_META {
            return Err(Error::Meta(meta.len()));
        }
        match meta.split_first() {
            Some((&MAGIC, mut body)) => Ok(codec::take(&mut body)?),
            _ => Ok(Self::from_iter([("role", &*String::from_utf8_lossy(meta))])),
        }
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Tags {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(tags: I) -> Self {
        let owned = |(k, v): (&str, &str)| (k.to_owned(), v.to_owned());
        Self(tags.into_iter().map(owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back_from_meta() {
        let tags = Tags::from_iter([("role", "consul"), ("dc", "dc1"), ("bootstrap", "")]);
        let meta = tags.to_meta().unwrap();
        assert_eq!(meta.first(), Some(&255));
        assert_eq!(Tags::from_meta(&meta), Ok(tags));
    }

    #[test]
    fn meta_without_the_magic_byte_is_a_role() {
        let tags = Tags::from_meta(b"web").unwrap();
        assert_eq!(tags, Tags::from_iter([("role", "web")]));
    }

    #[test]
    fn meta_has_at_most_512_bytes() {
        let mut tags = Tags::from_iter([("a", &*"x".repeat(504))]);
        assert_eq!(tags.to_meta().map(|meta| meta.len()), Ok(511));
        tags.set("a", "x".repeat(506));
        assert_eq!(tags.to_meta(), Err(Error::Meta(513)));
        assert_eq!(Tags::from_meta(&[255; 513]), Err(Error::Meta(513)));
    }
}
