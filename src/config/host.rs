//! What the configuration needs to know of the machine, gathered once: its name and its interfaces.

use std::net::IpAddr;
use std::net::Ipv4Addr;

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// Its name, for `node_name`.
    pub name: String,
    /// One row per address.
    pub interfaces: Vec<Interface>,
}

/// One address of one network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface (`eth0`).
    pub name: String,
    /// The address.
    pub addr: IpAddr,
    /// Bits of its network's prefix.
    pub prefix: u8,
    /// Whether the interface is up.
    pub up: bool,
    /// Whether the default route goes through it.
    pub default_route: bool,
}

impl Host {
    /// Asks the operating system. What cannot be learnt is left out; the keys that need it then report it.
    #[must_use]
    pub fn gather() -> Self {
        let default_route = default_route_interface();
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        let row = |i: if_addrs::Interface| Interface {
            up: i.is_oper_up(),
            default_route: default_route.as_deref() == Some(i.name.as_str()),
            prefix: match &i.addr {
                if_addrs::IfAddr::V4(v4) => v4.prefixlen,
                if_addrs::IfAddr::V6(v6) => v6.prefixlen,
            },
            addr: i.ip(),
            name: i.name,
        };
        Self {
            name: host_name(),
            interfaces: interfaces.into_iter().map(row).collect(),
        }
    }
}

fn host_name() -> String {
    let files = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let from_file = files
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok());
    let name = from_file.or_else(|| std::env::var("HOSTNAME").ok());
    name.unwrap_or_default().trim().to_owned()
}

/// Name of the interface of the IPv4 default route, from the kernel's table (Linux).
fn default_route_interface() -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/route").ok()?;
    let rows = table.lines().skip(1);
    let mut columns = rows.map(|row| row.split_whitespace());
    columns.find_map(|mut row| {
        let name = row.next()?;
        let destination = row.next()?;
        (destination == "00000000").then(|| name.to_owned())
    })
}

/// Networks of RFC 6890 that are not global, without loopback and link-local.
const PRIVATE_V4: &[(Ipv4Addr, u8)] = &[
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
];

/// Whether an address can be reached inside a site only (RFC 6890), loopback and link-local excluded.
#[must_use]
pub fn is_private(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => PRIVATE_V4.iter().any(|(net, bits)| {
            let mask = u32::MAX << (32 - u32::from(*bits));
            v4.to_bits() & mask == net.to_bits()
        }),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

/// Whether an address never leaves its host or link, or names none.
#[must_use]
pub fn is_local(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified(),
    }
}
