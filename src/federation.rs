//! Leader loops that keep federation states true.
//!
//! In this step one loop: [`anti_entropy`] publishes the datacenter's own mesh gateways as its federation state. It waits
//! on the store's topics, so an idle datacenter writes nothing.

pub mod anti_entropy;

use crate::consensus::Consensus;
use crate::model::Datacenter;

/// What the leader's loops work with.
#[derive(Clone)]
pub struct Context {
    /// Where records are written and read.
    pub consensus: Consensus,
    /// The own datacenter.
    pub datacenter: Datacenter,
}

/// Runs while this server leads; cancelled and joined when it no longer does.
pub async fn run_leader(context: Context) {
    anti_entropy::run(context).await;
}
