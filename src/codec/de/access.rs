//! What serde asks for inside arrays, maps and enums.

use serde::de;
use serde::de::Visitor;

use crate::codec::Error;
use crate::codec::de::Deserializer;

/// The items of an array or the pairs of a map.
pub(super) struct Items<'a, 'de> {
    de: &'a mut Deserializer<'de>,
    left: usize,
}

impl<'a, 'de> Items<'a, 'de> {
    pub(super) fn new(de: &'a mut Deserializer<'de>, left: usize) -> Self {
        Self { de, left }
    }

    /// How many were not asked for.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    fn next(&mut self) -> bool {
        let more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        more
    }
}

impl<'de> de::SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: de::DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if self.next() {
            seed.deserialize(&mut *self.de).map(Some)
        } else {
            Ok(None)
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left) // Bounded by the input; serde's collections bound it once more by memory.
    }
}

impl<'de> de::MapAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        if self.next() {
            seed.deserialize(&mut *self.de).map(Some)
        } else {
            Ok(None)
        }
    }

    fn next_value_seed<T: de::DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut *self.de)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// An enum: the name of a variant alone (`unit`), or a map of one from that name to the content.
pub(super) struct Variant<'a, 'de> {
    de: &'a mut Deserializer<'de>,
    unit: bool,
}

impl<'a, 'de> de::EnumAccess<'de> for Variant<'a, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: de::DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let name = seed.deserialize(&mut *self.de)?;
        Ok((name, self))
    }
}

impl<'a, 'de> Variant<'a, 'de> {
    pub(super) fn unit(de: &'a mut Deserializer<'de>) -> Self {
        Self { de, unit: true }
    }

    pub(super) fn with_content(de: &'a mut Deserializer<'de>) -> Self {
        Self { de, unit: false }
    }

    fn content(&self) -> Result<(), Error> {
        if self.unit {
            return Err(de::Error::custom("an enum variant lacks its content"));
        }
        Ok(())
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        if self.unit { Ok(()) } else { self.de.skip() }
    }

    fn newtype_variant_seed<T: de::DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        self.content()?;
        seed.deserialize(self.de)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.content()?;
        de::Deserializer::deserialize_seq(self.de, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.content()?;
        de::Deserializer::deserialize_map(self.de, visitor)
    }
}
