//! Consul's environment variables and their `CROSSWAY_` twins.

/// Looks a variable up; a parameter, so that rules about variables need no environment in tests.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Value of `CROSSWAY_<name>`, else of `CONSUL_<name>`, in `lookup`. An empty value counts as absent.
pub(crate) fn variable(lookup: Lookup<'_>, name: &str) -> Option<String> {
    ["CROSSWAY_", "CONSUL_"]
        .iter()
        .filter_map(|prefix| lookup(&format!("{prefix}{name}")))
        .find(|value| !value.is_empty())
}

/// The process's own environment; a value that is not UTF-8 counts as absent.
pub(crate) fn process(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_twin_wins_unless_it_is_empty() {
        let both = |name: &str| match name {
            "CROSSWAY_HTTP_ADDR" => Some("ours:1".to_owned()),
            "CONSUL_HTTP_ADDR" => Some("theirs:2".to_owned()),
            "CROSSWAY_HTTP_TOKEN" => Some(String::new()),
            "CONSUL_HTTP_TOKEN" => Some("secret".to_owned()),
            _ => None,
        };
        assert_eq!(variable(&both, "HTTP_ADDR").as_deref(), Some("ours:1"));
        assert_eq!(variable(&both, "HTTP_TOKEN").as_deref(), Some("secret"));
        assert_eq!(variable(&both, "CACERT"), None);
    }
}
