//! Connect CA: roots, trust domain and leaf certificates.
//!
//! ```text
//!   leader term --> leader::run --owns--> provider (private key)
//!                        ^                     |
//!   Ca::sign() --request-+                     +--> signed leaf, roots in the store
//! ```
//!
//! The key lives in the leader's task alone: when leadership ends the task is cancelled and joined, and requests that were
//! under way get [`Error::NotReady`] instead of a half-torn-down provider. `spiffe` and `sign` are pure.

pub mod leader;
pub mod sign;
pub mod spiffe;

use crate::ca::spiffe::ServiceUri;
use crate::model::query::IndexedCaRoots;
use crate::model::{Datacenter, IssuedCert, Timestamp};
use crate::store::State;
use dashmap::DashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Why the CA gives no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The caller named nothing that can be signed for.
    #[error("{0}")]
    Invalid(String),
    /// There is no leader, or it has not set the CA up yet. Trying again later is right.
    #[error("CA is uninitialized and unable to sign certificates yet: {0}")]
    NotReady(String),
    /// The replicated state refused the CA's write.
    #[error("the CA could not store its state: {0}")]
    Store(String),
    /// Keys or certificates could not be made or read.
    #[error("{0}")]
    Crypto(String),
}

/// Asks the leader's task to sign one leaf.
pub(crate) struct LeafOrder {
    /// The request, as PEM.
    pub(crate) csr: String,
    pub(crate) answer: oneshot::Sender<Result<IssuedCert, Error>>,
}

/// The CA as the rest of the server sees it. Cloning shares it.
#[derive(Clone)]
pub struct Ca {
    orders: mpsc::Sender<LeafOrder>,
    leaves: Arc<DashMap<String, CachedLeaf>>,
}

#[derive(Clone)]
struct CachedLeaf {
    cert: Arc<IssuedCert>,
    root: String,
    renew_at: Timestamp,
}

/// The leader task's end of a [`Ca`].
pub struct Orders(pub(crate) mpsc::Receiver<LeafOrder>);

/// How many requests for leaves may wait for the leader's task.
const ORDER_QUEUE: usize = 1024;

/// How long a request for a leaf waits for the leader's task.
const ORDER_TIMEOUT: Duration = Duration::from_secs(7);

/// Leaves that are remembered at most. Anybody may ask for a leaf of any name, registered or not, so the number of names
/// is no bound.
const LEAVES: usize = 4096;

/// A CA handle, and the end of it that [`leader::run`] serves.
pub fn channel() -> (Ca, Orders) {
    let (orders, receiver) = mpsc::channel(ORDER_QUEUE);
    let ca = Ca {
        orders,
        leaves: Arc::default(),
    };
    (ca, Orders(receiver))
}

impl Ca {
    /// The roots that are trusted now. Before the CA is set up there are none and the trust domain is empty.
    pub fn roots(state: &State) -> IndexedCaRoots {
        let (index, roots) = state.ca_roots();
        let active = state.active_ca_root();
        IndexedCaRoots {
            active_root_id: active.map_or_else(String::new, |root| root.id.clone()),
            trust_domain: state.trust_domain().unwrap_or_default(),
            roots: roots.iter().map(public).collect(),
            index,
            ..IndexedCaRoots::default()
        }
    }

    /// A certificate for `service` in `datacenter`. The same one is given out until the active root changes or 60 to 90 %
    /// of its life are over (a fixed point in between, by serial number). The key is made here and stays here; `sign` has
    /// the leader sign it.
    ///
    /// # Errors
    /// [`Error::NotReady`] while no leader has set up the CA, [`Error::Invalid`] for an empty name, or what `sign` says.
    pub async fn leaf(
        &self,
        state: &State,
        (service, datacenter): (&str, &Datacenter),
        now: Timestamp,
        sign: impl AsyncFnOnce(String) -> Result<IssuedCert, Error>,
    ) -> Result<Arc<IssuedCert>, Error> {
        if service.is_empty() {
            return Err(Error::Invalid("missing service name".to_owned()));
        }
        let no_root = || Error::NotReady("no root certificate".to_owned());
        let root = state.active_ca_root().ok_or_else(no_root)?;
        if let Some(known) = self.leaves.get(service)
            && known.root == root.id
            && now < known.renew_at
        {
            return Ok(known.cert.clone());
        }
        let uri = ServiceUri {
            trust_domain: state.trust_domain().ok_or_else(no_root)?,
            namespace: "default".to_owned(),
            datacenter: datacenter.to_string(),
            service: service.to_owned(),
        };
        let (private_key_pem, csr) = sign::request(&uri.to_string())?;
        let mut cert = sign(csr).await?;
        cert.private_key_pem = private_key_pem;
        cert.create_index = state.last_index();
        cert.modify_index = cert.create_index;
        let cached = CachedLeaf {
            renew_at: renewal(&cert),
            root: root.id.clone(),
            cert: Arc::new(cert),
        };
        self.remember(service, cached.clone(), now);
        Ok(cached.cert)
    }

    /// Keeps a leaf. When there are too many, those that will not be given out again go; if there are none, all go: each
    /// is made anew when it is asked for.
    fn remember(&self, service: &str, leaf: CachedLeaf, now: Timestamp) {
        if self.leaves.len() >= LEAVES {
            let root = leaf.root.as_str();
            self.leaves
                .retain(|_, known| known.root == root && now < known.renew_at);
            if self.leaves.len() >= LEAVES {
                self.leaves.clear();
            }
        }
        self.leaves.insert(service.to_owned(), leaf);
    }

    /// Signs a request (PEM), on the leader.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what cannot be signed, [`Error::NotReady`] without a leader here or before it has set up the
    /// CA.
    pub async fn sign(&self, csr: String) -> Result<IssuedCert, Error> {
        let (answer, reply) = oneshot::channel();
        let order = LeafOrder { csr, answer };
        let gone = || Error::NotReady("leadership changed; try again".to_owned());
        self.orders
            .try_send(order)
            .map_err(|refused| match refused {
                mpsc::error::TrySendError::Full(_) => {
                    Error::NotReady("too many requests are waiting; try again later".to_owned())
                }
                mpsc::error::TrySendError::Closed(_) => {
                    Error::NotReady("this server has no CA (connect.enabled is false)".to_owned())
                }
            })?;
        match tokio::time::timeout(ORDER_TIMEOUT, reply).await {
            Ok(answered) => answered.map_err(|_| gone())?,
            Err(_) => Err(Error::NotReady(format!(
                "no leader answered within {ORDER_TIMEOUT:?}"
            ))),
        }
    }
}

/// A root as others may see it: without what signs.
fn public(root: &Arc<crate::model::CaRoot>) -> Arc<crate::model::CaRoot> {
    if root.signing_cert.is_empty() && root.signing_key.is_empty() {
        return root.clone();
    }
    Arc::new(crate::model::CaRoot {
        signing_cert: String::new(),
        signing_key: String::new(),
        ..(**root).clone()
    })
}

/// Between 60 and 90 % of the certificate's life, spread by its serial number so that not all renew at once.
fn renewal(cert: &IssuedCert) -> Timestamp {
    let life = cert.valid_after.age(cert.valid_before).as_secs();
    let spread = cert.serial_number.bytes().fold(0u64, |sum, b| {
        sum.wrapping_mul(31).wrapping_add(u64::from(b))
    }) % 31;
    let after = life / 100 * (60 + spread);
    let at = cert
        .valid_after
        .unix_seconds()
        .saturating_add(i64::try_from(after).unwrap_or(i64::MAX));
    Timestamp::from_unix(at, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_names_fills_the_memory() {
        let (ca, _orders) = channel();
        let (now, later) = (Timestamp::from_unix(100, 0), Timestamp::from_unix(200, 0));
        let leaf = |root: &str| CachedLeaf {
            cert: Arc::default(),
            root: root.to_owned(),
            renew_at: later,
        };
        for name in 0..LEAVES {
            ca.remember(
                &name.to_string(),
                leaf(if name == 7 { "new" } else { "old" }),
                now,
            );
        }
        assert_eq!(ca.leaves.len(), LEAVES);
        ca.remember("a", leaf("new"), now);
        assert_eq!(ca.leaves.len(), 2, "leaves of an old root go first");
        for name in 0..2 * LEAVES {
            ca.remember(&format!("x{name}"), leaf("new"), now);
        }
        assert!(ca.leaves.len() <= LEAVES);
    }
}
