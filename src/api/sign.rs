//! Leaf certificates: signed by the leader, whoever is asked.

use crate::api::Api;
use crate::api::error::Error;
use crate::api::forward::Leader;
use crate::ca;
use crate::codec;
use crate::consensus::{Peer, Role};
use crate::model::IssuedCert;
use crate::model::query::CaSignRequest;
use crate::rpc::ClientError;
use std::time::Duration;

/// The method with which a server asks the leader, as client agents do.
const METHOD: &str = "ConnectCA.Sign";

/// How long the leader may take.
const LIMIT: Duration = Duration::from_secs(10);

impl Api {
    /// Signs a request, or has the leader sign it. What another server passed on goes no further.
    ///
    /// # Errors
    /// No path to the datacenter, no leader, no CA, or a request that must not be signed.
    pub async fn sign_leaf(&self, request: CaSignRequest) -> Result<IssuedCert, Error> {
        self.reach_datacenter(&request.datacenter)?;
        if request.forwarded && !self.consensus().role().borrow().is_leader() {
            return Err(Error::NoLeader);
        }
        let signed = self.sign_at_leader(request.csr).await;
        signed.map_err(|error| Error::refused(error.to_string()))
    }

    /// Signing changes nothing but the next serial number, so what failed on the way is tried again.
    pub(crate) async fn sign_at_leader(&self, csr: String) -> Result<IssuedCert, ca::Error> {
        let not_ready = |error: Error| ca::Error::NotReady(error.to_string());
        let mut patience = self.patience();
        loop {
            let problem = match (patience.role(), self.leader_way()) {
                (Role::Follower { leader: Some(peer) }, Some(way)) => {
                    match self.signed_by(way, &peer, &csr).await {
                        Ok(signed) => return Ok(signed),
                        Err(ClientError::Remote(text)) if text != Error::NoLeader.to_string() => {
                            return Err(ca::Error::Invalid(text));
                        }
                        Err(error) => Error::Unreached(error.to_string()),
                    }
                }
                (Role::Leader { .. }, _) => {
                    let agent = self.agent().map_err(not_ready)?;
                    return agent.ca.sign(csr).await;
                }
                _ => Error::NoLeader,
            };
            patience.pause(problem).await.map_err(not_ready)?;
        }
    }

    async fn signed_by(
        &self,
        way: &Leader,
        peer: &Peer,
        csr: &str,
    ) -> Result<IssuedCert, ClientError> {
        let request = CaSignRequest {
            datacenter: self.settings().datacenter.clone(),
            csr: csr.to_owned(),
            forwarded: true,
            ..CaSignRequest::default()
        };
        let body = codec::to_vec(&request)?;
        let reply = way.call(peer, METHOD, &body, LIMIT).await?;
        Ok(codec::from_slice(&reply)?)
    }
}
