//! msgpack bytes to serde values.

mod access;

use std::borrow::Cow;

use serde::de;
use serde::de::Visitor;

use crate::codec::Error;
use crate::codec::MAX_DEPTH;
use crate::codec::de::access::Items;
use crate::codec::de::access::Variant;
use crate::codec::head;
use crate::codec::head::Head;

/// Structs that any input may hold; more need input to match.
const FREE_STRUCTS: usize = 1024;
/// Input bytes per struct beyond that. A struct with its field names takes far more; without this bound, a few
/// bytes of nil would become kilobytes of defaults.
const BYTES_PER_STRUCT: usize = 16;

/// Reads values from the front of a slice.
pub(super) struct Deserializer<'de> {
    input: &'de [u8],
    depth: usize,
    structs_left: usize,
}

impl<'de> Deserializer<'de> {
    pub(super) fn new(input: &'de [u8]) -> Self {
        Self {
            input,
            depth: 0,
            structs_left: FREE_STRUCTS + input.len() / BYTES_PER_STRUCT,
        }
    }

    /// The input that was not read yet.
    pub(super) fn rest(&self) -> &'de [u8] {
        self.input
    }

    fn peek(&self) -> Result<Head, Error> {
        Ok(head::read(self.input)?.ok_or(Error::Truncated)?.0)
    }

    /// Reads a head and checks its length against the bytes that are left.
    fn head(&mut self) -> Result<Head, Error> {
        let (head, size) = head::read(self.input)?.ok_or(Error::Truncated)?;
        self.input = self.input.get(size..).ok_or(Error::Truncated)?;
        let least = match head {
            Head::Raw(n) | Head::Array(n) => n,
            Head::Map(n) => n.checked_mul(2).ok_or(Error::Length(n as u64))?,
            _ => 0,
        };
        if least > self.input.len() {
            return Err(Error::Length(least as u64));
        }
        Ok(head)
    }

    fn bytes(&mut self, len: usize) -> Result<&'de [u8], Error> {
        let (bytes, rest) = self.input.split_at_checked(len).ok_or(Error::Truncated)?;
        self.input = rest;
        Ok(bytes)
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= MAX_DEPTH {
            return Err(Error::Depth);
        }
        self.depth += 1;
        let out = read(self);
        self.depth -= 1;
        out
    }

    fn array<V: Visitor<'de>>(&mut self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.nested(|de| {
            let mut items = Items::new(de, len);
            let value = visitor.visit_seq(&mut items)?;
            let left = items.left();
            (0..left).try_for_each(|_| de.skip())?; // A newer peer's longer array form of a struct.
            Ok(value)
        })
    }

    fn map<V: Visitor<'de>>(&mut self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.nested(|de| {
            let mut items = Items::new(de, len);
            let value = visitor.visit_map(&mut items)?;
            let left = items.left();
            (0..left.saturating_mul(2)).try_for_each(|_| de.skip())?;
            Ok(value)
        })
    }

    /// Skips one value without looking at what its strings hold.
    fn skip(&mut self) -> Result<(), Error> {
        let mut left: u64 = 1;
        while left > 0 {
            left -= 1;
            match self.head()? {
                Head::Raw(n) => drop(self.bytes(n)?),
                Head::Array(n) => left += n as u64,
                Head::Map(n) => left += 2 * n as u64,
                _ => {}
            }
            if left > self.input.len() as u64 {
                return Err(Error::Length(left));
            }
        }
        Ok(())
    }

    fn visit_text<V: Visitor<'de>>(&mut self, len: usize, visitor: V) -> Result<V::Value, Error> {
        match String::from_utf8_lossy(self.bytes(len)?) {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    fn visit_raw<V: Visitor<'de>>(&mut self, len: usize, visitor: V) -> Result<V::Value, Error> {
        let bytes = self.bytes(len)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => visitor.visit_borrowed_str(text),
            Err(_) => visitor.visit_borrowed_bytes(bytes),
        }
    }

    fn visit_number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        match self.peek()? {
            Head::Nil => {
                self.head()?;
                visitor.visit_u64(0)
            }
            _ => de::Deserializer::deserialize_any(self, visitor),
        }
    }
}

/// Lets every integer type take every integer form, and nil as zero.
macro_rules! numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.visit_number(visitor)
        }
    )*};
}

impl<'de> de::Deserializer<'de> for &mut Deserializer<'de> {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.head()? {
            Head::Nil => visitor.visit_unit(),
            Head::Bool(v) => visitor.visit_bool(v),
            Head::Uint(v) => visitor.visit_u64(v),
            Head::Int(v) => visitor.visit_i64(v),
            Head::F32(v) => visitor.visit_f32(v),
            Head::F64(v) => visitor.visit_f64(v),
            Head::Raw(len) => self.visit_raw(len, visitor),
            Head::Array(len) => self.array(len, visitor),
            Head::Map(len) => self.map(len, visitor),
        }
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_f32 deserialize_f64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek()? {
            Head::Nil => {
                self.head()?;
                visitor.visit_bool(false)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek()? {
            Head::Nil => {
                self.head()?;
                visitor.visit_borrowed_str("")
            }
            Head::Raw(len) => {
                self.head()?;
                self.visit_text(len, visitor)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek()? {
            Head::Nil => {
                self.head()?;
                visitor.visit_borrowed_bytes(&[])
            }
            Head::Raw(len) => {
                self.head()?;
                visitor.visit_borrowed_bytes(self.bytes(len)?)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek()? {
            Head::Nil => {
                self.head()?;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }

    /// Go's `struct{}` takes any value.
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek()? {
            Head::Nil => {
                self.head()?;
                self.array(0, visitor)
            }
            Head::Raw(len) => {
                self.head()?;
                let bytes = self.bytes(len)?.iter().copied();
                visitor.visit_seq(de::value::SeqDeserializer::new(bytes))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek()? {
            Head::Nil => {
                self.head()?;
                self.map(0, visitor)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.structs_left = self.structs_left.checked_sub(1).ok_or(Error::Structs)?;
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.peek()? {
            Head::Map(1) => {
                self.head()?;
                self.nested(|de| visitor.visit_enum(Variant::with_content(de)))
            }
            _ => visitor.visit_enum(Variant::unit(self)),
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }
}
