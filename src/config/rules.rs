//! What must hold between keys. Pure: files that matter were read before.

use crate::config::ca_config;
use crate::config::files::Surroundings;
use crate::config::layer::Settings;
use crate::config::problem::Problem;
use crate::config::problem::Problems;
use crate::config::settings::Config;

mod definitions;
mod federation;
mod identity;
mod network;
mod tls;

/// One look at everything, with places to put findings.
struct Check<'a> {
    config: &'a Config,
    settings: &'a Settings,
    problems: &'a mut Problems,
    warnings: &'a mut Problems,
}

impl Check<'_> {
    /// Reports a broken rule of the key, unless the key's value itself was refused.
    fn refuse(&mut self, key: &str, what: impl Into<String>, remedy: impl Into<String>) {
        if self.settings.was_refused(key) {
            return;
        }
        self.problems
            .push(Problem::new(self.settings.origin(key), key, what).remedy(remedy));
    }

    fn warn(&mut self, key: &str, what: impl Into<String>, remedy: impl Into<String>) {
        self.warnings
            .push(Problem::new(self.settings.origin(key), key, what).remedy(remedy));
    }
}

/// Checks every rule and reports all findings.
pub(super) fn check(
    config: &Config,
    settings: &Settings,
    surroundings: &Surroundings,
    problems: &mut Problems,
    warnings: &mut Problems,
) {
    if settings.has("connect.ca_config") {
        ca_config::check(
            &config.connect.ca_config,
            &settings.origin("connect.ca_config"),
            problems,
        );
    }
    let mut check = Check {
        config,
        settings,
        problems,
        warnings,
    };
    identity::check(&mut check, surroundings);
    network::check(&mut check);
    federation::check(&mut check);
    tls::check(&mut check, surroundings);
    definitions::check(&mut check);
    other(&mut check);
}

fn other(check: &mut Check<'_>) {
    let (settings, config) = (check.settings, check.config);
    if settings.some_text("segment").is_some() || !settings.blocks("segments").is_empty() {
        let key = if settings.has("segment") {
            "segment"
        } else {
            "segments"
        };
        check.refuse(
            key,
            "Network segments are not supported in this version of Consul",
            format!("remove {key}"),
        );
    }
    if settings.bool("ui") && settings.has("ui_dir") {
        let what = "Both the ui and ui-dir flags were specified, please provide only one.";
        check.refuse("ui_dir", what, "remove one of ui and ui_dir");
    }
    for (rule, origin) in settings.texts_with_origin("telemetry.prefix_filter") {
        if !rule.starts_with(['+', '-']) {
            let what = format!("Filter rule must begin with either '+' or '-': {rule:?}");
            let problem = Problem::new(origin, "telemetry.prefix_filter", what);
            check.warnings.push(problem.remedy("the rule is ignored"));
        }
    }
    if settings.has("audit") {
        let what = "\"audit\" is a Consul Enterprise configuration and will have no effect";
        check.warn("audit", what, "remove it");
    }
    if settings.bool("auto_encrypt.tls") && config.server {
        check.refuse(
            "auto_encrypt.tls",
            "auto_encrypt.tls can only be used on a client.",
            "servers use auto_encrypt.allow_tls",
        );
    }
    if settings.bool("auto_encrypt.allow_tls") && !config.server {
        check.refuse(
            "auto_encrypt.allow_tls",
            "auto_encrypt.allow_tls can only be used on a server.",
            "set server = true",
        );
    }
    if settings.bool("auto_config.enabled") && config.server {
        check.refuse(
            "auto_config.enabled",
            "auto_config.enabled can only be used on a client.",
            "remove it",
        );
    }
    if config.acl.enabled {
        check.warn(
            "acl.enabled",
            "acl.enabled is set, but this version does not enforce ACLs",
            "every request is allowed",
        );
    }
    if config.limits.default_query_time > config.limits.max_query_time {
        check.refuse(
            "default_query_time",
            "default_query_time is longer than max_query_time",
            "raise max_query_time",
        );
    }
}
