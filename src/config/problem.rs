//! What is wrong with a configuration: every problem with its place, its key and what to do.

use std::fmt;
use std::sync::Arc;

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A line of a file, or of an `-hcl` fragment.
    File {
        /// The path as it was given, or the fragment's name.
        path: Arc<str>,
        /// Line, from 1; 0 means the whole file.
        line: u32,
    },
    /// A flag, named without dashes.
    Flag(Arc<str>),
    /// Nobody set it: the built-in default, or what `-dev` sets.
    BuiltIn,
}

impl Origin {
    /// The place `line` of the file at `path`.
    #[must_use]
    pub fn file(path: &Arc<str>, line: u32) -> Self {
        Self::File {
            path: Arc::clone(path),
            line,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line: 0 } => write!(f, "{path}"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Flag(name) => write!(f, "flag -{name}"),
            Self::BuiltIn => write!(f, "default"),
        }
    }
}

/// One thing that is wrong, or that deserves a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands; [`Origin::BuiltIn`] when a needed key is missing.
    pub origin: Origin,
    /// The full key (`ports.http`), or empty when it concerns a whole file.
    pub key: String,
    /// What is wrong. Where Consul 1.8 refuses the same thing, this is Consul's text.
    pub what: String,
    /// What to do about it; may be empty.
    pub remedy: String,
}

impl Problem {
    /// A problem of the key at a place.
    #[must_use]
    pub fn new(origin: Origin, key: &str, what: impl Into<String>) -> Self {
        Self {
            origin,
            key: key.to_owned(),
            what: what.into(),
            remedy: String::new(),
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

/// `origin: key: what (remedy)`; the key is left out where the text names it already.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.origin != Origin::BuiltIn {
            write!(f, "{}: ", self.origin)?;
        }
        if !self.key.is_empty() && !self.what.contains(&self.key) {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)?;
        if self.remedy.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", self.remedy)
    }
}

/// All problems of a configuration; never empty when it is an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Adds one.
    pub fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order of files, lines and flags, each once.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.0
            .sort_by(|a, b| (&a.origin, &a.key).cmp(&(&b.origin, &b.key)));
        self.0.dedup();
        self
    }
}

/// Consul's shape for a list of errors: the count, then one line each.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0.len() == 1 { "error" } else { "errors" };
        write!(f, "{} {plural} occurred:", self.0.len())?;
        self.0
            .iter()
            .try_for_each(|problem| write!(f, "\n\t* {problem}"))
    }
}

impl std::error::Error for Problems {}
