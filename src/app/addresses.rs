//! Tells raft where the servers are, as gossip knows it. A datacenter whose servers all came back at other addresses
//! finds together by that: without a leader its membership cannot be changed.

use crate::consensus::RaftTransport;
use crate::router::Servers;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Follows the router until `stop`.
pub(super) async fn run(servers: Servers, raft: Arc<RaftTransport>, stop: CancellationToken) {
    let mut router = servers.watch();
    loop {
        let known = {
            let router = router.borrow_and_update();
            let servers = router.lookup().filter(|server| !server.id.is_empty());
            servers
                .map(|server| (server.id.clone(), server.rpc.to_string()))
                .collect()
        };
        raft.set_addresses(known);
        tokio::select! {
            changed = router.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}
