//! The methods of the key/value store.

use crate::api::Api;
use crate::api::rpc::{Reply, decode, encode, read, unknown};
use crate::model::query::{
    IndexedDirEntries, IndexedKeyList, KeyListRequest, KeyRequest, KvsRequest,
};

impl Api {
    pub(super) async fn rpc_kvs(&self, method: &str, body: &[u8]) -> Reply {
        match method {
            "KVS.Apply" => {
                let request: KvsRequest = decode(body)?;
                let conditional = matches!(request.op.as_str(), "cas" | "delete-cas");
                let done = self.kv_apply(request).await?;
                encode(&(done && conditional)) // Consul answers false to what cannot be refused.
            }
            "KVS.Get" => {
                let request: KeyRequest = decode(body)?;
                let (meta, entry) = self.kv_get(&request).await?.into_parts();
                let mut reply = IndexedDirEntries {
                    entries: entry.into_iter().collect(),
                    ..IndexedDirEntries::default()
                };
                reply.set_meta(meta);
                encode(&reply)
            }
            "KVS.List" => read!(
                self,
                body,
                KeyRequest,
                kv_list,
                IndexedDirEntries { entries }
            ),
            "KVS.ListKeys" => read!(self, body, KeyListRequest, kv_keys, IndexedKeyList { keys }),
            _ => unknown(method),
        }
    }
}
