//! Leader loops that keep federation states true.
//!
//! In this step one loop: [`anti_entropy`] publishes the datacenter's own mesh gateways as its federation state. It waits
//! on the store's topics, so an idle datacenter writes nothing.

pub mod anti_entropy;

use crate::consensus::Consensus;
use crate::model::Datacenter;
use crate::router::{FEDERATION_STATES, Servers};
use tracing::{info, warn};

/// What the leader's loops work with.
#[derive(Clone)]
pub struct Context {
    /// Where records are written and read.
    pub consensus: Consensus,
    /// The own datacenter.
    pub datacenter: Datacenter,
    /// The servers that must all know federation states before any is written.
    pub servers: Servers,
}

/// Runs while this server leads; cancelled and joined when it no longer does.
pub async fn run_leader(context: Context) {
    supported(&context).await;
    anti_entropy::run(context).await;
}

/// Waits until every server of the datacenter knows federation states (case C009). Stored ones are proof that it did
/// (case C004).
async fn supported(context: &Context) {
    let (servers, here) = (&context.servers, &context.datacenter);
    let mut changes = servers.watch();
    let mut waited = false;
    loop {
        let stored = context.consensus.store().latest().federation_index() > 0;
        let all = || servers.read(|router| router.all_support(FEDERATION_STATES, &[here]));
        changes.mark_unchanged();
        if servers.federation_states().is_open(stored, all) {
            if waited {
                info!("all servers know federation states now");
            }
            return;
        }
        let names = servers.read(|router| {
            let without = router.without(FEDERATION_STATES, here).into_iter();
            without
                .map(|server| server.name.to_string())
                .collect::<Vec<_>>()
        });
        if !waited && !names.is_empty() {
            warn!(
                ?names,
                "no federation state is written until these servers are upgraded or removed"
            );
            waited = true;
        }
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}
