//! Reading configuration files and directories, and the files that their values name.

use crate::config::Format;
use crate::config::problem::Origin;
use crate::config::problem::Problem;
use crate::config::problem::Problems;
use crate::config::scan::MAX_BYTES;
use crate::config::settings::Config;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// One source of configuration.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// Name for messages.
    pub(super) name: Arc<str>,
    /// Its text.
    pub(super) text: String,
    /// How to read it; `None` looks at the first character.
    pub(super) format: Option<Format>,
}

/// Reads every file of `paths`; of a directory the `.hcl` and `.json` files, by name, not deeper.
pub(super) fn read_all(
    paths: &[PathBuf],
    format: Option<Format>,
    problems: &mut Problems,
) -> Vec<Source> {
    let mut sources = Vec::new();
    for path in paths {
        let files = if path.is_dir() {
            in_directory(path, format)
        } else {
            Ok(vec![path.clone()])
        };
        match files {
            Ok(files) => {
                for file in files {
                    sources.extend(read_one(&file, format, problems));
                }
            }
            Err(error) => problems.push(unreadable(path, &error)),
        }
    }
    sources
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    let name: Arc<str> = path.to_string_lossy().into();
    let problem = Problem::new(
        Origin::file(&name, 0),
        "",
        format!("cannot be read: {error}"),
    );
    problem.remedy("check the path and its permissions")
}

fn in_directory(dir: &Path, format: Option<Format>) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_file() && (format.is_some() || format_of(&path).is_some()) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn format_of(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()? {
        "hcl" => Some(Format::Hcl),
        "json" => Some(Format::Json),
        _ => None,
    }
}

fn read_one(path: &Path, format: Option<Format>, problems: &mut Problems) -> Option<Source> {
    let name: Arc<str> = path.to_string_lossy().into();
    let format = format.or_else(|| format_of(path));
    if format.is_none() {
        let problem = Problem::new(
            Origin::file(&name, 0),
            "",
            "has neither .hcl nor .json as its extension",
        );
        problems
            .push(problem.remedy("rename it, or say -config-format=hcl or -config-format=json"));
        return None;
    }
    match read_bounded(path) {
        Ok(text) => Some(Source { name, text, format }),
        Err(error) => {
            problems.push(unreadable(path, &error));
            None
        }
    }
}

/// Refuses files above [`MAX_BYTES`] before reading them.
fn read_bounded(path: &Path) -> io::Result<String> {
    let bytes = fs::metadata(path)?.len();
    if bytes > MAX_BYTES as u64 {
        return Err(io::Error::other(format!(
            "it has {bytes} bytes, at most {MAX_BYTES} are read"
        )));
    }
    fs::read_to_string(path)
}

/// What the files named by the configuration hold; the rules judge it.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    /// Whether `data_dir` exists and is something else than a directory.
    pub(super) data_dir_is_file: bool,
    /// PEM text of `ca_file` or of all files in `ca_path`.
    pub(super) ca: Option<Result<String, String>>,
    /// PEM text of `cert_file`.
    pub(super) cert: Option<Result<String, String>>,
    /// PEM text of `key_file`.
    pub(super) key: Option<Result<String, String>>,
    /// The time, for expiry; the epoch's beginning when nobody looked.
    pub(super) now: Option<SystemTime>,
}

impl Surroundings {
    pub(super) fn gather(config: &Config) -> Self {
        let read = |path: &Path| read_bounded(path).map_err(|error| error.to_string());
        let tls = &config.tls;
        let ca = tls.ca_file.as_deref().map(read);
        Self {
            data_dir_is_file: config
                .data_dir
                .as_deref()
                .is_some_and(|dir| dir.exists() && !dir.is_dir()),
            ca: ca.or_else(|| tls.ca_path.as_deref().map(read_ca_path)),
            cert: tls.cert_file.as_deref().map(read),
            key: tls.key_file.as_deref().map(read),
            #[expect(
                clippy::disallowed_methods,
                reason = "this file is the shell that looks at the clock"
            )]
            now: Some(SystemTime::now()),
        }
    }
}

fn read_ca_path(dir: &Path) -> Result<String, String> {
    let mut texts = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(dir)
        .map_err(|e| e.to_string())?
        .filter_map(Result::ok)
        .collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries.iter().filter(|entry| entry.path().is_file()) {
        texts.push(
            read_bounded(&entry.path()).map_err(|e| format!("{}: {e}", entry.path().display()))?,
        );
    }
    Ok(texts.join("\n"))
}
