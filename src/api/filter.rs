//! The filter of a read: an expression over each row, whose fields are called as on the wire.

use crate::api::error::Error;
use crate::model::filter::Filter;
use serde::Serialize;

/// What a filter over nodes may name.
pub(crate) const NODE: &[&str] = &[
    "ID",
    "Node",
    "Address",
    "Datacenter",
    "TaggedAddresses",
    "Meta",
];

/// What a filter over nodes with everything on them may name.
pub(crate) const NODE_INFO: &[&str] = &[
    "ID",
    "Node",
    "Address",
    "TaggedAddresses",
    "Meta",
    "Services",
    "Checks",
];

/// What a filter over the services of a node may name.
pub(crate) const SERVICE: &[&str] = &[
    "Kind",
    "ID",
    "Service",
    "Tags",
    "Address",
    "TaggedAddresses",
    "Meta",
    "Port",
    "Weights",
    "EnableTagOverride",
    "Proxy",
    "Connect",
];

/// What a filter over instances in the catalog may name.
pub(crate) const SERVICE_NODE: &[&str] = &[
    "ID",
    "Node",
    "Address",
    "Datacenter",
    "TaggedAddresses",
    "NodeMeta",
    "ServiceKind",
    "ServiceID",
    "ServiceName",
    "ServiceTags",
    "ServiceAddress",
    "ServiceTaggedAddresses",
    "ServiceWeights",
    "ServiceMeta",
    "ServicePort",
    "ServiceEnableTagOverride",
    "ServiceProxy",
    "ServiceConnect",
];

/// What a filter over instances with their checks may name.
pub(crate) const INSTANCE: &[&str] = &["Node", "Service", "Checks"];

/// What a filter over checks may name.
pub(crate) const CHECK: &[&str] = &[
    "Node",
    "CheckID",
    "Name",
    "Status",
    "Notes",
    "Output",
    "ServiceID",
    "ServiceName",
    "ServiceTags",
    "Type",
    "Definition",
];

/// A filter over rows; without an expression it keeps all.
pub(crate) struct RowFilter(Option<Filter>);

impl RowFilter {
    /// Reads the filter of a request; an empty one keeps all rows. `fields` are those that a row has.
    ///
    /// # Errors
    /// An expression that is broken or names a field that no row has.
    pub(crate) fn parse(text: &str, fields: &[&str]) -> Result<Self, Error> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let refused = |problem: String| {
            Error::refused(format!(
                "Failed to create boolean expression evaluator: {problem}"
            ))
        };
        let filter = Filter::parse(text).map_err(|error| refused(error.to_string()))?;
        let unknown = filter.roots().into_iter().find(|r| !fields.contains(r));
        match unknown.map(|root| format!("Selector {root:?} is not valid")) {
            Some(problem) => Err(refused(problem)),
            None => Ok(Self(Some(filter))),
        }
    }

    /// Whether a row stays.
    pub(crate) fn keeps(&self, row: &impl Serialize) -> bool {
        let Some(filter) = &self.0 else {
            return true;
        };
        serde_json::to_value(row).is_ok_and(|row| filter.matches(&row))
    }
}
