//! Configurations for servers inside a test's process.

use crate::config;
use crate::config::Config;
use crate::config::Problems;
use crate::config::Sources;
use crate::config::host::Host;
use crate::config::settings::ListenAddr;
use std::net::SocketAddr;
use std::path::Path;

/// A bootstrapping server on 127.0.0.1 with every port chosen by the system, and `hcl` on top.
///
/// # Errors
/// What is wrong with `hcl`.
pub fn on_free_ports(data_dir: &Path, hcl: &str) -> Result<Config, Problems> {
    let base = format!(
        "data_dir = {data_dir:?}\nserver = true\nbootstrap = true\nnode_name = \"n1\"\nbind_addr = \"127.0.0.1\"\n\
         connect {{ enabled = true }}\nperformance {{ raft_multiplier = 1 }}\n"
    );
    let sources = Sources::default().with_fragment(base).with_fragment(hcl);
    let mut config = config::load_on(&sources, &Host::default())?.config;
    let addresses = &mut config.addresses;
    let listeners = [
        &mut addresses.http,
        &mut addresses.https,
        &mut addresses.grpc,
        &mut addresses.grpc_tls,
    ];
    for listener in listeners.into_iter().flatten() {
        if let ListenAddr::Tcp(addr) = listener {
            addr.set_port(0);
        }
    }
    let pairs = [
        &mut addresses.rpc_bind,
        &mut addresses.rpc_advertise,
        &mut addresses.serf_lan_bind,
        &mut addresses.serf_lan_advertise,
    ];
    let wan = [
        &mut addresses.serf_wan_bind,
        &mut addresses.serf_wan_advertise,
    ];
    let single = pairs.into_iter().chain(wan.into_iter().flatten());
    let free = |addr: &mut SocketAddr| addr.set_port(0);
    single.chain(&mut addresses.dns).for_each(free);
    Ok(config)
}
