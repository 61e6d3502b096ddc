//! Newtypes for every id. Cloning one copies a pointer.
//!
//! `From<&str>` takes any text, because names arrive from peers that already accepted them; `FromStr` is for names that
//! people type and checks the rules.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A Raft log index, as seen in `X-Consul-Index`, `CreateIndex` and `ModifyIndex`.
pub type Index = u64;

/// Why a name that a person typed is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The name has no characters.
    #[error("{0} must not be empty")]
    Empty(&'static str),
    /// A datacenter name holds something other than `a-z 0-9 _ -`.
    #[error(
        "datacenter {0:?} is not valid: use lower-case letters, digits, '-' and '_', starting and ending with a letter or digit"
    )]
    Datacenter(String),
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text of the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether the name has no characters.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// The shared text, for keys that must not copy it.
            pub fn shared(&self) -> &Arc<str> {
                &self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self(Arc::from(""))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(Arc::from(text))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Arc::from(text))
            }
        }

        impl From<&String> for $name {
            fn from(text: &String) -> Self {
                Self(Arc::from(text.as_str()))
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self(Arc::from(String::deserialize(deserializer)?)))
            }
        }
    };
}

macro_rules! non_empty {
    ($name:ident, $what:literal) => {
        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                if text.trim().is_empty() {
                    return Err(IdError::Empty($what));
                }
                Ok(Self::from(text))
            }
        }
    };
}

id!(
    /// Name of a node inside its datacenter. Compared case-insensitively by the catalog.
    NodeName,
    "node name"
);
id!(
    /// A node's UUID, in text.
    NodeId,
    "node id"
);
id!(
    /// Name of a datacenter, lower case.
    Datacenter,
    "datacenter"
);
id!(
    /// Id of one service instance, unique on its node.
    ServiceId,
    "service id"
);
id!(
    /// Name of a service, shared by its instances.
    ServiceName,
    "service name"
);
id!(
    /// Id of a check, unique on its node.
    CheckId,
    "check id"
);

non_empty!(NodeName, "node name");
non_empty!(NodeId, "node id");
non_empty!(ServiceId, "service id");
non_empty!(ServiceName, "service name");
non_empty!(CheckId, "check id");

impl FromStr for Datacenter {
    type Err = IdError;

    /// Lower-cases the name; refuses an empty one and any character outside `a-z 0-9 _ -`.
    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.is_empty() {
            return Err(IdError::Empty("datacenter"));
        }
        let lower = text.to_ascii_lowercase();
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let valid = lower.chars().all(|c| word(c) || c == '-' || c == '_')
            && lower.starts_with(word)
            && lower.ends_with(word);
        if !valid {
            return Err(IdError::Datacenter(text.to_owned()));
        }
        Ok(Self::from(lower))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datacenter_is_lower_cased_and_checked() {
        assert_eq!("DC1".parse::<Datacenter>().unwrap(), "dc1");
        assert_eq!("orion_sa-2".parse::<Datacenter>().unwrap(), "orion_sa-2");
        for bad in ["", "dc.1", "-dc1", "dc1-", "d c", "dé"] {
            assert!(bad.parse::<Datacenter>().is_err(), "{bad:?}");
        }
    }
}
