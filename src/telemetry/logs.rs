//! One subscriber for the process: standard output and a file, text or JSON, with a level that can change.

use parking_lot::Mutex;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

/// How to log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// Consul's name of the level in any case: trace, debug, info, warn, err or error.
    pub level: String,
    /// Whether each line is a JSON object.
    pub json: bool,
    /// File that is appended to besides standard output; in a directory, `crossway.log`.
    pub file: Option<PathBuf>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            json: false,
            file: None,
        }
    }
}

/// Why logging cannot begin or change.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is not one of Consul's.
    #[error("log_level {0:?} is not a level: use one of trace, debug, info, warn, err")]
    Level(String),
    /// The log file cannot be opened.
    #[error(
        "log_file {path:?} cannot be opened for writing: {error}: check the path and its permissions"
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// Another subscriber was installed before.
    #[error("logging was set up elsewhere in this process")]
    Taken,
}

/// Changes the level of the process's log.
#[derive(Clone)]
pub struct LogHandle {
    filter: reload::Handle<Targets, Registry>,
}

impl LogHandle {
    /// Logs at another level from now on.
    ///
    /// # Errors
    /// The level is unknown.
    pub fn set_level(&self, level: &str) -> Result<(), LogError> {
        let targets = targets(parse(level)?);
        self.filter.reload(targets).map_err(|_| LogError::Taken)
    }
}

static INSTALLED: OnceLock<LogHandle> = OnceLock::new();

/// Starts the process's log, or changes the level of the one that is there.
///
/// # Errors
/// An unknown level, a file that cannot be opened, or a subscriber of somebody else.
pub fn init(options: &LogOptions) -> Result<LogHandle, LogError> {
    if let Some(handle) = INSTALLED.get() {
        handle.set_level(&options.level)?;
        return Ok(handle.clone());
    }
    let (filter, handle) = reload::Layer::new(targets(parse(&options.level)?));
    let file = options.file.as_deref().map(LogFile::open).transpose()?;
    let stdout = format_layer(options.json, io::stdout);
    let file = file.map(|file| format_layer(options.json, file));
    // The filter is a layer of its own, below both outputs.
    let subscriber = tracing_subscriber::registry()
        .with(filter)
        .with(stdout)
        .with(file);
    subscriber.try_init().map_err(|_| LogError::Taken)?;
    Ok(INSTALLED
        .get_or_init(|| LogHandle { filter: handle })
        .clone())
}

fn format_layer<S, W>(json: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a> + Send + Sync,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(false);
    if json {
        layer.json().flatten_event(true).boxed()
    } else {
        layer.boxed()
    }
}

fn parse(level: &str) -> Result<LevelFilter, LogError> {
    match level.to_lowercase().as_str() {
        "trace" => Ok(LevelFilter::TRACE),
        "debug" => Ok(LevelFilter::DEBUG),
        "info" => Ok(LevelFilter::INFO),
        "warn" => Ok(LevelFilter::WARN),
        "err" | "error" => Ok(LevelFilter::ERROR),
        _ => Err(LogError::Level(level.to_owned())),
    }
}

/// Our own messages at the level, those of libraries one step quieter, and never below warnings.
fn targets(level: LevelFilter) -> Targets {
    let libraries = match level {
        LevelFilter::TRACE => LevelFilter::DEBUG,
        LevelFilter::DEBUG => LevelFilter::INFO,
        LevelFilter::INFO => LevelFilter::WARN,
        other => other,
    };
    // It tells each step of the protocol at "info", and each request that an unreachable peer does not get as an error,
    // several times a second: what it comes to is told by `consensus`.
    let raft = match level {
        LevelFilter::TRACE | LevelFilter::DEBUG => LevelFilter::WARN,
        _ => LevelFilter::OFF,
    };
    Targets::new()
        .with_default(libraries)
        .with_target("crossway", level)
        .with_target("openraft", raft)
}

/// A file that several threads append whole lines to.
#[derive(Clone)]
struct LogFile(Arc<Mutex<File>>);

impl LogFile {
    fn open(path: &Path) -> Result<Self, LogError> {
        let path = if path.is_dir() {
            path.join("crossway.log")
        } else {
            path.to_owned()
        };
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        opened
            .map(|file| Self(Arc::new(Mutex::new(file))))
            .map_err(|error| LogError::File { path, error })
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().flush()
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn consuls_levels_in_any_case() {
        for (text, level) in [
            ("TRACE", LevelFilter::TRACE),
            ("Warn", LevelFilter::WARN),
            ("ERR", LevelFilter::ERROR),
        ] {
            assert_eq!(parse(text).unwrap(), level);
        }
        assert!(
            parse("loud")
                .unwrap_err()
                .to_string()
                .contains("trace, debug, info, warn, err")
        );
    }

    #[test]
    fn libraries_are_one_step_quieter() {
        let targets = targets(LevelFilter::DEBUG);
        assert!(targets.would_enable("crossway::xds", &Level::DEBUG));
        assert!(!targets.would_enable("crossway::xds", &Level::TRACE));
        assert!(
            targets.would_enable("h2", &Level::INFO) && !targets.would_enable("h2", &Level::DEBUG)
        );
    }

    #[test]
    fn a_file_gets_text_and_json_lines() {
        let dir = tempfile::tempdir().unwrap();
        for json in [false, true] {
            let file = LogFile::open(dir.path()).unwrap();
            let subscriber = tracing_subscriber::registry().with(format_layer(json, file));
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(port = 8500, "listening")
            });
        }
        let text = std::fs::read_to_string(dir.path().join("crossway.log")).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].ends_with("listening port=8500"), "{text}");
        let json: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!(
            (&json["message"], &json["port"], &json["level"]),
            (&"listening".into(), &8500.into(), &"INFO".into())
        );
    }

    #[test]
    fn a_file_in_no_directory_is_named() {
        let error = LogFile::open(Path::new("/nonexistent/x.log"))
            .err()
            .unwrap();
        assert!(error.to_string().contains("/nonexistent/x.log"), "{error}");
    }
}
