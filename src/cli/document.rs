//! Files that commands take as input: HCL or JSON, or `-` for standard input.

use crate::config::hcl;
use anyhow::Context;
use anyhow::anyhow;
use anyhow::bail;
use serde_json::Value;
use std::io::Read;

/// Largest file that is read, in bytes; definitions are a few kilobytes.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The document in `path` (`-`: standard input).
///
/// # Errors
/// A file that cannot be read, is too large, or is not a document; the message names the file.
pub(crate) fn read(path: &str) -> anyhow::Result<Value> {
    let mut text = String::new();
    let source: Box<dyn Read> = if path == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).with_context(|| format!("cannot read {path:?}"))?)
    };
    source
        .take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {path:?}"))?;
    if text.len() as u64 > MAX_BYTES {
        bail!("{path:?} is larger than {MAX_BYTES} bytes: this is not a definition file");
    }
    parse(path, &text)
}

fn parse(path: &str, text: &str) -> anyhow::Result<Value> {
    let tree = hcl::parse(text).map_err(|error| anyhow!("{path:?}: {error}"))?;
    Ok(tree.to_json())
}

/// The value of `object`'s key `name`, in any of the spellings `name`, `Name`, `service_name` or `ServiceName`.
pub(crate) fn key<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
    let fields = object.as_object()?;
    let wanted = plain(name);
    fields
        .iter()
        .find(|(known, _)| plain(known) == wanted)
        .map(|(_, value)| value)
}

/// The text under `name` in `object`, empty text counting as absent.
pub(crate) fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    key(object, name)?.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_found_in_every_spelling() {
        let object = json!({"Tagged_Addresses": 1, "Name": "web", "ID": ""});
        assert_eq!(key(&object, "TaggedAddresses"), Some(&json!(1)));
        assert_eq!(text(&object, "name"), Some("web"));
        assert_eq!(text(&object, "id"), None);
    }

    #[test]
    fn hcl_and_json_say_the_same() {
        let hcl = "service { name = \"web\" port = 80 }\nservice { name = \"db\" }";
        let json = r#"{"service": [{"name": "web", "port": 80}, {"name": "db"}]}"#;
        let expected = json!({"service": [{"name": "web", "port": 80}, {"name": "db"}]});
        assert_eq!(parse("a.hcl", hcl).unwrap(), expected);
        assert_eq!(parse("a.json", json).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = parse("web.hcl", "a = \nb =").unwrap_err().to_string();
        assert!(error.starts_with("\"web.hcl\": "), "{error}");
        let error = read("/nonexistent.json").unwrap_err().to_string();
        assert_eq!(error, "cannot read \"/nonexistent.json\"");
    }
}
