//! serde values to msgpack bytes.

mod compound;

use serde::ser;
use serde::ser::Serialize;

use crate::codec::Error;
use crate::codec::MAX_DEPTH;
use crate::codec::ser::compound::Array;
use crate::codec::ser::compound::Map;

/// Writes values to the end of a buffer.
pub(super) struct Serializer<'a> {
    out: &'a mut Vec<u8>,
    depth: usize,
    /// The value to come is a field of a struct: an empty list or map is nil there.
    field: bool,
}

impl<'a> Serializer<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self {
            out,
            depth: 0,
            field: false,
        }
    }

    fn nested(&mut self) -> Result<Serializer<'_>, Error> {
        if self.depth >= MAX_DEPTH {
            return Err(Error::Depth);
        }
        Ok(Serializer {
            out: self.out,
            depth: self.depth + 1,
            field: false,
        })
    }
}

fn write_uint(out: &mut Vec<u8>, v: u64) {
    match v {
        0..=0x7f => out.push(v as u8),
        0x80..=0xff => out.extend_from_slice(&[0xcc, v as u8]),
        0x100..=0xffff => tagged(out, 0xcd, &(v as u16).to_be_bytes()),
        0x1_0000..=0xffff_ffff => tagged(out, 0xce, &(v as u32).to_be_bytes()),
        _ => tagged(out, 0xcf, &v.to_be_bytes()),
    }
}

fn write_int(out: &mut Vec<u8>, v: i64) {
    match v {
        0.. => write_uint(out, v as u64),
        -32..0 => out.push(v as u8),
        -0x80..-32 => out.extend_from_slice(&[0xd0, v as u8]),
        -0x8000..-0x80 => tagged(out, 0xd1, &(v as i16).to_be_bytes()),
        -0x8000_0000..-0x8000 => tagged(out, 0xd2, &(v as i32).to_be_bytes()),
        _ => tagged(out, 0xd3, &v.to_be_bytes()),
    }
}

fn tagged(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

/// Writes the head of something with a length; `short` is the one-byte form and how many it can count.
fn write_length(
    out: &mut Vec<u8>,
    len: usize,
    short: (u8, usize),
    long: [u8; 2],
) -> Result<(), Error> {
    let [tag16, tag32] = long;
    match u32::try_from(len) {
        Ok(n) if len < short.1 => out.push(short.0 | n as u8),
        Ok(n) if n <= 0xffff => tagged(out, tag16, &(n as u16).to_be_bytes()),
        Ok(n) => tagged(out, tag32, &n.to_be_bytes()),
        Err(_) => return Err(Error::Length(len as u64)),
    }
    Ok(())
}

fn write_raw(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Error> {
    write_length(out, bytes.len(), (0xa0, 32), [0xda, 0xdb])?;
    out.extend_from_slice(bytes);
    Ok(())
}

fn write_map_length(out: &mut Vec<u8>, len: usize) -> Result<(), Error> {
    write_length(out, len, (0x80, 16), [0xde, 0xdf])
}

fn write_array_length(out: &mut Vec<u8>, len: usize) -> Result<(), Error> {
    write_length(out, len, (0x90, 16), [0xdc, 0xdd])
}

impl<'a, 'b> ser::Serializer for &'b mut Serializer<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Array<'b>;
    type SerializeTuple = Array<'b>;
    type SerializeTupleStruct = Array<'b>;
    type SerializeTupleVariant = Array<'b>;
    type SerializeMap = Map<'b>;
    type SerializeStruct = Map<'b>;
    type SerializeStructVariant = Map<'b>;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, v: bool) -> Result<(), Error> {
        self.out.push(if v { 0xc3 } else { 0xc2 });
        Ok(())
    }

    fn serialize_i8(self, v: i8) -> Result<(), Error> {
        self.serialize_i64(v.into())
    }

    fn serialize_i16(self, v: i16) -> Result<(), Error> {
        self.serialize_i64(v.into())
    }

    fn serialize_i32(self, v: i32) -> Result<(), Error> {
        self.serialize_i64(v.into())
    }

    fn serialize_i64(self, v: i64) -> Result<(), Error> {
        write_int(self.out, v);
        Ok(())
    }

    fn serialize_u8(self, v: u8) -> Result<(), Error> {
        self.serialize_u64(v.into())
    }

    fn serialize_u16(self, v: u16) -> Result<(), Error> {
        self.serialize_u64(v.into())
    }

    fn serialize_u32(self, v: u32) -> Result<(), Error> {
        self.serialize_u64(v.into())
    }

    fn serialize_u64(self, v: u64) -> Result<(), Error> {
        write_uint(self.out, v);
        Ok(())
    }

    fn serialize_f32(self, v: f32) -> Result<(), Error> {
        tagged(self.out, 0xca, &v.to_be_bytes());
        Ok(())
    }

    fn serialize_f64(self, v: f64) -> Result<(), Error> {
        tagged(self.out, 0xcb, &v.to_be_bytes());
        Ok(())
    }

    fn serialize_char(self, v: char) -> Result<(), Error> {
        self.serialize_str(v.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, v: &str) -> Result<(), Error> {
        write_raw(self.out, v.as_bytes())
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<(), Error> {
        if v.is_empty() && self.field {
            return self.serialize_unit();
        }
        write_raw(self.out, v)
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        self.field = false;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.out.push(0xc0);
        Ok(())
    }

    /// A unit struct is Go's `struct{}`: a map without entries.
    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), Error> {
        write_map_length(self.out, 0)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        write_map_length(self.out, 1)?;
        write_raw(self.out, variant.as_bytes())?;
        value.serialize(&mut self.nested()?)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Array<'b>, Error> {
        let nil = self.field;
        Ok(Array::start(self.nested()?, len)?.nil_if_empty(nil))
    }

    fn serialize_tuple(self, len: usize) -> Result<Array<'b>, Error> {
        Array::start(self.nested()?, Some(len))
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Array<'b>, Error> {
        Array::start(self.nested()?, Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Array<'b>, Error> {
        write_map_length(self.out, 1)?;
        write_raw(self.out, variant.as_bytes())?;
        Array::start(self.nested()?, Some(len))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Map<'b>, Error> {
        let nil = self.field;
        Ok(Map::start(self.nested()?, len)?.nil_if_empty(nil))
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Map<'b>, Error> {
        Map::start(self.nested()?, Some(len))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Map<'b>, Error> {
        write_map_length(self.out, 1)?;
        write_raw(self.out, variant.as_bytes())?;
        Map::start(self.nested()?, Some(len))
    }
}
