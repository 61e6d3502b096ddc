//! Paths as they come on the wire.

use std::borrow::Cow;

/// Decodes `%xx`. `None` if an escape is broken or the result is no UTF-8.
pub fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'%' {
            out.push(byte);
            rest = tail;
            continue;
        }
        let (hex, tail) = tail.split_at_checked(2)?;
        let digits = std::str::from_utf8(hex).ok()?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        out.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

/// The path without empty, `.` and `..` parts, if it has any.
pub fn cleaned(path: &str) -> Option<String> {
    let dirty = |part: &str| matches!(part, "" | "." | "..");
    let inner = path.strip_prefix('/').unwrap_or(path);
    let (body, folder) = match inner.strip_suffix('/') {
        Some(body) => (body, true),
        None => (inner, false),
    };
    if inner.is_empty() || !body.split('/').any(dirty) {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in body.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let end = if folder && !parts.is_empty() { "/" } else { "" };
    Some(format!("/{}{end}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_or_refused() {
        assert_eq!(percent_decode("a%2Fb%20c").unwrap(), "a/b c");
        assert_eq!(percent_decode("plain").unwrap(), "plain");
        for bad in ["%", "%2", "%zz", "%ff", "%+1"] {
            assert!(percent_decode(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn paths_are_cleaned_as_go_does() {
        for (path, clean) in [
            ("//v1/status/leader", "/v1/status/leader"),
            ("/v1/../v1/x/", "/v1/x/"),
            ("/..", "/"),
            ("//", "/"),
        ] {
            assert_eq!(cleaned(path).as_deref(), Some(clean), "{path}");
        }
        for path in ["/", "/v1/x", "/v1/x/"] {
            assert_eq!(cleaned(path), None, "{path}");
        }
    }
}
