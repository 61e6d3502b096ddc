//! What clients may know of the Connect CA.

use crate::api::Api;
use crate::api::error::Error;
use crate::api::read::Answer;
use crate::model::CaRoot;
use crate::model::query::DcSpecificRequest;
use crate::store::Topic;
use std::sync::Arc;

/// The roots that the datacenter trusts. Signing keys are not among them.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    /// Id of the root that signs now; empty before the CA is set up.
    pub active: String,
    /// `<cluster id>.consul`; empty before the CA is set up.
    pub trust_domain: String,
    /// All roots.
    pub roots: Arc<Vec<Arc<CaRoot>>>,
}

impl Api {
    /// The trusted roots.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn ca_roots(&self, request: &DcSpecificRequest) -> Result<Answer<Roots>, Error> {
        self.read(
            request,
            vec![Topic::CaRoots],
            |state| state.ca_roots().0,
            |state| Roots {
                active: state
                    .active_ca_root()
                    .map_or_else(String::new, |root| root.id.clone()),
                trust_domain: state.trust_domain().unwrap_or_default(),
                roots: state.ca_roots().1.clone(),
            },
        )
        .await
    }
}
