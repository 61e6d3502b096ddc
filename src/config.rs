//! Configuration files and flags to one validated [`Config`].
//!
//! Nothing here starts anything or talks to the network. Everything that is wrong is found in one
//! go and named with its file, line and key, so `validate` and `agent` say the same.
//!
//! ```text
//! files, -hcl ──hcl/json──▶ tree ──read (schema)──▶ Settings ─┐
//! flags ─────────────────────────────────────────▶ Settings ─┼─layer─▶ build ─▶ Config ─▶ rules
//! -dev ──────────────────────────────────────────▶ Settings ─┘
//! ```
//!
//! Later sources win: defaults, `-dev`, files and directories in the order of the command line,
//! flags, `-hcl` fragments. Lists grow, maps merge key by key. `files` and `host` are the only
//! parts that touch the machine.

mod addresses;
mod build;
mod ca_config;
pub mod certificates;
pub mod duration;
mod files;
pub mod flags;
pub mod hcl;
pub mod host;
pub mod json;
mod layer;
pub mod problem;
mod read;
mod reload;
mod rules;
pub mod scan;
pub mod schema;
pub mod settings;
pub mod template;
pub mod tree;

pub use crate::config::problem::Problem;
pub use crate::config::problem::Problems;
pub use crate::config::reload::Reloaded;
pub use crate::config::reload::reload;
pub use crate::config::settings::Config;

use crate::config::files::Source;
use crate::config::files::Surroundings;
use crate::config::host::Host;
use crate::config::layer::Settings;
use crate::config::problem::Origin;
use crate::config::read::Reader;
use crate::config::schema::Active;
use std::path::PathBuf;
use std::sync::Arc;

/// Syntax of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// HashiCorp's configuration language, version 1.
    Hcl,
    /// JSON.
    Json,
}

/// Where a configuration comes from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Whether `-dev` was given.
    pub dev: bool,
    /// Files and directories in the order of the command line.
    pub paths: Vec<PathBuf>,
    /// Syntax of all files, whatever their names.
    pub format: Option<Format>,
    /// `-hcl` fragments in order.
    pub fragments: Vec<String>,
    /// What flags set; made by [`flags::parse_agent`].
    pub(crate) flags: Settings,
}

impl Sources {
    /// Sources that are files and directories alone, as `validate` takes them.
    #[must_use]
    pub fn from_paths(paths: Vec<PathBuf>, format: Option<Format>) -> Self {
        Self {
            paths,
            format,
            ..Self::default()
        }
    }

    /// Adds an HCL fragment, as `-hcl` does.
    #[must_use]
    pub fn with_fragment(mut self, hcl: impl Into<String>) -> Self {
        self.fragments.push(hcl.into());
        self
    }
}

/// A configuration that can be run.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What is odd, but accepted.
    pub warnings: Problems,
    /// Keys that are set, but act only in a coming version; `agent` names them at start.
    pub not_yet_active: Vec<&'static str>,
    /// Keys that are set and never act: Consul's enterprise edition, or parts that Crossway does without.
    pub without_effect: Vec<&'static str>,
    /// What was set, to tell what a later reading changes.
    settings: Settings,
}

/// Reads, merges and validates a configuration.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(sources: &Sources) -> Result<Loaded, Problems> {
    load_on(sources, &Host::gather())
}

/// [`load`] on a machine with the given name and interfaces.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load_on(sources: &Sources, host: &Host) -> Result<Loaded, Problems> {
    let mut problems = Problems::default();
    let mut warnings = Problems::default();
    let mut settings = if sources.dev {
        flags::dev_overrides()
    } else {
        Settings::default()
    };
    let files = files::read_all(&sources.paths, sources.format, &mut problems);
    let mut complete = problems.is_empty();
    for file in &files {
        complete &= read(file, &mut settings, &mut problems, &mut warnings);
    }
    settings.extend(&sources.flags);
    for (index, text) in sources.fragments.iter().enumerate() {
        let name: Arc<str> = format!("-hcl[{index}]").into();
        let text = text.clone();
        let source = Source {
            name,
            text,
            format: None,
        };
        complete &= read(&source, &mut settings, &mut problems, &mut warnings);
    }
    note_replacements(&mut settings, &mut warnings);
    if !complete {
        return Err(problems.sorted()); // What the unread part would have set is not "missing".
    }
    complete_on(sources.dev, settings, host, problems, warnings)
}

/// Builds and judges the configuration that `settings` make.
fn complete_on(
    dev: bool,
    settings: Settings,
    host: &Host,
    mut problems: Problems,
    mut warnings: Problems,
) -> Result<Loaded, Problems> {
    let config = build::build(dev, &settings, host, &mut problems);
    let surroundings = Surroundings::gather(&config);
    rules::check(
        &config,
        &settings,
        &surroundings,
        &mut problems,
        &mut warnings,
    );
    if !problems.is_empty() {
        return Err(problems.sorted());
    }
    let keys = |state: Active| {
        settings
            .inactive()
            .filter(move |(_, active)| *active == state)
            .map(|(key, _)| key)
    };
    Ok(Loaded {
        warnings: warnings.sorted(),
        not_yet_active: keys(Active::Later).collect(),
        without_effect: keys(Active::Never).collect(),
        config,
        settings,
    })
}

/// Validates one HCL or JSON text without looking at any file that its values name.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check_text(text: &str, host: &Host) -> Result<(), Problems> {
    let (mut settings, mut problems, mut warnings) = Default::default();
    let text = text.to_owned();
    let source = Source {
        name: "text".into(),
        text,
        format: None,
    };
    if read(&source, &mut settings, &mut problems, &mut warnings) {
        note_replacements(&mut settings, &mut warnings);
        let config = build::build(false, &settings, host, &mut problems);
        let surroundings = Surroundings::default();
        rules::check(
            &config,
            &settings,
            &surroundings,
            &mut problems,
            &mut warnings,
        );
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.sorted())
    }
}

/// Reads one text; false when it cannot be parsed.
fn read(
    source: &Source,
    settings: &mut Settings,
    problems: &mut Problems,
    warnings: &mut Problems,
) -> bool {
    let parse = if source.format == Some(Format::Json) {
        json::parse
    } else {
        hcl::parse
    };
    match parse(&source.text) {
        Ok(root) => {
            Reader {
                path: &source.name,
                settings,
                problems,
                warnings,
            }
            .read(&root);
            true
        }
        Err(error) => {
            let origin = Origin::file(&source.name, error.line);
            problems.push(Problem::new(
                origin,
                "",
                format!("failed to parse: {error}"),
            ));
            false
        }
    }
}

fn note_replacements(settings: &mut Settings, warnings: &mut Problems) {
    for (old, new, origin) in settings.follow_replacements() {
        if old == "acl_datacenter" && !settings.has("acl.enabled") {
            settings.set("acl.enabled", layer::Typed::Bool(true), origin.clone());
        }
        let what = format!("The '{old}' field is deprecated. Use the '{new}' field instead.");
        warnings.push(Problem::new(origin, old, what));
    }
}
