//! The keys of the pool: operations on those of all members, and the part of this member.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use rand::RngCore;

use crate::gossip::serf::Error;
use crate::gossip::serf::Output;
use crate::gossip::serf::QueryId;
use crate::gossip::serf::QueryParams;
use crate::gossip::serf::Serf;
use crate::gossip::serf::query::Purpose;
use crate::gossip::serf::respond::Asker;
use crate::gossip::serf::respond::INTERNAL;
use crate::gossip::serf::respond::MAX_ANSWER;
use crate::gossip::swim::Token;
use crate::gossip::wire;
use crate::gossip::wire::Key;
use crate::gossip::wire::SerfMessage;
use crate::gossip::wire::serf::KeyRequest;
use crate::gossip::wire::serf::KeyResponse;
use crate::model::NodeName;

const INSTALL: &str = "install-key";
const USE: &str = "use-key";
const REMOVE: &str = "remove-key";
const LIST: &str = "list-keys";

/// Bytes of the shortest key in base64, with its head: no answer holds more keys than this suggests.
const SHORTEST_KEY: usize = 25;

/// An operation on the keys of all members.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyOperation {
    /// Says which keys they have.
    List,
    /// Adds a key that decrypts.
    Install(Key),
    /// Encrypts with a key that is installed.
    Use(Key),
    /// Removes a key that is not in use.
    Remove(Key),
}

/// What came of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyReport {
    /// Members that should have answered.
    pub num_nodes: usize,
    /// Members that answered.
    pub num_resp: usize,
    /// Members that refused.
    pub num_err: usize,
    /// What members had to say.
    pub messages: BTreeMap<NodeName, String>,
    /// Keys in base64, which are secrets, and how many members have them.
    pub keys: BTreeMap<String, usize>,
    /// Primary keys in base64, which are secrets, and how many members use them.
    pub primary_keys: BTreeMap<String, usize>,
}

impl KeyReport {
    /// Why the operation did not succeed everywhere; `None` if it did.
    pub fn failure(&self) -> Option<String> {
        let nodes = self.num_nodes;
        if self.num_err > 0 {
            return Some(format!("{}/{nodes} nodes reported failure", self.num_err));
        }
        (self.num_resp != nodes)
            .then(|| format!("{}/{nodes} nodes reported success", self.num_resp))
    }

    /// Whether nobody is left to answer.
    pub(super) fn is_complete(&self) -> bool {
        self.num_resp >= self.num_nodes
    }

    /// Counts one answer.
    pub(super) fn count(&mut self, from: NodeName, payload: &[u8]) {
        self.num_resp += 1;
        let response = match SerfMessage::decode(payload) {
            Ok(SerfMessage::KeyResponse(response)) => response,
            Ok(_) => KeyResponse {
                message: "gossip: the answer is not about keys".into(),
                ..KeyResponse::default()
            },
            Err(error) => KeyResponse {
                message: error.to_string(),
                ..KeyResponse::default()
            },
        };
        if !response.result {
            self.num_err += 1;
        }
        if !response.result || !response.message.is_empty() {
            self.messages.insert(from, response.message);
        }
        for key in response.keys {
            *self.keys.entry(key).or_default() += 1;
        }
        if !response.primary_key.is_empty() {
            *self.primary_keys.entry(response.primary_key).or_default() += 1;
        }
    }
}

impl Serf {
    /// Has all members do an operation on their keys. [`Output::KeyReport`] comes when all have answered, or the time of
    /// a query is over.
    ///
    /// # Errors
    /// When too many queries wait for answers already.
    pub fn keys(
        &mut self,
        now: Instant,
        operation: &KeyOperation,
        relay_factor: u8,
        rng: &mut dyn RngCore,
    ) -> Result<QueryId, Error> {
        let (name, key) = match operation {
            KeyOperation::List => (LIST, &[][..]),
            KeyOperation::Install(key) => (INSTALL, key.as_bytes()),
            KeyOperation::Use(key) => (USE, key.as_bytes()),
            KeyOperation::Remove(key) => (REMOVE, key.as_bytes()),
        };
        let request = SerfMessage::KeyRequest(KeyRequest { key: key.into() });
        let params = QueryParams {
            name: format!("{INTERNAL}{name}"),
            payload: request.encode()?.into(),
            relay_factor,
            ..QueryParams::default()
        };
        let report = KeyReport {
            num_nodes: self.living(),
            ..KeyReport::default()
        };
        let query = self.ask(now, params, Purpose::Keys(report), rng);
        self.settle(now, rng);
        query
    }

    /// Says whether the keys of [`Output::SaveKeyring`] were saved, or why not.
    pub fn keyring_saved(
        &mut self,
        now: Instant,
        token: Token,
        saved: Result<(), String>,
        rng: &mut dyn RngCore,
    ) {
        if let Some(asker) = self.unsaved.remove(&token) {
            let response = KeyResponse {
                result: saved.is_ok(),
                message: saved.err().unwrap_or_default(),
                ..KeyResponse::default()
            };
            self.reply_message(now, &asker, &SerfMessage::KeyResponse(response), rng);
        }
        self.settle(now, rng);
    }

    /// Does our part of an operation.
    pub(super) fn answer_about_keys(
        &mut self,
        now: Instant,
        name: &str,
        asker: Asker,
        payload: &[u8],
        rng: &mut dyn RngCore,
    ) {
        let response = match name {
            LIST => self.listed_keys(&asker),
            INSTALL | USE | REMOVE => match self.change_keys(name, payload) {
                Ok(()) => {
                    self.save_keys(asker);
                    return;
                }
                Err(message) => KeyResponse {
                    message,
                    ..KeyResponse::default()
                },
            },
            _ => {
                tracing::warn!("gossip: does not know the query {INTERNAL}{name}");
                return;
            }
        };
        self.reply_message(now, &asker, &SerfMessage::KeyResponse(response), rng);
    }

    fn change_keys(&mut self, name: &str, payload: &[u8]) -> Result<(), String> {
        let Some(ring) = &mut self.config.keyring else {
            return Err("No keyring to modify (encryption not enabled)".into());
        };
        let request = match SerfMessage::decode(payload) {
            Ok(SerfMessage::KeyRequest(request)) => request,
            Ok(_) => return Err(wire::Error::Empty.to_string()),
            Err(error) => return Err(error.to_string()),
        };
        let key = Key::new(&request.key).map_err(|error| error.to_string())?;
        let done = match name {
            INSTALL => {
                ring.install(key);
                Ok(())
            }
            USE => ring.use_key(key.as_bytes()),
            _ => ring.remove(key.as_bytes()),
        };
        done.map_err(|error| error.to_string())
    }

    fn save_keys(&mut self, asker: Asker) {
        let Some(keyring) = self.config.keyring.clone() else {
            return;
        };
        self.last_token += 1;
        let token = Token(self.last_token);
        self.unsaved.insert(token, asker);
        self.outputs
            .push_back(Output::SaveKeyring { token, keyring });
    }

    /// Our keys, as many as fit into an answer: the primary one first.
    fn listed_keys(&self, asker: &Asker) -> KeyResponse {
        let Some(ring) = &self.config.keyring else {
            return KeyResponse {
                message: "Keyring is empty (encryption not enabled)".into(),
                ..KeyResponse::default()
            };
        };
        let keys: Vec<_> = ring.keys().map(Key::to_base64).collect();
        let all = keys.len();
        let mut response = KeyResponse {
            result: true,
            message: String::new(),
            keys,
            primary_key: ring.primary().to_base64(),
        };
        response.keys.truncate(MAX_ANSWER / SHORTEST_KEY);
        loop {
            let shown = response.keys.len();
            if shown < all {
                response.message =
                    format!("truncated key list response, showing first {shown} of {all} keys");
            }
            if shown == 0 || self.fits(asker, &response) {
                return response;
            }
            response.keys.pop();
        }
    }

    fn fits(&self, asker: &Asker, response: &KeyResponse) -> bool {
        let payload = SerfMessage::KeyResponse(response.clone()).encode();
        let payload: Bytes = payload.unwrap_or_default().into();
        let answer = self.answer(asker, crate::gossip::wire::Blob(payload));
        let answer = SerfMessage::QueryResponse(answer).encode();
        answer.is_ok_and(|answer| answer.len() <= MAX_ANSWER)
    }
}
