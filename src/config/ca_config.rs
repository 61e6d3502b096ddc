//! `connect.ca_config`: the names that CA providers know, and bounds that can be checked without one.

use crate::config::duration;
use crate::config::problem::Origin;
use crate::config::problem::Problem;
use crate::config::problem::Problems;
use serde_json::Map;
use serde_json::Value as Json;
use std::time::Duration;

/// Names as files write them and as the provider's API has them.
#[rustfmt::skip] // A table.
const NAMES: &[(&str, &str)] = &[
    // built in
    ("private_key", "PrivateKey"), ("root_cert", "RootCert"), ("rotation_period", "RotationPeriod"),
    // every provider
    ("intermediate_cert_ttl", "IntermediateCertTTL"), ("leaf_cert_ttl", "LeafCertTTL"),
    ("csr_max_per_second", "CSRMaxPerSecond"), ("csr_max_concurrent", "CSRMaxConcurrent"),
    ("private_key_type", "PrivateKeyType"), ("private_key_bits", "PrivateKeyBits"), ("cluster_id", "ClusterID"),
    // vault
    ("address", "Address"), ("token", "Token"), ("root_pki_path", "RootPKIPath"), ("intermediate_pki_path", "IntermediatePKIPath"),
    ("ca_file", "CAFile"), ("ca_path", "CAPath"), ("cert_file", "CertFile"), ("key_file", "KeyFile"),
    ("tls_server_name", "TLSServerName"), ("tls_skip_verify", "TLSSkipVerify"),
    // aws-pca
    ("existing_arn", "ExistingARN"), ("delete_on_exit", "DeleteOnExit"),
];

/// Longest and shortest life of a leaf, and the shortest of an intermediate, in hours (Consul's bounds).
const LEAF_HOURS: (u64, u64) = (1, 8_760);
const INTERMEDIATE_MIN_HOURS: u64 = 3;

/// Renames known keys; others are kept, for providers decide what they accept.
pub(super) fn with_provider_names(map: Map<String, Json>) -> Map<String, Json> {
    let rename = |(name, value): (String, Json)| {
        let known = NAMES.iter().find(|(snake, _)| *snake == name);
        (known.map_or(name, |(_, camel)| (*camel).to_owned()), value)
    };
    map.into_iter().map(rename).collect()
}

/// Checks what every provider has in common. `config` has the provider's names.
pub(super) fn check(config: &Map<String, Json>, origin: &Origin, problems: &mut Problems) {
    let mut problem = |name: &str, what: String, remedy: &str| {
        let key = NAMES
            .iter()
            .find(|(_, camel)| *camel == name)
            .map_or(name, |(snake, _)| *snake);
        let key = format!("connect.ca_config.{key}");
        problems.push(Problem::new(origin.clone(), &key, what).remedy(remedy));
    };
    let mut lives = Vec::new();
    for name in ["LeafCertTTL", "IntermediateCertTTL"] {
        match config.get(name).map(|v| v.as_str().map(duration::parse)) {
            None => {}
            Some(Some(Ok(life))) => lives.push((name, life)),
            Some(Some(Err(why))) => {
                problem(name, format!("invalid duration: {why}"), "write \"72h\"")
            }
            Some(None) => problem(
                name,
                "expected a duration string".to_owned(),
                "write \"72h\"",
            ),
        }
    }
    let life = |name: &str| {
        lives
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, life)| *life)
    };
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let leaf = life("LeafCertTTL");
    if leaf.is_some_and(|life| life < hours(LEAF_HOURS.0) || life > hours(LEAF_HOURS.1)) {
        let what = format!(
            "leaf_cert_ttl must be between {}h and {}h",
            LEAF_HOURS.0, LEAF_HOURS.1
        );
        problem("LeafCertTTL", what, "the default is 72h");
    }
    if let Some(intermediate) = life("IntermediateCertTTL") {
        let least = hours(INTERMEDIATE_MIN_HOURS).max(leaf.unwrap_or(hours(72)) * 3);
        if intermediate < least {
            let what = format!("must be at least {}", duration::format(least));
            problem(
                "IntermediateCertTTL",
                what,
                "it must outlive three leaves; the default is 8760h",
            );
        }
    }
    check_key(config, &mut problem);
    let cluster_id = config.get("ClusterID");
    if cluster_id.is_some_and(|id| {
        id.as_str()
            .is_none_or(|id| uuid::Uuid::parse_str(id).is_err())
    }) {
        problem(
            "ClusterID",
            "cluster_id must be a UUID string".to_owned(),
            "leave it out: it is chosen once",
        );
    }
}

fn check_key(config: &Map<String, Json>, problem: &mut impl FnMut(&str, String, &str)) {
    let kind = config
        .get("PrivateKeyType")
        .map_or(Some("ec"), Json::as_str)
        .unwrap_or_default();
    let bits = config
        .get("PrivateKeyBits")
        .map(|bits| bits.as_i64().unwrap_or(-1));
    let known: &[i64] = match kind {
        "ec" => &[256, 384, 521],
        "rsa" => &[2048, 4096],
        _ => {
            problem(
                "PrivateKeyType",
                format!("{kind:?} is not a key type"),
                "use one of: ec, rsa",
            );
            return;
        }
    };
    if let Some(bits) = bits.filter(|bits| !known.contains(bits)) {
        let remedy =
            "EC keys have 256, 384 or 521 bits (P-256, P-384, P-521), RSA keys 2048 or 4096";
        problem(
            "PrivateKeyBits",
            format!("{bits} bits are not offered for {kind} keys"),
            remedy,
        );
    }
}
