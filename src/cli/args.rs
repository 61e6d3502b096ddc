//! Consul's flags have one dash (`-config-file x`, `-config-file=x`); clap wants two.

use std::ffi::OsString;

/// Rewrites `-name` and `-name=value` to `--name` and `--name=value`, up to a bare `--`.
///
/// Left as they are: `-` (standard input), `-h` and other one-letter flags, negative numbers, and
/// everything that is not UTF-8. A value that begins with a dash must be written as `-name=-value`.
#[must_use]
pub fn to_double_dash(args: Vec<OsString>) -> Vec<OsString> {
    let mut ended = false;
    let rewrite = |arg: OsString| {
        ended = ended || arg == "--";
        match arg.to_str().and_then(|text| text.strip_prefix('-')) {
            Some(name) if !ended && is_long_name(name) => OsString::from(format!("--{name}")),
            _ => arg,
        }
    };
    args.into_iter().map(rewrite).collect()
}

/// A letter first, and more than that letter before any `=`.
fn is_long_name(name: &str) -> bool {
    let stem = name.split('=').next().unwrap_or_default();
    stem.len() > 1 && stem.starts_with(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &[&str], expected: &[&str]) {
        let given = given.iter().map(OsString::from).collect();
        let expected: Vec<_> = expected.iter().map(OsString::from).collect();
        assert_eq!(to_double_dash(given), expected);
    }

    #[test]
    fn single_dashes_become_double() {
        check(
            &[
                "crossway",
                "agent",
                "-dev",
                "-config-file=a.hcl",
                "-node",
                "n1",
            ],
            &[
                "crossway",
                "agent",
                "--dev",
                "--config-file=a.hcl",
                "--node",
                "n1",
            ],
        );
        check(
            &["--dev", "-h", "-", "-1", "-5s"],
            &["--dev", "-h", "-", "-1", "-5s"],
        );
    }

    #[test]
    fn nothing_changes_after_the_terminator() {
        check(
            &["-mesh", "--", "-l", "-level"],
            &["--mesh", "--", "-l", "-level"],
        );
    }
}
