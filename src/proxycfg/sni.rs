//! The names under which clients ask a gateway for something: SNI values, and so the names of clusters.
//!
//! All are lower case, as Envoy lower-cases the SNI before it looks for a cluster of that name.

use std::sync::Arc;

/// Longest host name of RFC 1035, in characters.
const MAX_LEN: usize = 253;

/// Whatever is behind the gateways of a datacenter: `<dc>.internal.<trust domain>`.
pub fn datacenter(dc: &str, trust_domain: &str) -> String {
    format!("{dc}.internal.{trust_domain}")
}

/// A local service or a subset of it: `[<subset>.]<service>.default.<dc>.internal.<trust domain>`.
pub fn service(name: &str, dc: &str, trust_domain: &str) -> String {
    format!("{name}.default.{dc}.internal.{trust_domain}")
}

/// Any server of a datacenter: `server.<dc>.<domain>`.
pub fn any_server(dc: &str, domain: &str) -> String {
    format!("server.{dc}.{domain}")
}

/// One server: `<node>.server.<dc>.<domain>`.
pub fn server(node: &str, dc: &str, domain: &str) -> String {
    format!("{node}.server.{dc}.{domain}")
}

/// `name` in lower case if it can be the beginning of an SNI value: letters, digits, `-`, `_`, and dots inside.
///
/// Anything else could not be asked for, and an asterisk would turn an exact filter chain into a wildcard.
pub fn usable(name: &str) -> Option<Arc<str>> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let ok = name.len() <= MAX_LEN
        && name
            .split('.')
            .all(|label| !label.is_empty() && label.len() <= 63 && label.chars().all(word));
    ok.then(|| Arc::from(name.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_stand_in_an_sni_is_usable() {
        for (name, expected) in [
            ("Web", Some("web")),
            ("a.b", Some("a.b")),
            ("n_1", Some("n_1")),
            ("", None),
            ("*", None),
            ("a..b", None),
            (".a", None),
            ("a b", None),
            ("é", None),
        ] {
            assert_eq!(usable(name).as_deref(), expected, "{name:?}");
        }
        assert!(usable(&"a".repeat(64)).is_none());
    }
}
