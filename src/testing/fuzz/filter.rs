//! Filter expressions.

use crate::model::filter::Filter;
use serde_json::json;

/// A filter expression, read and applied to values of every shape.
pub fn fuzz_filter(data: &[u8]) {
    let parsed = std::str::from_utf8(data).map(Filter::parse);
    if let Ok(Ok(filter)) = parsed {
        let list = json!([{"b": null, "c": {"d": 1.5}}, 1, "x", true]);
        filter.matches(&json!({"a": list, "Service": {"Meta": {"v": "1"}}}));
        filter.roots();
    }
}
