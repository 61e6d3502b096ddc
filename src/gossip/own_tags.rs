//! What this server says about itself in its pools.

use std::collections::BTreeMap;

use crate::gossip::Tags;
use crate::gossip::server_tags::AclMode;
use crate::hooks::Edition;
use crate::model::Datacenter;
use crate::model::NodeId;

/// Consul protocols that are understood, lowest and highest.
const PROTOCOLS: (u8, u8) = (2, 3);

/// The Raft protocol that peers expect a server to name.
const RAFT_PROTOCOL: u8 = 3;

/// Which kind of pool tags are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The pool of one datacenter.
    Lan,
    /// The pool of the servers of all datacenters, and pools that an edition adds.
    Wide,
}

/// Facts that this server advertises. [`Advertised::tags`] is the only place that makes tags of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    /// The own datacenter.
    pub datacenter: Datacenter,
    /// The node's UUID.
    pub id: NodeId,
    /// The Consul protocol that is spoken, 2 or 3.
    pub protocol: u8,
    /// The API level that peers can count on, such as `1.8.7`.
    pub build: String,
    /// The RPC port that peers dial.
    pub port: u16,
    /// Whether it starts a Raft cluster alone.
    pub bootstrap: bool,
    /// How many servers it waits for before they start a Raft cluster together; 0 when it does not.
    pub expect: u32,
    /// Whether it replicates without a vote.
    pub non_voter: bool,
    /// Whether its RPC port takes TLS.
    pub use_tls: bool,
    /// How it treats ACLs.
    pub acls: AclMode,
    /// Its gossip port in the pool of all datacenters.
    pub wan_join_port: Option<u16>,
}

impl Advertised {
    /// The tags for a pool, with what the edition adds or changes.
    pub fn tags(&self, scope: Scope, edition: &dyn Edition) -> Tags {
        let mut tags = BTreeMap::new();
        let mut set = |name: &str, value: String| {
            tags.insert(name.to_owned(), value);
        };
        set("role", "consul".to_owned());
        set("dc", self.datacenter.to_string());
        set("segment", String::new());
        set("id", self.id.to_string());
        set("vsn", self.protocol.to_string());
        set("vsn_min", PROTOCOLS.0.to_string());
        set("vsn_max", PROTOCOLS.1.to_string());
        set("raft_vsn", RAFT_PROTOCOL.to_string());
        set("build", format!("{}:", self.build)); // After the colon stands the revision, of Consul's sources.
        set("port", self.port.to_string());
        set("acls", self.acls.as_tag().to_owned());
        set("ft_fs", "1".to_owned());
        if self.bootstrap {
            set("bootstrap", "1".to_owned());
        }
        if self.expect > 0 {
            set("expect", self.expect.to_string());
        }
        if self.non_voter {
            set("nonvoter", "1".to_owned());
        }
        if self.use_tls {
            set("use_tls", "1".to_owned());
        }
        if let (Scope::Lan, Some(port)) = (scope, self.wan_join_port) {
            set("wan_join_port", port.to_string());
        }
        edition.tags(&mut tags);
        tags.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gossip::ServerTags;
    use crate::hooks::Open;

    fn own() -> Advertised {
        Advertised {
            datacenter: "dc1".into(),
            id: "ddd6fddd-b174-f428-7633-0e0dabed6a2c".into(),
            protocol: 2,
            build: "1.8.7".to_owned(),
            port: 8300,
            bootstrap: false,
            expect: 3,
            non_voter: false,
            use_tls: true,
            acls: AclMode::Disabled,
            wan_join_port: Some(8302),
        }
    }

    struct Other;

    impl Edition for Other {
        fn tags(&self, tags: &mut BTreeMap<String, String>) {
            tags.insert("ft_area".to_owned(), "1".to_owned());
        }
    }

    #[test]
    fn tags_say_what_a_server_of_consul_says() {
        let tags = own().tags(Scope::Lan, &Open);
        let expected = [
            ("acls", "0"),
            ("build", "1.8.7:"),
            ("dc", "dc1"),
            ("expect", "3"),
            ("ft_fs", "1"),
            ("id", "ddd6fddd-b174-f428-7633-0e0dabed6a2c"),
            ("port", "8300"),
            ("raft_vsn", "3"),
            ("role", "consul"),
            ("segment", ""),
            ("use_tls", "1"),
            ("vsn", "2"),
            ("vsn_max", "3"),
            ("vsn_min", "2"),
            ("wan_join_port", "8302"),
        ];
        assert_eq!(tags, Tags::from_iter(expected));
        let read = ServerTags::parse(&tags).unwrap();
        assert!(read.has_feature("fs") && read.use_tls && read.expect == 3);
        assert_eq!(read.wan_join_port, Some(8302));
        let meta = tags.to_meta().unwrap();
        assert!(
            meta.len() <= 256,
            "half of the room is left: {}",
            meta.len()
        );
    }

    #[test]
    fn an_edition_adds_tags_in_every_pool_and_the_wan_port_stays_inside() {
        for scope in [Scope::Lan, Scope::Wide] {
            let tags = own().tags(scope, &Other);
            assert_eq!(tags.get("ft_area"), Some("1"));
            assert_eq!(tags.has("wan_join_port"), scope == Scope::Lan);
        }
    }
}
