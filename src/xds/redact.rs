//! Resources for display: private keys and other secrets are replaced.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::config::core::v3::{DataSource, TransportSocket};
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, Secret, TlsCertificate, UpstreamTlsContext, secret,
};
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};

use crate::xds::resources::{Resource, ResourceType};

/// What stands in place of a secret.
const REDACTED: &str = "[redacted]";

/// The resource as an `Any` without secrets.
pub(crate) fn any(resource: &Resource) -> Any {
    let body = resource.body();
    let clean = match resource.kind() {
        ResourceType::Secret => edit(&body, clean_secret),
        ResourceType::Cluster => edit(&body, clean_cluster),
        ResourceType::Listener => edit(&body, clean_listener),
        ResourceType::Endpoint | ResourceType::Route => None,
    };
    Any {
        type_url: resource.kind().url().to_owned(),
        value: clean.unwrap_or_else(|| body.to_vec()),
    }
}

fn edit<M: Message + Default>(body: &[u8], clean: fn(&mut M)) -> Option<Vec<u8>> {
    let mut message = M::decode(body).ok()?;
    clean(&mut message);
    Some(message.encode_to_vec())
}

fn hide(source: &mut Option<DataSource>) {
    if let Some(source) = source {
        hide_source(source);
    }
}

fn hide_source(source: &mut DataSource) {
    source.specifier = Some(Specifier::InlineString(REDACTED.to_owned()));
}

fn clean_certificate(certificate: &mut TlsCertificate) {
    hide(&mut certificate.private_key);
    hide(&mut certificate.password);
    hide(&mut certificate.pkcs12);
    if certificate.private_key_provider.is_some() {
        certificate.private_key_provider = None;
    }
}

fn clean_secret(secret: &mut Secret) {
    match &mut secret.r#type {
        Some(secret::Type::TlsCertificate(certificate)) => clean_certificate(certificate),
        Some(secret::Type::SessionTicketKeys(keys)) => {
            keys.keys.iter_mut().for_each(hide_source);
        }
        Some(secret::Type::GenericSecret(generic)) => {
            hide(&mut generic.secret);
            generic.secrets.clear();
        }
        Some(secret::Type::ValidationContext(_)) | None => {}
    }
}

fn clean_context(context: &mut Option<CommonTlsContext>) {
    if let Some(context) = context {
        context
            .tls_certificates
            .iter_mut()
            .for_each(clean_certificate);
    }
}

fn clean_socket(socket: &mut TransportSocket) {
    let Some(ConfigType::TypedConfig(any)) = &mut socket.config_type else {
        return;
    };
    let clean = if any.type_url == UpstreamTlsContext::type_url() {
        edit(&any.value, |tls: &mut UpstreamTlsContext| {
            clean_context(&mut tls.common_tls_context)
        })
    } else if any.type_url == DownstreamTlsContext::type_url() {
        edit(&any.value, |tls: &mut DownstreamTlsContext| {
            clean_context(&mut tls.common_tls_context);
        })
    } else {
        None
    };
    if let Some(clean) = clean {
        any.value = clean;
    }
}

fn clean_cluster(cluster: &mut Cluster) {
    let matches = cluster.transport_socket_matches.iter_mut();
    let sockets = matches.filter_map(|one| one.transport_socket.as_mut());
    sockets
        .chain(cluster.transport_socket.as_mut())
        .for_each(clean_socket);
}

fn clean_listener(listener: &mut Listener) {
    let chains = listener.filter_chains.iter_mut();
    let chains = chains.chain(listener.default_filter_chain.as_mut());
    chains
        .filter_map(|chain| chain.transport_socket.as_mut())
        .for_each(clean_socket);
}

#[cfg(test)]
mod tests {
    use envoy_types::util::pack_any;

    use super::*;

    fn inline(text: &str) -> Option<DataSource> {
        Some(DataSource {
            specifier: Some(Specifier::InlineString(text.to_owned())),
            ..Default::default()
        })
    }

    fn certificate() -> TlsCertificate {
        TlsCertificate {
            certificate_chain: inline("PUBLIC"),
            private_key: inline("PRIVATE"),
            ..Default::default()
        }
    }

    #[test]
    fn private_keys_are_hidden_wherever_they_are() {
        let secret = Secret {
            name: "s".to_owned(),
            r#type: Some(secret::Type::TlsCertificate(certificate())),
        };
        let tls = UpstreamTlsContext {
            common_tls_context: Some(CommonTlsContext {
                tls_certificates: vec![certificate()],
                ..Default::default()
            }),
            ..Default::default()
        };
        let cluster = Cluster {
            name: "c".to_owned(),
            transport_socket: Some(TransportSocket {
                name: "tls".to_owned(),
                config_type: Some(ConfigType::TypedConfig(pack_any(tls))),
            }),
            ..Default::default()
        };
        for resource in [
            Resource::new(ResourceType::Secret, "s", &secret),
            Resource::cluster(&cluster),
        ] {
            let shown = any(&resource).value;
            let holds = |text: &str| shown.windows(text.len()).any(|w| w == text.as_bytes());
            assert!(!holds("PRIVATE"), "{resource:?}");
            assert!(holds("PUBLIC") && holds(REDACTED), "{resource:?}");
        }
    }

    #[test]
    fn session_ticket_keys_are_hidden() {
        let mut secret = Secret::default();
        let keys =
            envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::TlsSessionTicketKeys {
                keys: vec![inline("PRIVATE").unwrap()],
            };
        secret.r#type = Some(secret::Type::SessionTicketKeys(keys));
        let resource = Resource::new(ResourceType::Secret, "s", &secret);
        let shown = any(&resource).value;
        assert!(!shown.windows(7).any(|w| w == b"PRIVATE"));
        assert!(
            shown
                .windows(REDACTED.len())
                .any(|w| w == REDACTED.as_bytes())
        );
    }
}
