//! Types of fields that Go writes in its own way, and bounds for lists and maps.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::ops::Deref;

use bytes::Bytes;
use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::Serializer;
use serde::de;

/// Most entries of one list or map: far beyond any pool, small enough to hold in memory.
pub(crate) const MAX_ENTRIES: usize = 1 << 17;

/// A byte string that costs nothing to share. Empty is nil, as Go writes a slice that was never set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Blob(pub Bytes);

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.is_empty() {
            true => serializer.serialize_none(),
            false => serializer.serialize_bytes(self),
        }
    }
}

struct BytesVisitor;

impl<'de> de::Visitor<'de> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes::copy_from_slice(bytes))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor).map(Self)
    }
}

/// An address as 4 or 16 bytes, or none.
///
/// Go peers write IPv4 in either form and compare the bytes when they look for two nodes with one name, so the form in
/// which an address came is kept. Any other length counts as no address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NodeAddr(Option<IpAddr>);

impl NodeAddr {
    /// The address, IPv4 as such whatever its form on the wire.
    pub fn ip(self) -> Option<IpAddr> {
        self.0.map(|ip| ip.to_canonical())
    }

    /// Whether there is no address.
    pub fn is_unset(&self) -> bool {
        self.0.is_none()
    }
}

impl From<IpAddr> for NodeAddr {
    fn from(ip: IpAddr) -> Self {
        Self(Some(ip))
    }
}

impl Serialize for NodeAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(IpAddr::V4(ip)) => serializer.serialize_bytes(&ip.octets()),
            Some(IpAddr::V6(ip)) => serializer.serialize_bytes(&ip.octets()),
            None => serializer.serialize_none(),
        }
    }
}

impl<'de> Deserialize<'de> for NodeAddr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = deserializer.deserialize_bytes(BytesVisitor)?;
        let v4 = <[u8; 4]>::try_from(&*bytes).map(|b| IpAddr::V4(Ipv4Addr::from(b)));
        let v6 = || <[u8; 16]>::try_from(&*bytes).map(|b| IpAddr::V6(Ipv6Addr::from(b)));
        Ok(Self(v4.or_else(|_| v6()).ok()))
    }
}

/// The protocol versions that a node speaks, as six bytes; or nothing from a node that does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Versions {
    /// Lowest memberlist protocol.
    pub protocol_min: u8,
    /// Highest memberlist protocol.
    pub protocol_max: u8,
    /// Memberlist protocol in use.
    pub protocol: u8,
    /// Lowest serf protocol.
    pub delegate_min: u8,
    /// Highest serf protocol.
    pub delegate_max: u8,
    /// Serf protocol in use.
    pub delegate: u8,
}

impl Versions {
    /// What agents of this product speak: what Consul 1.8 advertises.
    pub const OURS: Self = Self {
        protocol_min: 1,
        protocol_max: 5,
        protocol: 2,
        delegate_min: 2,
        delegate_max: 5,
        delegate: 4,
    };

    /// Whether each of two nodes understands what the other speaks. memberlist takes in any node whose lowest protocol is
    /// not above its highest; but then one that nobody understands, or a damaged message about one, keeps everybody
    /// else from joining.
    pub fn speaks_with(&self, other: &Self) -> bool {
        let understands = |one: &Self, other: &Self| {
            (one.protocol_min..=one.protocol_max).contains(&other.protocol)
                && (one.delegate_min..=one.delegate_max).contains(&other.delegate)
        };
        understands(self, other) && understands(other, self)
    }

    /// Whether packets to the node may carry a checksum.
    pub fn understands_checksum(&self) -> bool {
        self.protocol_max >= 5
    }
}

impl Serialize for Versions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self == Self::default() {
            return serializer.serialize_none();
        }
        serializer.serialize_bytes(&[
            self.protocol_min,
            self.protocol_max,
            self.protocol,
            self.delegate_min,
            self.delegate_max,
            self.delegate,
        ])
    }
}

impl<'de> Deserialize<'de> for Versions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = deserializer.deserialize_bytes(BytesVisitor)?;
        let Some(&[min, max, cur, delegate_min, delegate_max, delegate]) = bytes.first_chunk()
        else {
            return Ok(Self::default());
        };
        Ok(Self {
            protocol_min: min,
            protocol_max: max,
            protocol: cur,
            delegate_min,
            delegate_max,
            delegate,
        })
    }
}

/// Reads a list of at most [`MAX_ENTRIES`].
pub(crate) fn bounded_list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(List::<T, T>(PhantomData))
}

/// Reads the entries of a list that are not nil, at most [`MAX_ENTRIES`].
pub(crate) fn bounded_present<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(List::<Option<T>, T>(PhantomData))
}

/// Reads items as `I` and keeps those that are a `T`.
struct List<I, T>(PhantomData<(I, T)>);

impl<'de, I: Deserialize<'de> + Into<Option<T>>, T> de::Visitor<'de> for List<I, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut out = Vec::new();
        while let Some(item) = items.next_element::<I>()? {
            out.extend(item.into());
            if out.len() > MAX_ENTRIES {
                return Err(de::Error::custom(format_args!(
                    "a list of more than {MAX_ENTRIES} entries"
                )));
            }
        }
        Ok(out)
    }
}

/// Reads a map of at most [`MAX_ENTRIES`].
pub(crate) fn bounded_map<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
{
    struct Map<K, V>(PhantomData<(K, V)>);

    impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> de::Visitor<'de> for Map<K, V> {
        type Value = BTreeMap<K, V>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: de::MapAccess<'de>>(self, mut pairs: A) -> Result<Self::Value, A::Error> {
            let mut out = BTreeMap::new();
            while let Some((key, value)) = pairs.next_entry()? {
                out.insert(key, value);
                if out.len() > MAX_ENTRIES {
                    return Err(de::Error::custom(format_args!(
                        "a map of more than {MAX_ENTRIES} entries"
                    )));
                }
            }
            Ok(out)
        }
    }

    deserializer.deserialize_map(Map(PhantomData))
}

/// For `skip_serializing_if`: Go leaves out what is zero.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
pub(crate) fn is_zero(number: &u16) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_understands_nobody_speaks_with_nobody() {
        let ours = Versions::OURS;
        let newer = Versions {
            delegate: 5,
            ..ours
        };
        assert!(ours.speaks_with(&ours) && ours.speaks_with(&newer) && newer.speaks_with(&ours));
        for strange in [
            Versions::default(),
            Versions {
                protocol_min: 95,
                protocol_max: 141,
                ..ours
            },
            Versions {
                protocol: 6,
                protocol_max: 6,
                ..ours
            },
            Versions {
                delegate_min: 5,
                delegate: 5,
                ..ours
            },
        ] {
            assert!(!ours.speaks_with(&strange), "{strange:?}");
            assert!(!strange.speaks_with(&ours), "{strange:?}");
        }
    }
}
