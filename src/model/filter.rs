//! Filter expressions over JSON values: the subset of go-bexpr's language that Consul's filters use.
//!
//! ```text
//!   or     := and ("or" and)*                      selector := name ("." name | "[" string "]")*
//!   and    := not ("and" not)*                     value    := "text" | `text` | number | selector as bare words
//!   not    := "not" not | "(" or ")" | match
//!   match  := selector ("==" | "!=" | "contains" | "not contains" | "matches" | "not matches") value
//!           | selector "is" ["not"] "empty"
//!           | value ["not"] "in" selector
//! ```
//!
//! A selector names fields as Consul's API spells them (`Service.Meta.version`, `Node.Meta["os"]`). Where it passes a
//! list of objects (`Checks.Status`), one element that matches is enough. A key that is not there differs from every
//! value: `!=`, `not in`, `not contains`, `not matches` and `is empty` hold for it.
//!
//! Expressions come from outside: their length, nesting and regular expressions are bounded.

use regex::{Regex, RegexBuilder};
use serde_json::Value;

mod parse;

/// Longest expression, in bytes.
pub const MAX_LEN: usize = 8 * 1024;
/// Deepest nesting of parentheses and `not`.
pub const MAX_DEPTH: usize = 64;
/// Largest compiled regular expression, in bytes.
const MAX_REGEX: usize = 256 * 1024;

/// Why an expression is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// It is longer than [`MAX_LEN`].
    #[error("the filter expression has {0} bytes: at most {MAX_LEN} are allowed")]
    TooLong(usize),
    /// It is nested deeper than [`MAX_DEPTH`].
    #[error("the filter expression is nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// Something else was expected at this place.
    #[error("in the filter expression, {expected} is expected at byte {at}, not {found:?}")]
    Syntax {
        /// Byte offset.
        at: usize,
        /// What would be right there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A regular expression is not valid or too large.
    #[error("in the filter expression, the regular expression {0:?} is not valid")]
    Regex(String),
}

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Expr,
}

#[derive(Clone, Debug)]
enum Expr {
    Or(Vec<Expr>),
    And(Vec<Expr>),
    Not(Box<Expr>),
    Match {
        path: Vec<String>,
        test: Test,
        negated: bool,
    },
}

#[derive(Clone, Debug)]
enum Test {
    Equal(String),
    /// The selector's value holds this: a list as an element, a map as a key, a text as a part.
    Holds(String),
    Empty,
    Matches(Box<Regex>),
}

impl Filter {
    /// Parses an expression.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > MAX_LEN {
            return Err(FilterError::TooLong(text.len()));
        }
        parse::parse(text).map(|root| Self { root })
    }

    /// Whether the expression holds for `value`. A test that does not fit the type of what it looks at does not hold.
    pub fn matches(&self, value: &Value) -> bool {
        self.root.holds(value)
    }

    /// The first component of every selector, for callers that know which fields exist.
    pub fn roots(&self) -> Vec<&str> {
        let mut roots = Vec::new();
        self.root.add_roots(&mut roots);
        roots
    }
}

impl Expr {
    fn holds(&self, value: &Value) -> bool {
        match self {
            Self::Or(any) => any.iter().any(|e| e.holds(value)),
            Self::And(all) => all.iter().all(|e| e.holds(value)),
            Self::Not(inner) => !inner.holds(value),
            Self::Match {
                path,
                test,
                negated,
            } => select(value, path, test, *negated),
        }
    }

    fn add_roots<'a>(&'a self, roots: &mut Vec<&'a str>) {
        match self {
            Self::Or(parts) | Self::And(parts) => parts.iter().for_each(|e| e.add_roots(roots)),
            Self::Not(inner) => inner.add_roots(roots),
            Self::Match { path, .. } => roots.extend(path.first().map(String::as_str)),
        }
    }
}

fn select(value: &Value, path: &[String], test: &Test, negated: bool) -> bool {
    let absent = || negated != matches!(test, Test::Empty);
    match (value, path) {
        (Value::Null, _) => absent(),
        (found, []) => test.holds(found).is_some_and(|holds| holds != negated),
        (Value::Array(list), path) => list.iter().any(|v| select(v, path, test, negated)),
        (Value::Object(map), [key, rest @ ..]) => match map.get(key) {
            Some(inner) => select(inner, rest, test, negated),
            None => absent(),
        },
        _ => false,
    }
}

impl Test {
    /// `None` if the test makes no sense for such a value.
    fn holds(&self, found: &Value) -> Option<bool> {
        Some(match (self, found) {
            (Self::Equal(wanted), found) => return equal(found, wanted),
            (Self::Holds(part), Value::String(text)) => text.contains(part.as_str()),
            (Self::Holds(key), Value::Object(map)) => map.contains_key(key),
            (Self::Holds(wanted), Value::Array(list)) => {
                list.iter().any(|v| equal(v, wanted) == Some(true))
            }
            (Self::Empty, Value::String(text)) => text.is_empty(),
            (Self::Empty, Value::Array(list)) => list.is_empty(),
            (Self::Empty, Value::Object(map)) => map.is_empty(),
            (Self::Matches(regex), Value::String(text)) => regex.is_match(text),
            _ => return None,
        })
    }
}

/// Compares with a value that was written as text: it is read as what is found.
fn equal(found: &Value, wanted: &str) -> Option<bool> {
    match found {
        Value::String(text) => Some(text == wanted),
        Value::Bool(on) => match wanted {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(*on),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(!*on),
            _ => None,
        },
        Value::Number(number) => match (number.as_i64(), wanted.parse::<i64>()) {
            (Some(a), Ok(b)) => Some(a == b),
            _ => wanted
                .parse::<f64>()
                .ok()
                .map(|b| number.as_f64() == Some(b)),
        },
        _ => None,
    }
}

fn regex(text: &str) -> Result<Box<Regex>, FilterError> {
    let built = RegexBuilder::new(text).size_limit(MAX_REGEX).build();
    built
        .map(Box::new)
        .map_err(|_| FilterError::Regex(text.to_owned()))
}

#[cfg(test)]
mod tests;
