//! The router that the parts of one process share.

use crate::gossip::Member;
use crate::model::{Datacenter, NodeName};
use crate::router::{Area, Gate, Router};
use std::sync::Arc;
use tokio::sync::watch;

/// The one router of this server, and who waits for its changes. Cloning it shares it.
#[derive(Clone, Debug)]
pub struct Servers {
    router: Arc<watch::Sender<Router>>,
    federation_states: Arc<Gate>,
}

impl Servers {
    /// Starts with a router.
    pub fn new(router: Router) -> Self {
        Self {
            router: Arc::new(watch::Sender::new(router)),
            federation_states: Arc::default(),
        }
    }

    /// Asks the router something. Keep it short: updates wait meanwhile.
    pub fn read<T>(&self, ask: impl FnOnce(&Router) -> T) -> T {
        ask(&self.router.borrow())
    }

    /// Told of every change.
    pub fn watch(&self) -> watch::Receiver<Router> {
        self.router.subscribe()
    }

    /// Takes over the members of a pool; wakes the watchers if that changes anything.
    pub fn update(&self, area: &Area, members: &[Member]) {
        self.change(|router| router.update(area, members));
    }

    /// Notes that a request to a server failed.
    pub fn notify_failed(&self, datacenter: &Datacenter, name: &NodeName) {
        self.change(|router| router.notify_failed(datacenter, name));
    }

    fn change(&self, change: impl FnOnce(&mut Router)) {
        self.router.send_if_modified(|router| {
            let before = router.clone();
            change(router);
            *router != before
        });
    }

    /// The gate of federation states.
    pub fn federation_states(&self) -> &Gate {
        &self.federation_states
    }
}
