//! The key/value store.

use crate::api::Api;
use crate::api::error::Error;
use crate::api::read::Answer;
use crate::model::KvEntry;
use crate::model::query::{KeyListRequest, KeyRequest, KvsRequest};
use crate::store::{Command, KvOp, Outcome, Topic};
use std::sync::Arc;

impl Api {
    /// One entry, if the key exists.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn kv_get(
        &self,
        request: &KeyRequest,
    ) -> Result<Answer<Option<Arc<KvEntry>>>, Error> {
        let (key, rows_of) = (request.key.clone(), request.key.clone());
        self.read(
            request,
            vec![Topic::KvKey(Arc::from(key.as_str()))],
            move |state| state.kv_get(&key).0,
            move |state| state.kv_get(&rows_of).1,
        )
        .await
    }

    /// Entries whose key begins with the given one, in key order.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn kv_list(&self, request: &KeyRequest) -> Result<Answer<Vec<Arc<KvEntry>>>, Error> {
        let (prefix, rows_of) = (request.key.clone(), request.key.clone());
        self.read(
            request,
            vec![Topic::KvPrefix(Arc::from(prefix.as_str()))],
            move |state| state.kv_index(&prefix),
            move |state| state.kv_list(&rows_of).1,
        )
        .await
    }

    /// Keys with a prefix, cut behind the separator that follows it.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn kv_keys(&self, request: &KeyListRequest) -> Result<Answer<Vec<String>>, Error> {
        let (prefix, query) = (request.prefix.clone(), request.clone());
        self.read(
            request,
            vec![Topic::KvPrefix(Arc::from(prefix.as_str()))],
            move |state| state.kv_index(&prefix),
            move |state| state.kv_keys(&query.prefix, &query.separator).1,
        )
        .await
    }

    /// Writes. Answers whether it was done; only a compare-and-set can say no.
    ///
    /// # Errors
    /// No key, a value that is too large, an unknown operation, no path to the datacenter, or no leader.
    pub async fn kv_apply(&self, request: KvsRequest) -> Result<bool, Error> {
        let entry = request.dir_ent;
        if entry.key.is_empty() && request.op != "delete-tree" {
            return Err(Error::refused("Must provide key"));
        }
        let limit = self.settings().kv_max_value_size;
        if entry.value.len() > limit {
            let size = entry.value.len();
            let text = format!(
                "Value for key {:?} is too large ({size} > {limit} bytes)",
                entry.key
            );
            return Err(Error::refused(text));
        }
        let op = match request.op.as_str() {
            "set" => KvOp::Set(entry),
            "cas" => KvOp::Cas(entry),
            "delete" => KvOp::Delete(entry.key),
            "delete-cas" => KvOp::DeleteCas(entry.key, entry.modify_index),
            "delete-tree" => KvOp::DeleteTree(entry.key),
            "lock" | "unlock" => return Err(no_session(&entry.session)),
            other => {
                return Err(Error::refused(format!("Invalid KVS operation '{other}'")));
            }
        };
        let outcome = self.write(&request.datacenter, Command::Kv(op)).await?;
        Ok(outcome != Outcome::Bool(false))
    }
}

/// No session can be found: none can be made yet.
fn no_session(id: &str) -> Error {
    if id.len() != 36 {
        return Error::refused("failed session lookup: index error: UUID must be 36 characters");
    }
    Error::refused(format!("invalid session {id:?}"))
}
