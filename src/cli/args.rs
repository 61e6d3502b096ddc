//! Go's flags for clap: one dash (`-config-file x`, `-config-file=x`) and switches with a value (`-register=false`).

use clap::ArgAction;
use clap::Command;
use clap::builder::BoolishValueParser;
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

/// Lets every switch of `command` and of its subcommands also be written `-switch=true` or `-switch=false`,
/// and lets the last of a repeated flag win, both as Go's flag package does.
#[must_use]
pub fn with_go_switches(command: Command) -> Command {
    command
        .args_override_self(true)
        .mut_args(|arg| {
            if !matches!(arg.get_action(), ArgAction::SetTrue) {
                return arg;
            }
            arg.action(ArgAction::Set)
                .num_args(0..=1)
                .value_name("bool")
                .require_equals(true)
                .value_parser(BoolishValueParser::new())
                .default_value("false")
                .default_missing_value("true")
                .hide_possible_values(true)
                .hide_default_value(true)
        })
        .mut_subcommands(with_go_switches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

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

    #[test]
    fn switches_take_a_value_and_the_last_one_wins() {
        let switch = Arg::new("register")
            .long("register")
            .action(ArgAction::SetTrue);
        let command = with_go_switches(Command::new("c").arg(switch));
        let value = |args: &[&str]| -> bool {
            let args = std::iter::once(&"c").chain(args);
            let matches = command.clone().try_get_matches_from(args).unwrap();
            *matches.get_one::<bool>("register").unwrap()
        };
        assert!(!value(&[]));
        assert!(value(&["--register"]));
        assert!(!value(&["--register=false"]));
        assert!(value(&["--register=false", "--register=true"]));
    }
}
