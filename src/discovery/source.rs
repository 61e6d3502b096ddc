//! One entry of `retry_join`, `retry_join_wan` or `primary_gateways`. Pure.

use crate::discovery::address::Address;
use crate::discovery::address::Host;
use crate::discovery::aws;
use crate::discovery::exec::Program;
use crate::discovery::kubernetes;
use crate::discovery::providers;
use crate::discovery::words;
use std::fmt;

/// Longest entry, in bytes.
const MAX_TEXT: usize = 4096;

/// What a program's entry begins with.
const EXEC: &str = "exec=";

/// Where addresses come from. Its text form leaves out secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    label: String,
    kind: Kind,
}

/// The kinds of sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An address, or a name that DNS knows.
    Address(Address),
    /// A program that prints addresses.
    Exec(Program),
    /// Pods of a Kubernetes cluster.
    Kubernetes(kubernetes::Query),
    /// Instances of EC2.
    Aws(aws::Query),
}

/// Why an entry is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?}: {what}; {remedy}")]
pub struct SourceError {
    /// The entry, without secrets.
    pub value: String,
    /// What is wrong with it.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

/// What is wrong with an entry, and the remedy.
pub(crate) type Refusal = (String, String);

impl Source {
    /// Reads an entry: an address, `exec=/path args`, or a go-discover string with `provider=`.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let label = label(text);
        kind(text.trim())
            .map(|kind| Self {
                label: label.clone(),
                kind,
            })
            .map_err(|(what, remedy)| SourceError {
                value: label,
                what,
                remedy,
            })
    }

    /// What it is.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether what it gives can change: everything but an IP address.
    pub fn is_dynamic(&self) -> bool {
        !matches!(
            &self.kind,
            Kind::Address(Address {
                host: Host::Ip(_),
                ..
            })
        )
    }
}

fn kind(text: &str) -> Result<Kind, Refusal> {
    if text.len() > MAX_TEXT {
        let what = format!("it has {} bytes; at most {MAX_TEXT} are read", text.len());
        return Err((what, "make it shorter".to_owned()));
    }
    if let Some(command) = text.strip_prefix(EXEC) {
        return Program::parse(command).map(Kind::Exec);
    }
    if text.contains("provider=") {
        return provider(text);
    }
    let address = text.parse::<Address>();
    address.map(Kind::Address).map_err(|e| (e.what, e.remedy))
}

fn provider(text: &str) -> Result<Kind, Refusal> {
    let pairs = words::pairs(text).map_err(|what| {
        let remedy = "write key=value pairs with spaces between them, each key once, and values with spaces in double quotes";
        (what, remedy.to_owned())
    })?;
    let mut fields = Fields { pairs };
    match fields.take("provider").as_deref() {
        Some("k8s") => kubernetes::Query::from_fields(fields).map(Kind::Kubernetes),
        Some("aws") => aws::Query::from_fields(fields).map(Kind::Aws),
        Some(other) => Err(providers::refusal(other)),
        None => Err(providers::refusal("")),
    }
}

/// The fields of a go-discover string that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Fields {
    pairs: Vec<(String, String)>,
}

impl Fields {
    /// Takes a field; an empty value counts as absent.
    pub(crate) fn take(&mut self, key: &str) -> Option<String> {
        let at = self.pairs.iter().position(|(known, _)| known == key)?;
        let (_, value) = self.pairs.remove(at);
        Some(value).filter(|value| !value.is_empty())
    }

    /// Refuses the fields that are left.
    pub(crate) fn finish(self, provider: &str, known: &[&str]) -> Result<(), Refusal> {
        match self.pairs.first() {
            None => Ok(()),
            Some((key, _)) => Err((
                format!("provider={provider} has no key {key:?}"),
                format!("its keys are {}", known.join(", ")),
            )),
        }
    }
}

/// The entry up to the first word that may be a secret, for logs and errors.
fn label(text: &str) -> String {
    const SECRETS: [&str; 4] = ["secret", "token", "passw", "api_key"];
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    let end = SECRETS.iter().filter_map(|word| lower.find(word)).min();
    let shown = end.and_then(|end| text.get(..end)).unwrap_or(text);
    let short: String = shown.chars().take(200).collect();
    if short.len() < text.len() {
        format!("{}...", short.trim_end())
    } else {
        short
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.label)
    }
}

impl From<Address> for Source {
    fn from(address: Address) -> Self {
        Self {
            label: address.to_string(),
            kind: Kind::Address(address),
        }
    }
}

#[cfg(test)]
mod tests;
