//! The methods of config entries.

use crate::api::Api;
use crate::api::rpc::{Nothing, Reply, blob, decode, encode, unknown};
use crate::model::query::{ConfigEntryQuery, ServiceConfigRequest};

impl Api {
    pub(super) async fn rpc_config_entry(&self, method: &str, body: &[u8]) -> Reply {
        match method {
            "ConfigEntry.Get" => {
                let request: ConfigEntryQuery = decode(body)?;
                let (meta, entry) = self.config_entry(&request).await?.into_parts();
                blob::one(entry.as_deref(), meta)
            }
            "ConfigEntry.List" => {
                let request: ConfigEntryQuery = decode(body)?;
                let (meta, entries) = self.config_entries(&request).await?.into_parts();
                blob::of_kind(&request.kind, &entries, meta)
            }
            "ConfigEntry.ListAll" => {
                let request: ConfigEntryQuery = decode(body)?;
                let (meta, entries) = self.config_entries(&request).await?.into_parts();
                blob::mixed(&entries, meta)
            }
            "ConfigEntry.Apply" => {
                let request = blob::request(body)?;
                let cas = (request.op == "upsert-cas").then(|| request.entry.modify_index());
                let done = self.apply_config_entry(&request.datacenter, request.entry, cas);
                encode(&done.await?)
            }
            "ConfigEntry.Delete" => {
                let request = blob::request(body)?;
                let (kind, name) = (request.entry.kind(), request.entry.name());
                self.delete_config_entry(&request.datacenter, kind.as_str(), name)
                    .await?;
                encode(&Nothing {})
            }
            "ConfigEntry.ResolveServiceConfig" => {
                let request: ServiceConfigRequest = decode(body)?;
                let (meta, config) = self.service_config(&request).await?.into_parts();
                blob::service_config(config, !request.upstream_ids.is_empty(), meta)
            }
            _ => unknown(method),
        }
    }
}
