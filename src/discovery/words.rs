//! Words with quotes: the syntax of go-discover's strings and of `exec=`.
//!
//! Words are parted by white space. A part in double quotes keeps its spaces; in it a backslash takes the next character
//! as it is.

/// Splits a text into its words. `Err` says what is wrong.
///
/// # Errors
/// A quote without its partner, or a backslash at the end.
pub fn split(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' if quoted => match chars.next() {
                Some(escaped) => word.get_or_insert_default().push(escaped),
                None => return Err("it ends with a backslash"),
            },
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    if quoted {
        return Err("a double quote has no partner");
    }
    words.extend(word);
    Ok(words)
}

/// The `key=value` pairs of a go-discover string, in their order.
///
/// # Errors
/// As [`split`], and a word without `=` or with an empty key, or a key that comes twice.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut out: Vec<(String, String)> = Vec::new();
    for word in split(text)? {
        // Secrets may stand on both sides of a forgotten "=", so the word itself is not shown.
        let place = out.len() + 1;
        let Some((key, value)) = word.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(format!("word {place} is not key=value"));
        };
        if out.iter().any(|(known, _)| known == key) {
            return Err(format!("duplicate key {key:?}"));
        }
        out.push((key.to_owned(), value.to_owned()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(split(text).unwrap(), expected);
    }

    #[test]
    fn quotes_keep_spaces_and_backslashes_escape() {
        check("", &[]);
        check("  a\tb  c ", &["a", "b", "c"]);
        check(r#"a="b c" d"#, &["a=b c", "d"]);
        check(r#"a="say \"hi\" \\" b"#, &[r#"a=say "hi" \"#, "b"]);
        check(r#""" x"#, &["", "x"]);
        check(r"a\b", &[r"a\b"]);
        assert_eq!(split("a \"b").unwrap_err(), "a double quote has no partner");
        assert_eq!(split("\"a\\").unwrap_err(), "it ends with a backslash");
    }

    #[test]
    fn pairs_have_each_key_once() {
        let got = pairs(r#"provider=k8s label_selector="app=consul,component=server""#).unwrap();
        assert_eq!(got[1].1, "app=consul,component=server");
        assert_eq!(pairs("a=b a=c").unwrap_err(), "duplicate key \"a\"");
        assert_eq!(pairs("a=b c").unwrap_err(), "word 2 is not key=value");
        assert_eq!(pairs("=b").unwrap_err(), "word 1 is not key=value");
    }
}
