//! "Did you mean …": the known name nearest to an unknown one.

use crate::config::schema::KEYS;
use std::collections::BTreeSet;

/// Longest name that is compared; longer ones are nobody's slip of the pen.
const MAX_NAME: usize = 100;

/// The known key nearest to `path`: the same name in another block first, then a similar name beside it.
#[must_use]
pub fn nearest(path: &str) -> Option<String> {
    if path.len() > MAX_NAME {
        return None;
    }
    let path = path.to_lowercase();
    let (parent, leaf) = path.rsplit_once('.').unwrap_or(("", &path));
    let moved = KEYS
        .iter()
        .find(|key| last(key.path) == leaf && key.replaced_by.is_none());
    let names = siblings(parent);
    similar(leaf, names.iter().map(String::as_str))
        .map(|name| join(parent, name))
        .or_else(|| moved.map(|key| key.path.to_owned()))
        .or_else(|| similar(&path, KEYS.iter().map(|key| key.path)).map(str::to_owned))
        .or_else(|| similar(leaf, KEYS.iter().map(|key| last(key.path))).and_then(with_leaf))
}

/// The candidate within a third of the name's length.
#[must_use]
pub(crate) fn similar<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn with_leaf(leaf: &str) -> Option<String> {
    KEYS.iter()
        .find(|key| last(key.path) == leaf)
        .map(|key| key.path.to_owned())
}

fn last(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, leaf)| leaf)
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}.{name}")
    }
}

/// The names right below `parent`.
fn siblings(parent: &str) -> BTreeSet<String> {
    let below = |path: &'static str| match parent {
        "" => Some(path),
        _ => path.strip_prefix(parent)?.strip_prefix('.'),
    };
    KEYS.iter()
        .filter_map(|key| below(key.path))
        .filter_map(|rest| rest.split('.').next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_key() {
        for (wrong, right) in [
            ("data_dri", Some("data_dir")),
            ("ports.htpp", Some("ports.http")),
            (
                "connect.enable_mesh_gateway_wan_federaton",
                Some("connect.enable_mesh_gateway_wan_federation"),
            ),
            (
                "enable_mesh_gateway_wan_federation",
                Some("connect.enable_mesh_gateway_wan_federation"),
            ),
            ("connect.primary_gateways", Some("primary_gateways")),
            ("prots", Some("ports")),
            ("acl.token.default", Some("acl.tokens.default")),
            ("zzzzzzzz", None),
        ] {
            assert_eq!(nearest(wrong).as_deref(), right, "{wrong}");
        }
    }
}
