//! What a new reading of the configuration changes in a running server.

use crate::config::host::Host;
use crate::config::problem::Problems;
use crate::config::schema::Active;
use crate::config::schema::KEYS;
use crate::config::{Loaded, Sources, complete_on, load_on};

/// A configuration read again.
#[derive(Debug, Clone)]
pub struct Reloaded {
    /// The running configuration with the new values of all keys that can change while the server runs.
    pub loaded: Loaded,
    /// Keys with a new value that `loaded` holds.
    pub changed: Vec<&'static str>,
    /// Keys with a new value that only a restart puts in force; `loaded` holds the old one.
    pub need_restart: Vec<&'static str>,
}

/// Reads the configuration again and takes over what can change while the server runs.
///
/// # Errors
/// Everything that is wrong with the new configuration, or with what it makes of the running one.
pub fn reload(sources: &Sources, running: &Loaded) -> Result<Reloaded, Problems> {
    reload_on(sources, running, &Host::gather())
}

fn reload_on(sources: &Sources, running: &Loaded, host: &Host) -> Result<Reloaded, Problems> {
    let newest = load_on(sources, host)?.settings;
    let mut settings = running.settings.clone();
    let (mut changed, mut need_restart) = (Vec::new(), Vec::new());
    let acting = KEYS.iter().filter(|key| key.active == Active::Now);
    for key in acting.filter(|key| key.replaced_by.is_none()) {
        let list = match key.reloadable {
            true => &mut changed,
            false => &mut need_restart,
        };
        if !settings.agrees(&newest, key.path) {
            list.push(key.path);
        }
        if key.reloadable {
            settings.adopt(&newest, key.path); // Even if equal: what is wrong later is to be named with its new place.
        }
    }
    let (problems, warnings) = Default::default();
    Ok(Reloaded {
        loaded: complete_on(sources.dev, settings, host, problems, warnings)?,
        changed,
        need_restart,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(hcl: &str) -> Sources {
        let base = r#"server = true bootstrap = true data_dir = "/d" bind_addr = "127.0.0.1" "#;
        Sources::default().with_fragment(format!("{base}{hcl}"))
    }

    fn check(before: &str, after: &str, changed: &[&str], need_restart: &[&str]) -> Loaded {
        let host = Host::default();
        let running = load_on(&sources(before), &host).unwrap();
        let reloaded = reload_on(&sources(after), &running, &host).unwrap();
        assert_eq!(reloaded.changed, changed);
        assert_eq!(reloaded.need_restart, need_restart);
        reloaded.loaded
    }

    #[test]
    fn keys_that_can_change_do_and_the_others_stay() {
        let before = r#"node_name = "a" node_meta { x = "1" } service { name = "web" } discard_check_output = true"#;
        let after = r#"

            node_name = "b" node_meta { x = "2" } service { name = "web" } datacenter = "dc2" "#;
        let loaded = check(
            before,
            after,
            &["node_meta", "discard_check_output"],
            &["datacenter", "node_name"],
        );
        let identity = &loaded.config.identity;
        assert_eq!(
            (identity.node_name.as_str(), identity.datacenter.as_str()),
            ("a", "dc1")
        );
        assert_eq!(identity.node_meta["x"], "2");
        assert!(!loaded.config.checks.discard_output);
        check(before, before, &[], &[]);
    }

    #[test]
    fn a_wrong_configuration_is_refused_whole() {
        let host = Host::default();
        let running = load_on(&sources(r#"node_name = "a""#), &host).unwrap();
        let wrong =
            r#"node_name = "a" service { port = 1 } check { name = "c" } log_level = "LOUD" "#;
        let text = reload_on(&sources(wrong), &running, &host)
            .unwrap_err()
            .to_string();
        for part in ["a service needs a name", "check \"c\"", "log_level"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let hcl = r#"node_name = "a" acl { tokens { agent = "s3cr3t" } }"#;
        let loaded = load_on(&sources(hcl), &Host::default()).unwrap();
        assert!(!format!("{loaded:?}").contains("s3cr3t"));
    }
}
