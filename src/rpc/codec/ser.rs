//! serde values to msgpack bytes.

use std::ops::Range;

use serde::ser;
use serde::ser::Serialize;

use crate::rpc::codec::Error;
use crate::rpc::codec::MAX_DEPTH;

/// Writes values to the end of a buffer.
pub(super) struct Serializer<'a> {
    out: &'a mut Vec<u8>,
    depth: usize,
}

impl<'a> Serializer<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, depth: 0 }
    }

    fn nested(&mut self) -> Result<Serializer<'_>, Error> {
        if self.depth >= MAX_DEPTH {
            return Err(Error::Depth);
        }
        Ok(Serializer {
            out: self.out,
            depth: self.depth + 1,
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
        write_raw(self.out, v)
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
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
        Array::start(self.nested()?, len)
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
        Map::start(self.nested()?, len)
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

/// Replaces a head written for `hint` entries at `start` by one for `len`.
fn correct_head(out: &mut Vec<u8>, start: usize, body: usize, head: &[u8]) {
    out.splice(start..body, head.iter().copied());
}

/// An array that is being written.
pub(super) struct Array<'a> {
    ser: Serializer<'a>,
    start: usize,
    body: usize,
    hint: usize,
    len: usize,
}

impl<'a> Array<'a> {
    fn start(ser: Serializer<'a>, len: Option<usize>) -> Result<Self, Error> {
        let (start, hint) = (ser.out.len(), len.unwrap_or(0));
        write_array_length(ser.out, hint)?;
        let body = ser.out.len();
        Ok(Self {
            ser,
            start,
            body,
            hint,
            len: 0,
        })
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.len += 1;
        value.serialize(&mut self.ser)
    }

    fn finish(self) -> Result<(), Error> {
        if self.len != self.hint {
            let mut head = Vec::with_capacity(5);
            write_array_length(&mut head, self.len)?;
            correct_head(self.ser.out, self.start, self.body, &head);
        }
        Ok(())
    }
}

impl ser::SerializeSeq for Array<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.item(value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish()
    }
}

impl ser::SerializeTuple for Array<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.item(value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish()
    }
}

impl ser::SerializeTupleStruct for Array<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.item(value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish()
    }
}

impl ser::SerializeTupleVariant for Array<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.item(value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish()
    }
}

/// A map or struct that is being written; its entries are put in order at the end.
pub(super) struct Map<'a> {
    ser: Serializer<'a>,
    start: usize,
    body: usize,
    hint: usize,
    /// Where the bytes of each key (without head) and of each whole entry lie in the buffer.
    entries: Vec<(Range<usize>, Range<usize>)>,
}

impl<'a> Map<'a> {
    fn start(ser: Serializer<'a>, len: Option<usize>) -> Result<Self, Error> {
        let (start, hint) = (ser.out.len(), len.unwrap_or(0));
        write_map_length(ser.out, hint)?;
        let body = ser.out.len();
        Ok(Self {
            ser,
            start,
            body,
            hint,
            entries: Vec::with_capacity(hint.min(64)),
        })
    }

    fn key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        let start = self.ser.out.len();
        key.serialize(&mut self.ser)?;
        let end = self.ser.out.len();
        let head = match self.ser.out.get(start) {
            Some(0xda) => 3,
            Some(0xdb) => 5,
            Some(0xa0..=0xbf) => 1,
            _ => 0,
        };
        self.entries.push((start + head..end, start..end));
        Ok(())
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(&mut self.ser)?;
        if let Some((_, entry)) = self.entries.last_mut() {
            entry.end = self.ser.out.len();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), Error> {
        let out = &mut *self.ser.out;
        let key =
            |entry: &(Range<usize>, Range<usize>)| out.get(entry.0.clone()).unwrap_or_default();
        if !self.entries.is_sorted_by(|a, b| key(a) <= key(b)) {
            self.entries.sort_by(|a, b| key(a).cmp(key(b)));
            let mut sorted = Vec::with_capacity(out.len() - self.body);
            for (_, entry) in &self.entries {
                sorted.extend_from_slice(out.get(entry.clone()).unwrap_or_default());
            }
            out.truncate(self.body);
            out.extend_from_slice(&sorted);
        }
        if self.entries.len() != self.hint {
            let mut head = Vec::with_capacity(5);
            write_map_length(&mut head, self.entries.len())?;
            correct_head(out, self.start, self.body, &head);
        }
        Ok(())
    }
}

impl ser::SerializeMap for Map<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.value(value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish()
    }
}

impl ser::SerializeStruct for Map<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.key(key)?;
        self.value(value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish()
    }
}

impl ser::SerializeStructVariant for Map<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.key(key)?;
        self.value(value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish()
    }
}
