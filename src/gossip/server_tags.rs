//! What the tags of Consul's servers mean.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::gossip::Tags;
use crate::model::Datacenter;

/// Prefix of the tags that advertise a feature, such as `ft_fs` for federation states.
const FEATURE_PREFIX: &str = "ft_";

/// Why a member is not taken as a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotServer {
    /// Its `role` is another, such as `node` for client agents.
    #[error("the role is {0:?}, not \"consul\"")]
    Role(String),
    /// A tag that servers must have is missing or no such value.
    #[error("tag {name:?} is {value:?}: {expected} is expected")]
    Tag {
        /// The name of the tag.
        name: &'static str,
        /// Its value, empty when it is missing.
        value: String,
        /// What should be there.
        expected: &'static str,
    },
}

/// How a server treats ACLs, from the tag `acls`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AclMode {
    /// ACLs are off.
    Disabled,
    /// Tokens and policies.
    Enabled,
    /// Tokens with rules, from before Consul 1.4. Servers of that time do not say anything.
    Legacy,
    /// The server does not know yet, or says something that is not understood.
    #[default]
    Unknown,
}

impl AclMode {
    fn from_tag(value: Option<&str>) -> Self {
        match value {
            Some("0") => Self::Disabled,
            Some("1") => Self::Enabled,
            Some("2") | None => Self::Legacy,
            Some(_) => Self::Unknown,
        }
    }

    /// The value of the tag.
    pub fn as_tag(self) -> &'static str {
        match self {
            Self::Disabled => "0",
            Self::Enabled => "1",
            Self::Legacy => "2",
            Self::Unknown => "3",
        }
    }
}

/// Major, minor and patch number of a server's build. Ordered as versions are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildVersion(pub u32, pub u32, pub u32);

impl fmt::Display for BuildVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl BuildVersion {
    /// The first `n.n.n` in a `build` tag such as `1.8.7:abcdef12`; a pre-release counts as its release.
    fn from_tag(text: &str) -> Option<Self> {
        let starts = text.char_indices().filter(|(_, c)| c.is_ascii_digit());
        starts.into_iter().find_map(|(at, _)| {
            let mut parts = text.get(at..)?.splitn(3, '.');
            let major = parts.next()?.parse().ok()?;
            let minor = parts.next()?.parse().ok()?;
            let patch = parts.next()?;
            let digits = patch.find(|c: char| !c.is_ascii_digit());
            let patch = patch.get(..digits.unwrap_or(patch.len()))?.parse().ok()?;
            Some(Self(major, minor, patch))
        })
    }
}

/// What a server says about itself. Tags of later versions that are not here are left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTags {
    /// `dc`.
    pub datacenter: Datacenter,
    /// `segment`: empty in the open-source edition.
    pub segment: String,
    /// `id`: the node's UUID, empty from versions before 0.8.
    pub id: String,
    /// `port`: where its RPC listens.
    pub port: u16,
    /// `wan_join_port`: its gossip port in the pool of all datacenters, only said within the datacenter.
    pub wan_join_port: Option<u16>,
    /// `bootstrap`: it starts a Raft cluster alone.
    pub bootstrap: bool,
    /// `expect`: servers that it waits for before they start a Raft cluster together; 0 when it does not.
    pub expect: u32,
    /// `vsn`: Consul protocol.
    pub vsn: u32,
    /// `raft_vsn`: Raft protocol.
    pub raft_vsn: u32,
    /// `build`; 0.0.0 when it does not say.
    pub build: BuildVersion,
    /// `nonvoter` (or `read_replica` of later versions): it replicates but has no vote.
    pub non_voter: bool,
    /// `use_tls`: its RPC port takes TLS.
    pub use_tls: bool,
    /// `acls`.
    pub acls: AclMode,
    /// All `ft_` tags with a whole number, without the prefix.
    pub features: BTreeMap<String, i64>,
}

impl ServerTags {
    /// Reads the tags of a member.
    ///
    /// # Errors
    /// When the member is not a server, or its tags are not those of one.
    pub fn parse(tags: &Tags) -> Result<Self, NotServer> {
        let role = tags.get("role").unwrap_or_default();
        if role != "consul" {
            return Err(NotServer::Role(role.to_owned()));
        }
        let build = tags.get("build").unwrap_or("0.0.0");
        Ok(Self {
            datacenter: tags.get("dc").unwrap_or_default().into(),
            segment: tags.get("segment").unwrap_or_default().to_owned(),
            id: tags.get("id").unwrap_or_default().to_owned(),
            port: number(tags, "port", "a port")?,
            wan_join_port: optional(tags, "wan_join_port", "a port")?,
            bootstrap: tags.has("bootstrap"),
            expect: optional(tags, "expect", "a number of servers")?.unwrap_or(0),
            vsn: number(tags, "vsn", "a protocol number")?,
            raft_vsn: number(tags, "raft_vsn", "a protocol number")?,
            build: BuildVersion::from_tag(build).ok_or_else(|| NotServer::Tag {
                name: "build",
                value: build.to_owned(),
                expected: "a version such as 1.8.7",
            })?,
            non_voter: tags.has("nonvoter") || tags.has("read_replica"),
            use_tls: tags.has("use_tls"),
            acls: AclMode::from_tag(tags.get("acls")),
            features: tags.iter().filter_map(feature).collect(),
        })
    }

    /// Whether the feature is advertised with a number above 0.
    pub fn has_feature(&self, name: &str) -> bool {
        self.features.get(name).is_some_and(|n| *n > 0)
    }
}

fn feature((name, value): (&str, &str)) -> Option<(String, i64)> {
    let name = name.strip_prefix(FEATURE_PREFIX)?;
    Some((name.to_owned(), value.parse().ok()?))
}

fn optional<N: FromStr>(
    tags: &Tags,
    name: &'static str,
    expected: &'static str,
) -> Result<Option<N>, NotServer> {
    match tags.get(name) {
        Some(_) => number(tags, name, expected).map(Some),
        None => Ok(None),
    }
}

fn number<N: FromStr>(
    tags: &Tags,
    name: &'static str,
    expected: &'static str,
) -> Result<N, NotServer> {
    let value = tags.get(name).unwrap_or_default();
    value.parse().map_err(|_| NotServer::Tag {
        name,
        value: value.to_owned(),
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Tags {
        Tags::from_iter([
            ("role", "consul"),
            ("dc", "p1"),
            ("segment", ""),
            ("id", "fc80759a-71bc-c8b1-a37f-06fcfe90c40f"),
            ("port", "8300"),
            ("vsn", "2"),
            ("raft_vsn", "3"),
            ("build", "1.8.7:"),
            ("expect", "3"),
            ("acls", "0"),
            ("ft_fs", "1"),
            ("ft_ns", "soon"),
        ])
    }

    #[test]
    fn a_server_is_understood() {
        let server = ServerTags::parse(&server()).unwrap();
        assert_eq!(server.datacenter, "p1");
        assert_eq!((server.port, server.expect), (8300, 3));
        assert_eq!(server.build, BuildVersion(1, 8, 7));
        assert_eq!(server.acls, AclMode::Disabled);
        assert!(server.has_feature("fs") && !server.has_feature("ns"));
        assert!(!server.bootstrap && !server.use_tls && !server.non_voter);
    }

    #[test]
    fn others_are_no_servers() {
        let without = |name: &str| {
            let mut tags = server();
            tags.remove(name);
            ServerTags::parse(&tags)
        };
        for name in ["role", "port", "vsn", "raft_vsn"] {
            assert!(without(name).is_err(), "{name}");
        }
        assert!(without("expect").is_ok_and(|s| s.expect == 0));
        assert!(without("build").is_ok_and(|s| s.build == BuildVersion(0, 0, 0)));
        let mut tags = server();
        tags.set("expect", "three");
        let refused = ServerTags::parse(&tags).unwrap_err().to_string();
        assert!(refused.contains("expect") && refused.contains("three"));
    }

    #[test]
    fn builds_compare_as_versions() {
        let read = BuildVersion::from_tag;
        assert_eq!(read("v1.10.0-beta1:12345678"), Some(BuildVersion(1, 10, 0)));
        assert_eq!(read("1.8:"), None);
        assert!(read("1.10.0") > read("1.9.17"));
    }
}
