//! JSON bodies, read as Go reads them: field names in any case, `null` for "not given", Go's error texts.

mod fields;
mod syntax;

use crate::http::decode::fields::{Decoder, Unknown};
use crate::model::{ConfigEntry, ConfigKind, multierror};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::RefCell;

/// Reads a body. Text behind the first value is ignored, a field that does not exist is an error.
///
/// # Errors
/// What Go's `encoding/json` says.
pub fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let value = syntax::first_value(body)?;
    let unknown = Unknown::default();
    let decoded = T::deserialize(Decoder::new(&value, &unknown));
    match unknown.names().first() {
        Some(name) => Err(format!("json: unknown field {name:?}")),
        None => decoded.map_err(|error| error.to_string()),
    }
}

/// The first value of a body, as it stands. Text behind it is ignored.
///
/// # Errors
/// What Go's `encoding/json` says.
pub fn value(body: &[u8]) -> Result<Value, String> {
    syntax::first_value(body)
}

/// Reads a config entry: like [`json`], with the kind in the body, and durations as text or nanoseconds.
///
/// # Errors
/// Wrong JSON, no or an unknown kind, a wrong type, or every key that the kind does not have.
pub fn config_entry(body: &[u8]) -> Result<ConfigEntry, String> {
    let value = syntax::first_value(body)?;
    let kind = value
        .as_object()
        .and_then(|object| {
            object
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case("kind"))
        })
        .map(|(_, kind)| kind);
    let kind = match kind {
        Some(Value::String(kind)) => kind,
        Some(_) => return Err("Kind value in payload is not a string".into()),
        None => return Err("Payload does not contain a kind/Kind key at the top level".into()),
    };
    let kind: ConfigKind = kind.parse().map_err(|e| format!("{e}"))?;
    let unknown = Unknown::default();
    let decoder = Decoder::new(&value, &unknown);
    let entry = match kind {
        ConfigKind::ProxyDefaults => read(decoder).map(ConfigEntry::ProxyDefaults),
        ConfigKind::ServiceDefaults => read(decoder).map(ConfigEntry::ServiceDefaults),
        ConfigKind::ServiceResolver => read(decoder).map(ConfigEntry::ServiceResolver),
    }?;
    let names = unknown.names().into_iter();
    let problems: Vec<String> = names
        .map(|name| format!("invalid config key {name:?}"))
        .collect();
    multierror(&problems).map_or(Ok(entry), Err)
}

fn read<T: DeserializeOwned>(decoder: Decoder<'_, '_>) -> Result<T, String> {
    T::deserialize(decoder).map_err(|error| error.to_string())
}

pub(crate) type Names = RefCell<Vec<String>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::GoDuration;
    use crate::model::query::RegisterRequest;

    #[test]
    fn names_have_any_case_and_null_is_nothing() {
        let body = br#"{"node":"n","ADDRESS":"a","node_meta":{"Ab":"c"},"Service":null,
            "Check":{"checkid":"x","Definition":{"Interval":"10s","timeout":5}},"CreateIndex":7} trailing"#;
        let got: RegisterRequest = json(body).unwrap();
        assert_eq!((got.node.as_str(), got.address.as_str()), ("n", "a"));
        assert_eq!(got.node_meta["Ab"], "c");
        let check = got.check.unwrap();
        assert_eq!(check.check_id, "x");
        assert_eq!(check.definition.interval, GoDuration(10_000_000_000));
        assert_eq!(check.definition.timeout, GoDuration(5));
    }

    #[test]
    fn problems_are_worded_as_go_does() {
        for (body, text) in [
            ("", "EOF"),
            (
                "{bad",
                "invalid character 'b' looking for beginning of object key string",
            ),
            (r#"{"Foo":1}"#, "json: unknown field \"Foo\""),
            (
                r#"{"Service":{"Port":"abc"}}"#,
                "json: cannot unmarshal string into Go struct field .Service.Port of type int",
            ),
            (
                r#"{"Node":5}"#,
                "json: cannot unmarshal number into Go struct field .Node of type string",
            ),
            (
                "[]",
                "json: cannot unmarshal array into Go value of type struct",
            ),
            (
                r#"{"Check":{"Definition":{"Interval":"x"}}}"#,
                "time: invalid duration \"x\"",
            ),
        ] {
            let error = json::<RegisterRequest>(body.as_bytes()).unwrap_err();
            assert_eq!(error, text, "{body}");
        }
    }

    #[test]
    fn config_entries_take_any_spelling_and_name_every_wrong_key() {
        let body = br#"{"kind":"service-resolver","name":"web","connect_timeout":"15s",
            "subsets":{"v1":{"only_passing":true}}}"#;
        let ConfigEntry::ServiceResolver(entry) = config_entry(body).unwrap() else {
            panic!("wrong kind");
        };
        assert_eq!(entry.connect_timeout, GoDuration(15_000_000_000));
        assert!(entry.subsets["v1"].only_passing);
        let ns = br#"{"Kind":"service-resolver","Name":"web","ConnectTimeout":15000000000}"#;
        let ConfigEntry::ServiceResolver(entry) = config_entry(ns).unwrap() else {
            panic!("wrong kind");
        };
        assert_eq!(entry.connect_timeout.to_string(), "15s");
        let error = config_entry(br#"{"Kind":"service-defaults","Nam":"x","Protcol":"http"}"#);
        assert_eq!(
            error.unwrap_err(),
            "2 errors occurred:\n\t* invalid config key \"Nam\"\n\t* invalid config key \"Protcol\"\n\n"
        );
        for (body, text) in [
            (
                "{}",
                "Payload does not contain a kind/Kind key at the top level",
            ),
            (r#"{"Kind":1}"#, "Kind value in payload is not a string"),
            (r#"{"Kind":"nope"}"#, "invalid config entry kind: nope"),
        ] {
            assert_eq!(config_entry(body.as_bytes()).unwrap_err(), text);
        }
    }
}
