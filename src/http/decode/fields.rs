//! A deserializer over a JSON value that finds struct fields whatever their case, and collects those that do not exist.

use crate::http::decode::Names;
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Number, Value};
use std::fmt;

/// Fields that Consul's structs have and ours do not need: whoever sends back what he read must not be refused.
const IGNORED: [&str; 4] = ["CreateIndex", "ModifyIndex", "Namespace", "SidecarService"];

/// Names of fields that do not exist, with the path to them.
#[derive(Default)]
pub(crate) struct Unknown(Names);

impl Unknown {
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.borrow().clone()
    }
}

/// The text of a problem.
#[derive(Debug)]
pub(crate) struct Problem(String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Problem {}

impl serde::de::Error for Problem {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

/// Where a value stands: the names from the outermost struct to it.
#[derive(Clone, Copy)]
struct Place<'a> {
    above: Option<&'a Place<'a>>,
    name: &'a str,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            write!(f, "{above}.")?;
        }
        f.write_str(self.name)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Decoder<'a, 'p> {
    value: &'a Value,
    unknown: &'a Unknown,
    place: Option<&'p Place<'p>>,
}

impl<'a, 'p> Decoder<'a, 'p> {
    pub(crate) fn new(value: &'a Value, unknown: &'a Unknown) -> Self {
        Self {
            value,
            unknown,
            place: None,
        }
    }

    fn wrong(self, wanted: &str) -> Problem {
        let got = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        Problem(match self.place {
            Some(place) => format!(
                "json: cannot unmarshal {got} into Go struct field .{place} of type {wanted}"
            ),
            None => format!("json: cannot unmarshal {got} into Go value of type {wanted}"),
        })
    }

    fn number(self, wanted: &str) -> Result<&'a Number, Problem> {
        match self.value {
            Value::Number(number) => Ok(number),
            _ => Err(self.wrong(wanted)),
        }
    }

    fn out_of_range(self, number: &Number, wanted: &str) -> Problem {
        let place = self.place.map_or_else(String::new, |p| p.to_string());
        Problem(format!(
            "json: cannot unmarshal number {number} into Go struct field .{place} of type {wanted}"
        ))
    }
}

macro_rules! integers {
    ($($method:ident $get:ident $visit:ident $ty:ty, $wanted:literal;)*) => {
        $(fn $method<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Problem> {
            let number = self.number($wanted)?;
            let value = number.$get().and_then(|n| <$ty>::try_from(n).ok());
            visitor.$visit(value.ok_or_else(|| self.out_of_range(number, $wanted))?)
        })*
    };
}

impl<'a> Deserializer<'a> for Decoder<'a, '_> {
    type Error = Problem;

    fn is_human_readable(&self) -> bool {
        true
    }

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::String(text) => visitor.visit_str(text),
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(n), _, _) => visitor.visit_u64(n),
                (_, Some(n), _) => visitor.visit_i64(n),
                (_, _, Some(n)) => visitor.visit_f64(n),
                _ => Err(self.wrong("float64")),
            },
        }
    }

    fn deserialize_bool<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::Bool(value) => visitor.visit_bool(*value),
            _ => Err(self.wrong("bool")),
        }
    }

    fn deserialize_string<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::String(text) => visitor.visit_str(text),
            _ => Err(self.wrong("string")),
        }
    }

    fn deserialize_str<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_string(visitor)
    }

    integers! {
        deserialize_u8 as_u64 visit_u8 u8, "uint8";
        deserialize_u16 as_u64 visit_u16 u16, "int";
        deserialize_u32 as_u64 visit_u32 u32, "uint32";
        deserialize_u64 as_u64 visit_u64 u64, "uint64";
        deserialize_i32 as_i64 visit_i32 i32, "int";
        deserialize_i64 as_i64 visit_i64 i64, "int";
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::Array(items) => visitor.visit_seq(Items {
                items: items.iter(),
                parent: self,
            }),
            _ => Err(self.wrong("[]string")),
        }
    }

    fn deserialize_map<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::Object(map) => visitor.visit_map(Pairs::new(self, map, None)),
            _ => Err(self.wrong("map[string]string")),
        }
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self.value {
            Value::Object(map) => visitor.visit_map(Pairs::new(self, map, Some(fields))),
            _ => Err(self.wrong("struct")),
        }
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self.value {
            Value::String(text) => visitor.visit_enum(Variant(text)),
            _ => Err(self.wrong("string")),
        }
    }

    forward_to_deserialize_any! {
        <V: Visitor<'a>>
        i8 i16 i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

struct Variant<'a>(&'a str);

impl<'a> EnumAccess<'a> for Variant<'a> {
    type Error = Problem;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'a>>(self, seed: V) -> Result<(V::Value, Self), Problem> {
        let name: StrDeserializer<'a, Problem> = self.0.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'a> VariantAccess<'a> for Variant<'a> {
    type Error = Problem;

    fn unit_variant(self) -> Result<(), Problem> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, _: T) -> Result<T::Value, Problem> {
        Err(Problem::custom("json: a text cannot hold a value"))
    }

    fn tuple_variant<V: Visitor<'a>>(self, _: usize, _: V) -> Result<V::Value, Problem> {
        Err(Problem::custom("json: a text cannot hold a list"))
    }

    fn struct_variant<V: Visitor<'a>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Problem> {
        Err(Problem::custom("json: a text cannot hold fields"))
    }
}

struct Items<'a, 'p> {
    items: std::slice::Iter<'a, Value>,
    parent: Decoder<'a, 'p>,
}

impl<'a> SeqAccess<'a> for Items<'a, '_> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'a>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Problem> {
        let Some(value) = self.items.next() else {
            return Ok(None);
        };
        let item = Decoder {
            value,
            ..self.parent
        };
        seed.deserialize(item).map(Some)
    }
}

/// The pairs of a map, or of a struct when the fields are given.
struct Pairs<'a, 'p> {
    parent: Decoder<'a, 'p>,
    pairs: serde_json::map::Iter<'a>,
    fields: Option<&'static [&'static str]>,
    current: Option<(&'a str, &'a Value)>,
}

impl<'a, 'p> Pairs<'a, 'p> {
    fn new(
        parent: Decoder<'a, 'p>,
        map: &'a Map<String, Value>,
        fields: Option<&'static [&'static str]>,
    ) -> Self {
        Self {
            parent,
            pairs: map.iter(),
            fields,
            current: None,
        }
    }

    fn note_unknown(&self, key: &str) {
        if IGNORED.iter().any(|name| same_name(name, key)) {
            return;
        }
        let path = match self.parent.place {
            Some(place) => format!("{place}.{key}"),
            None => key.to_owned(),
        };
        self.parent.unknown.0.borrow_mut().push(path);
    }
}

impl<'a> MapAccess<'a> for Pairs<'a, '_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'a>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Problem> {
        while let Some((key, value)) = self.pairs.next() {
            let name: &'a str = match self.fields {
                None => key,
                Some(fields) => match fields.iter().find(|field| same_name(field, key)) {
                    Some(_) if value.is_null() => continue,
                    Some(field) => field,
                    None => {
                        self.note_unknown(key);
                        continue;
                    }
                },
            };
            self.current = Some((name, value));
            let name: StrDeserializer<'a, Problem> = name.into_deserializer();
            return seed.deserialize(name).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Problem> {
        let (name, value) = self
            .current
            .take()
            .ok_or_else(|| Problem::custom("a value without a key"))?;
        let place = Place {
            above: self.parent.place,
            name,
        };
        seed.deserialize(Decoder {
            value,
            unknown: self.parent.unknown,
            place: Some(&place),
        })
    }
}

/// Field names are compared without case and underscores: `NodeMeta`, `nodemeta` and `node_meta` are one.
fn same_name(field: &str, key: &str) -> bool {
    let plain = |text: &str| {
        text.bytes()
            .filter(|b| *b != b'_')
            .map(|b| b.to_ascii_lowercase())
            .collect::<Vec<u8>>()
    };
    field.eq_ignore_ascii_case(key) || (key.contains('_') && plain(field) == plain(key))
}
