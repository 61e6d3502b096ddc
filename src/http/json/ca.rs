//! CA roots. Signing keys have no field here, so that no answer can hold one.

use crate::api::connect::Roots;
use crate::http::json::NilList;
use crate::model::{CaRoot, Timestamp};
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct RootView<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    name: &'a str,
    serial_number: u64,
    #[serde(rename = "SigningKeyID")]
    signing_key_id: &'a str,
    external_trust_domain: &'a str,
    not_before: Timestamp,
    not_after: Timestamp,
    root_cert: &'a str,
    intermediate_certs: NilList<'a, String>,
    active: bool,
    private_key_type: &'a str,
    private_key_bits: i64,
    create_index: u64,
    modify_index: u64,
}

impl<'a> From<&'a CaRoot> for RootView<'a> {
    fn from(r: &'a CaRoot) -> Self {
        Self {
            id: &r.id,
            name: &r.name,
            serial_number: r.serial_number,
            signing_key_id: &r.signing_key_id,
            external_trust_domain: &r.external_trust_domain,
            not_before: r.not_before,
            not_after: r.not_after,
            root_cert: &r.root_cert,
            intermediate_certs: NilList(&r.intermediate_certs),
            active: r.active,
            private_key_type: &r.private_key_type,
            private_key_bits: r.private_key_bits,
            create_index: r.create_index,
            modify_index: r.modify_index,
        }
    }
}

/// The trusted roots as `/v1/connect/ca/roots` shows them.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct RootsView<'a> {
    #[serde(rename = "ActiveRootID")]
    active_root_id: &'a str,
    trust_domain: &'a str,
    roots: Vec<RootView<'a>>,
}

impl<'a> From<&'a Roots> for RootsView<'a> {
    fn from(r: &'a Roots) -> Self {
        Self {
            active_root_id: &r.active,
            trust_domain: &r.trust_domain,
            roots: r.roots.iter().map(|root| RootView::from(&**root)).collect(),
        }
    }
}

/// All roots and their intermediates as one PEM text.
pub fn pem(roots: &Roots) -> String {
    let mut out = String::new();
    for root in roots.roots.iter() {
        for cert in std::iter::once(&root.root_cert).chain(&root.intermediate_certs) {
            out.push_str(cert);
            if !cert.ends_with('\n') {
                out.push('\n');
            }
        }
    }
    out
}
