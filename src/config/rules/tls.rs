//! TLS keys, and whether the certificates can do what they are configured for (case C022).

use crate::config::certificates;
use crate::config::certificates::Certificate;
use crate::config::files::Surroundings;
use crate::config::rules::Check;
use std::time::SystemTime;

/// TLS 1.2 suites that are offered, by their Go names.
const SUITES: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
];

/// Suites that Go knows and that are not offered here: CBC modes and RSA key exchange.
const OLD_SUITES: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
];

pub(super) fn check(check: &mut Check<'_>, surroundings: &Surroundings) {
    completeness(check);
    versions(check);
    files(check, surroundings);
    let read = surroundings
        .cert
        .as_ref()
        .and_then(|text| text.as_ref().ok());
    let Some(text) = read else { return };
    match certificates::leaf(text) {
        Ok(certificate) => leaf(check, &certificate, surroundings),
        Err(why) => check.refuse(
            "cert_file",
            format!("cert_file holds no certificate: {why}"),
            "it must be PEM",
        ),
    }
}

fn completeness(check: &mut Check<'_>) {
    let tls = &check.config.tls;
    let set = |key: &str| check.settings.bool(key).then(|| key.to_owned());
    let incoming = set("verify_incoming")
        .or_else(|| set("verify_incoming_rpc"))
        .or_else(|| set("verify_incoming_https"));
    let outgoing = set("verify_server_hostname").or_else(|| set("verify_outgoing"));
    if let Some(key) = incoming {
        if !tls.has_ca() {
            check.refuse(
                &key,
                "VerifyIncoming set, and no CA certificate provided!",
                "set ca_file or ca_path",
            );
        }
        if !tls.has_certificate() {
            let missing = match (&tls.cert_file, &tls.key_file) {
                (None, None) => "set cert_file and key_file",
                (None, Some(_)) => "set cert_file",
                _ => "set key_file",
            };
            check.refuse(
                &key,
                "VerifyIncoming set, and no Cert/Key pair provided!",
                missing,
            );
        }
    } else if tls.cert_file.is_some() != tls.key_file.is_some() {
        let (key, missing) = if tls.cert_file.is_some() {
            ("cert_file", "key_file")
        } else {
            ("key_file", "cert_file")
        };
        check.refuse(
            key,
            format!("{key} is set without {missing}"),
            format!("set {missing}"),
        );
    }
    if let Some(key) = outgoing
        && !tls.has_ca()
    {
        check.refuse(
            &key,
            "VerifyOutgoing set, and no CA certificate provided!",
            "set ca_file or ca_path",
        );
    }
    if check.config.ports.https.is_some() && !tls.has_certificate() {
        check.refuse(
            "ports.https",
            "ports.https is set without a certificate",
            "set cert_file and key_file, or ports.https = -1",
        );
    }
    if check.config.ports.grpc_tls.is_some() && !tls.has_certificate() {
        check.refuse(
            "ports.grpc_tls",
            "ports.grpc_tls is set without a certificate",
            "set cert_file and key_file, or ports.grpc_tls = -1",
        );
    }
}

fn versions(check: &mut Check<'_>) {
    let version = check.settings.text("tls_min_version").to_lowercase();
    if matches!(version.as_str(), "tls10" | "tls11") {
        check.warn(
            "tls_min_version",
            format!("tls_min_version {version:?} is older than what is spoken"),
            "tls12 is used",
        );
    }
    let suites = &check.config.tls.cipher_suites;
    let name = |suite: &str| suite.trim_end_matches("_SHA256").to_owned();
    let chacha = |suite: &str| suite.contains("CHACHA20") && SUITES.contains(&name(suite).as_str());
    let offered = |suite: &String| SUITES.contains(&suite.as_str()) || chacha(suite);
    for suite in suites.iter().filter(|suite| !offered(suite)) {
        if OLD_SUITES.contains(&suite.as_str()) {
            check.warn(
                "tls_cipher_suites",
                format!("tls_cipher_suites: {suite} is not offered"),
                "it is left out",
            );
        } else {
            let what = format!(
                "tls_cipher_suites: invalid tls cipher suites: unsupported cipher {suite:?}"
            );
            check.refuse(
                "tls_cipher_suites",
                what,
                format!("known are {}", SUITES.join(", ")),
            );
        }
    }
    if !suites.is_empty()
        && suites
            .iter()
            .all(|suite| OLD_SUITES.contains(&suite.as_str()))
    {
        let what = "tls_cipher_suites names no suite that is offered";
        check.refuse(
            "tls_cipher_suites",
            what,
            format!("add one of {}", SUITES.join(", ")),
        );
    }
}

fn files(check: &mut Check<'_>, surroundings: &Surroundings) {
    let ca_key = if check.config.tls.ca_file.is_some() {
        "ca_file"
    } else {
        "ca_path"
    };
    let all = [
        (ca_key, &surroundings.ca),
        ("cert_file", &surroundings.cert),
        ("key_file", &surroundings.key),
    ];
    for (key, text) in all {
        if let Some(Err(why)) = text {
            let what = format!("{key} {:?} cannot be read: {why}", check.settings.text(key));
            check.refuse(key, what, "check the path and its permissions");
        }
    }
    if let Some(Ok(text)) = &surroundings.ca {
        match certificates::all(text) {
            Ok(list) if list.iter().any(|certificate| certificate.is_ca) => {}
            Ok(_) => check.refuse(
                ca_key,
                format!("{ca_key} holds no CA certificate"),
                "the certificate must have CA:TRUE",
            ),
            Err(why) => check.refuse(
                ca_key,
                format!("{ca_key} holds no certificate: {why}"),
                "it must be PEM",
            ),
        }
    }
    if let (Some(Ok(cert)), Some(Ok(key))) = (&surroundings.cert, &surroundings.key)
        && let Err(why) = certificates::key_fits(cert, key)
    {
        check.refuse(
            "key_file",
            format!("key_file does not fit cert_file: {why}"),
            "give the key that the certificate was made for",
        );
    }
}

fn leaf(check: &mut Check<'_>, certificate: &Certificate, surroundings: &Surroundings) {
    if let Some(now) = surroundings.now {
        validity(check, certificate, now);
    }
    issuer(check, certificate, surroundings);
    let identity = &check.config.identity;
    let base = format!("server.{}.{}", identity.datacenter, identity.domain);
    let node = format!("{}.{base}", identity.node_name);
    let found = certificate.dns_names.join(", ");
    let make = format!(
        "crossway tls cert create -server -dc {} -node {}",
        identity.datacenter, identity.node_name
    );
    if check.config.federation.through_gateways && !certificate.covers(&node) {
        let what = format!(
            "the certificate in cert_file lacks the name {node}, by which servers of other datacenters reach this one"
        );
        check.refuse(
            "cert_file",
            what,
            format!("it has: {found}; {make} adds it"),
        );
    }
    let needs_base =
        check.config.federation.through_gateways || check.config.tls.verify_server_hostname;
    if check.config.server && needs_base && !certificate.covers(&base) {
        let what = format!(
            "the certificate in cert_file lacks the name {base}, by which other servers know a server"
        );
        check.warn(
            "cert_file",
            what,
            format!("it has: {found}; {make} adds it"),
        );
    }
}

fn validity(check: &mut Check<'_>, certificate: &Certificate, now: SystemTime) {
    let now = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    if now > certificate.not_after {
        check.refuse(
            "cert_file",
            format!(
                "the certificate in cert_file expired on {}",
                certificate.not_after_text
            ),
            "renew it",
        );
    } else if now < certificate.not_before {
        let what = format!(
            "the certificate in cert_file is not valid before {}",
            certificate.not_before_text
        );
        check.refuse("cert_file", what, "check this machine's clock");
    } else if certificate.not_after - now < 7 * 24 * 3600 {
        check.warn(
            "cert_file",
            format!(
                "the certificate in cert_file expires on {}",
                certificate.not_after_text
            ),
            "renew it",
        );
    }
}

/// Refuses a leaf that no certificate of the CA has issued, when somebody will verify it; a chain may hide it.
fn issuer(check: &mut Check<'_>, certificate: &Certificate, surroundings: &Surroundings) {
    let Some(Ok(text)) = &surroundings.ca else {
        return;
    };
    let chain = surroundings
        .cert
        .as_ref()
        .and_then(|text| text.as_ref().ok());
    let chain = chain
        .and_then(|text| certificates::all(text).ok())
        .unwrap_or_default();
    let cas = certificates::all(text).unwrap_or_default();
    let known = |ca: &Certificate| ca.subject == certificate.issuer;
    if !cas.iter().any(known) && chain.len() < 2 {
        let what =
            "the certificate in cert_file was not issued by a certificate of the configured CA";
        let tls = &check.config.tls;
        let verified = tls.verify_outgoing || tls.verify_incoming_rpc || tls.verify_incoming_https;
        let remedy = format!("its issuer is {}", certificate.issuer);
        if verified || check.config.federation.through_gateways {
            check.refuse("cert_file", what, remedy);
        } else {
            check.warn("cert_file", what, remedy);
        }
    }
}
