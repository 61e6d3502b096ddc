//! Members for tests of several modules.

use crate::gossip::{Member, MemberStatus, Tags};

/// A server of `dc1` at 127.0.0.n, whose id ends in n.
pub(crate) fn member(name: &str, n: u8, status: MemberStatus) -> Member {
    let id = format!("00000000-0000-4000-8000-0000000000{n:02x}");
    let tags = [
        ("role", "consul"),
        ("dc", "dc1"),
        ("segment", ""),
        ("id", &id),
        ("port", "8300"),
        ("vsn", "2"),
        ("raft_vsn", "3"),
        ("build", "1.8.7:"),
        ("acls", "0"),
        ("ft_fs", "1"),
        ("expect", "3"),
    ];
    Member {
        name: name.into(),
        addr: std::net::IpAddr::from([127, 0, 0, n]).into(),
        port: 8301,
        tags: Tags::from_iter(tags),
        status,
        ..Member::default()
    }
}

pub(crate) fn alive(name: &str, n: u8) -> Member {
    member(name, n, MemberStatus::Alive)
}

pub(crate) fn with(mut member: Member, tag: &str, value: &str) -> Member {
    member.tags.set(tag, value);
    member
}
