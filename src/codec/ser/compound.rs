//! Arrays, maps and structs: the head is corrected and the keys are sorted when all entries are there.

use std::ops::Range;

use serde::ser;
use serde::ser::Serialize;

use crate::codec::Error;
use crate::codec::ser::Serializer;
use crate::codec::ser::write_array_length;
use crate::codec::ser::write_map_length;

/// Replaces a head written for `hint` entries at `start` by one for `len`.
fn correct_head(out: &mut Vec<u8>, start: usize, body: usize, head: &[u8]) {
    out.splice(start..body, head.iter().copied());
}

/// Go's nil, in the place of an empty list or map.
const NIL: &[u8] = &[0xc0];

/// An array that is being written.
pub(in crate::codec) struct Array<'a> {
    ser: Serializer<'a>,
    start: usize,
    body: usize,
    hint: usize,
    len: usize,
    nil_if_empty: bool,
}

impl<'a> Array<'a> {
    pub(super) fn start(ser: Serializer<'a>, len: Option<usize>) -> Result<Self, Error> {
        let (start, hint) = (ser.out.len(), len.unwrap_or(0));
        write_array_length(ser.out, hint)?;
        let body = ser.out.len();
        Ok(Self {
            ser,
            start,
            body,
            hint,
            len: 0,
            nil_if_empty: false,
        })
    }

    pub(super) fn nil_if_empty(self, nil_if_empty: bool) -> Self {
        Self {
            nil_if_empty,
            ..self
        }
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.len += 1;
        value.serialize(&mut self.ser)
    }

    fn finish(self) -> Result<(), Error> {
        if self.len == 0 && self.nil_if_empty {
            correct_head(self.ser.out, self.start, self.body, NIL);
        } else if self.len != self.hint {
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
pub(in crate::codec) struct Map<'a> {
    ser: Serializer<'a>,
    start: usize,
    body: usize,
    hint: usize,
    /// Where the bytes of each key (without head) and of each whole entry lie in the buffer.
    entries: Vec<(Range<usize>, Range<usize>)>,
    nil_if_empty: bool,
}

impl<'a> Map<'a> {
    pub(super) fn start(ser: Serializer<'a>, len: Option<usize>) -> Result<Self, Error> {
        let (start, hint) = (ser.out.len(), len.unwrap_or(0));
        write_map_length(ser.out, hint)?;
        let body = ser.out.len();
        Ok(Self {
            ser,
            start,
            body,
            hint,
            entries: Vec::with_capacity(hint.min(64)),
            nil_if_empty: false,
        })
    }

    pub(super) fn nil_if_empty(self, nil_if_empty: bool) -> Self {
        Self {
            nil_if_empty,
            ..self
        }
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

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Error> {
        self.key(name)?;
        self.ser.field = true;
        let written = self.value(value);
        self.ser.field = false;
        written
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
        if self.entries.is_empty() && self.nil_if_empty {
            correct_head(out, self.start, self.body, NIL);
        } else if self.entries.len() != self.hint {
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
        self.field(key, value)
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
        self.field(key, value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish()
    }
}
