//! Config entries on the wire.
//!
//! In Go these messages marshal themselves, so the outer value is one raw string that holds a row of msgpack values:
//!
//! | message | content of the string |
//! | --- | --- |
//! | request of Apply and Delete | kind; map of Op, Datacenter, Entry, Token |
//! | reply of Get | kind (empty without an entry, and then no entry); entry; facts |
//! | reply of List | count; kind; map of Kind, Entries and facts |
//! | reply of ListAll | count; that many times kind and entry; facts |
//! | reply of ResolveServiceConfig | map of the settings and facts |
//!
//! A proxy-defaults entry marshals itself once more: it is a raw string with its map inside.

use crate::api::service_config::ServiceConfig;
use crate::codec;
use crate::model::catalog::{ExposeConfig, MeshGatewayConfig};
use crate::model::query::UpstreamId;
use crate::model::{
    ConfigEntry, ConfigKind, Datacenter, GoDuration, Index, ProxyDefaults, QueryMeta,
};
use crate::rpc::RpcError;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A write to a config entry.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) op: String,
    pub(super) datacenter: Datacenter,
    pub(super) entry: ConfigEntry,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Body<E> {
    op: String,
    datacenter: Datacenter,
    entry: E,
}

/// An entry as one msgpack value.
#[derive(Serialize)]
#[serde(untagged)]
enum Wire<'a> {
    Blob(ByteBuf),
    Map(MapEntry<'a>),
}

#[derive(Serialize)]
#[serde(untagged)]
enum MapEntry<'a> {
    Defaults(&'a crate::model::ServiceDefaults),
    Resolver(&'a crate::model::ServiceResolver),
}

fn wire(entry: &ConfigEntry) -> Result<Wire<'_>, codec::Error> {
    Ok(match entry {
        ConfigEntry::ProxyDefaults(entry) => Wire::Blob(ByteBuf::from(codec::to_vec(entry)?)),
        ConfigEntry::ServiceDefaults(entry) => Wire::Map(MapEntry::Defaults(entry)),
        ConfigEntry::ServiceResolver(entry) => Wire::Map(MapEntry::Resolver(entry)),
    })
}

/// Reads the request of Apply and Delete.
pub(super) fn request(body: &[u8]) -> Result<Request, RpcError> {
    let blob: ByteBuf = codec::from_slice(body)?;
    let mut rest = blob.as_slice();
    let kind: String = codec::take(&mut rest)?;
    let kind: ConfigKind =
        kind.parse()
            .map_err(|error: crate::model::config_entry::KindError| {
                RpcError::failed(error.to_string())
            })?;
    fn body_of<E: DeserializeOwned + Default>(rest: &mut &[u8]) -> Result<Body<E>, codec::Error> {
        codec::take(rest)
    }
    let (op, datacenter, entry) = match kind {
        ConfigKind::ProxyDefaults => {
            let body: Body<ByteBuf> = body_of(&mut rest)?;
            let entry: ProxyDefaults = codec::from_slice(&body.entry)?;
            (body.op, body.datacenter, ConfigEntry::ProxyDefaults(entry))
        }
        ConfigKind::ServiceDefaults => {
            let body = body_of(&mut rest)?;
            (
                body.op,
                body.datacenter,
                ConfigEntry::ServiceDefaults(body.entry),
            )
        }
        ConfigKind::ServiceResolver => {
            let body = body_of(&mut rest)?;
            (
                body.op,
                body.datacenter,
                ConfigEntry::ServiceResolver(body.entry),
            )
        }
    };
    Ok(Request {
        op,
        datacenter,
        entry,
    })
}

/// The reply of Get.
pub(super) fn one(entry: Option<&ConfigEntry>, meta: QueryMeta) -> Result<Bytes, RpcError> {
    blob(|out| {
        codec::append(out, entry.map_or("", |entry| entry.kind().as_str()))?;
        if let Some(entry) = entry {
            codec::append(out, &wire(entry)?)?;
        }
        codec::append(out, &meta)
    })
}

/// The reply of List.
pub(super) fn of_kind(
    kind: &str,
    entries: &[Arc<ConfigEntry>],
    meta: QueryMeta,
) -> Result<Bytes, RpcError> {
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Entries<'a> {
        kind: &'a str,
        /// A list even when there is none.
        entries: Option<Vec<Wire<'a>>>,
        index: Index,
        last_contact: GoDuration,
        known_leader: bool,
        consistency_level: String,
    }
    blob(|out| {
        codec::append(out, &entries.len())?;
        codec::append(out, kind)?;
        let entries = Entries {
            kind,
            entries: Some(entries.iter().map(|e| wire(e)).collect::<Result<_, _>>()?),
            index: meta.index,
            last_contact: meta.last_contact,
            known_leader: meta.known_leader,
            consistency_level: meta.consistency_level,
        };
        codec::append(out, &entries)
    })
}

/// The reply of ListAll.
pub(super) fn mixed(entries: &[Arc<ConfigEntry>], meta: QueryMeta) -> Result<Bytes, RpcError> {
    blob(|out| {
        codec::append(out, &entries.len())?;
        for entry in entries {
            codec::append(out, entry.kind().as_str())?;
            codec::append(out, &wire(entry)?)?;
        }
        codec::append(out, &meta)
    })
}

/// The reply of ResolveServiceConfig. Agents that name upstreams by id get them back in that form.
pub(super) fn service_config(
    config: ServiceConfig,
    by_id: bool,
    meta: QueryMeta,
) -> Result<Bytes, RpcError> {
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Wire {
        proxy_config: BTreeMap<String, Value>,
        upstream_configs: BTreeMap<String, Protocol>,
        #[serde(rename = "UpstreamIDConfigs")]
        upstream_id_configs: Vec<OfUpstream>,
        mesh_gateway: MeshGatewayConfig,
        expose: ExposeConfig,
        index: Index,
        last_contact: GoDuration,
        known_leader: bool,
        consistency_level: String,
    }
    #[derive(Serialize)]
    struct Protocol {
        protocol: Value,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct OfUpstream {
        upstream: UpstreamId,
        config: Protocol,
    }
    let protocols = config.upstreams.into_iter();
    let protocols = protocols.map(|(id, protocol)| (id, Protocol { protocol }));
    let (by_id, by_name): (Vec<_>, Vec<_>) = protocols.partition(|_| by_id);
    let by_id = by_id.into_iter().map(|(id, config)| OfUpstream {
        upstream: UpstreamId { id },
        config,
    });
    blob(|out| {
        let wire = Wire {
            proxy_config: config.proxy_config,
            upstream_configs: by_name.into_iter().collect(),
            upstream_id_configs: by_id.collect(),
            mesh_gateway: config.mesh_gateway,
            expose: config.expose,
            index: meta.index,
            last_contact: meta.last_contact,
            known_leader: meta.known_leader,
            consistency_level: meta.consistency_level,
        };
        codec::append(out, &wire)
    })
}

fn blob(fill: impl FnOnce(&mut Vec<u8>) -> Result<(), codec::Error>) -> Result<Bytes, RpcError> {
    let failed = |error: codec::Error| RpcError::failed(error.to_string());
    let mut content = Vec::new();
    fill(&mut content).map_err(failed)?;
    let outer = codec::to_vec(&ByteBuf::from(content)).map_err(failed)?;
    Ok(outer.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ServiceResolver;

    #[test]
    fn an_empty_list_is_the_recorded_one() {
        let meta = QueryMeta {
            index: 1,
            known_leader: true,
            ..QueryMeta::default()
        };
        let recorded = "da00350084b0436f6e73697374656e63794c6576656ca0a5496e64657801ab4b6e6f776e4c6561646572c3ab\
                        4c617374436f6e7461637400";
        let bytes = mixed(&[], meta).unwrap();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, recorded.replace(char::is_whitespace, ""));
    }

    #[test]
    fn requests_of_both_forms_are_read() {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Sent<E> {
            op: &'static str,
            datacenter: &'static str,
            entry: E,
            token: &'static str,
        }
        fn send<E: Serialize>(kind: &str, entry: E) -> ConfigEntry {
            let sent = Sent {
                op: "upsert",
                datacenter: "dc1",
                entry,
                token: "",
            };
            let mut content = codec::to_vec(kind).unwrap();
            codec::append(&mut content, &sent).unwrap();
            let read = request(&codec::to_vec(&ByteBuf::from(content)).unwrap()).unwrap();
            assert_eq!(
                (read.op.as_str(), read.datacenter.as_str()),
                ("upsert", "dc1")
            );
            read.entry
        }
        let resolver = ServiceResolver {
            name: "web".to_owned(),
            default_subset: "v1".to_owned(),
            ..ServiceResolver::default()
        };
        assert_eq!(
            send("service-resolver", &resolver),
            ConfigEntry::ServiceResolver(resolver)
        );
        let defaults = ProxyDefaults {
            name: "global".to_owned(),
            ..ProxyDefaults::default()
        };
        let inner = ByteBuf::from(codec::to_vec(&defaults).unwrap());
        assert_eq!(
            send("proxy-defaults", inner),
            ConfigEntry::ProxyDefaults(defaults)
        );
        assert!(request(&codec::to_vec("x").unwrap()).is_err());
        assert!(request(&[0xda, 0xff, 0xff, 0x01]).is_err());
    }
}
