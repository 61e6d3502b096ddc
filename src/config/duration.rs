//! Go's duration strings (`300ms`, `1h30m`, `-1.5h`), as Consul's configuration and API write them.

use std::time::Duration;

/// Nanoseconds of each unit.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a Go duration that is not negative.
///
/// # Errors
/// What is wrong, in the words of Go's `time.ParseDuration` where Go refuses it too.
pub fn parse(text: &str) -> Result<Duration, String> {
    let (negative, body) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..).unwrap_or_default()),
        Some(b'+') => (false, text.get(1..).unwrap_or_default()),
        _ => (false, text),
    };
    let nanos = if body == "0" { 0 } else { sum(text, body)? };
    if negative && nanos > 0 {
        return Err(format!("{text:?} is negative"));
    }
    Ok(Duration::from_nanos(nanos))
}

fn sum(text: &str, mut body: &str) -> Result<u64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    if body.is_empty() {
        return Err(invalid());
    }
    let mut total = 0_u64;
    while !body.is_empty() {
        let number_len = body
            .bytes()
            .take_while(|c| c.is_ascii_digit() || *c == b'.')
            .count();
        let (number, rest) = body.split_at(number_len);
        let unit_len = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(unit_len);
        if number.is_empty() || number == "." {
            return Err(invalid());
        }
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("time: unknown unit {unit:?} in duration {text:?}"));
        };
        let part = scaled(number, *scale).ok_or_else(invalid)?;
        total = total
            .checked_add(part)
            .filter(|t| i64::try_from(*t).is_ok())
            .ok_or_else(invalid)?;
        body = rest;
    }
    Ok(total)
}

/// `number` (digits with at most one dot) times `scale`, without a float's rounding.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return None;
    }
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse::<u64>().ok()?
    };
    let mut total = whole.checked_mul(scale)?;
    let mut unit = scale;
    for digit in fraction.bytes() {
        unit /= 10;
        total = total.checked_add(unit * u64::from(digit.wrapping_sub(b'0')))?;
    }
    Some(total)
}

/// Writes a duration as Go's `Duration.String` does: `1h0m0s`, `1.5s`, `200ms`, `0s`.
#[must_use]
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    if nanos < 1_000_000_000 {
        let (unit, scale) = match nanos {
            ..1_000 => ("ns", 1),
            1_000..1_000_000 => ("\u{b5}s", 1_000),
            _ => ("ms", 1_000_000),
        };
        return format!("{}{unit}", decimal(nanos, scale));
    }
    let seconds = duration.as_secs();
    let rest = u128::from(seconds % 60) * 1_000_000_000 + u128::from(duration.subsec_nanos());
    let rest = decimal(rest, 1_000_000_000);
    match (seconds / 3_600, seconds / 60 % 60) {
        (0, 0) => format!("{rest}s"),
        (0, minutes) => format!("{minutes}m{rest}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
    }
}

fn decimal(value: u128, scale: u128) -> String {
    let width = scale.ilog10() as usize;
    let fraction = format!("{:0width$}", value % scale);
    match fraction.trim_end_matches('0') {
        "" => (value / scale).to_string(),
        fraction => format!("{}.{fraction}", value / scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn go_strings_both_ways() {
        for (text, nanos, back) in [
            ("0", 0, "0s"),
            ("5s", 5_000_000_000, "5s"),
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("87600h", 315_360_000_000_000_000, "87600h0m0s"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("300ms", 300_000_000, "300ms"),
            (".5us", 500, "500ns"),
            ("1500us", 1_500_000, "1.5ms"),
            ("+2m", 120_000_000_000, "2m0s"),
        ] {
            let got = parse(text).unwrap();
            assert_eq!(
                (got.as_nanos(), format(got).as_str()),
                (nanos, back),
                "{text}"
            );
        }
    }

    #[test]
    fn refused_with_gos_words() {
        for (text, wanted) in [
            ("x", "time: invalid duration \"x\""),
            ("", "time: invalid duration \"\""),
            ("5", "time: missing unit in duration \"5\""),
            ("5d", "time: unknown unit \"d\" in duration \"5d\""),
            ("-5s", "is negative"),
            ("99999999999h", "invalid duration"),
            ("1.2.3s", "invalid duration"),
        ] {
            let err = parse(text).unwrap_err();
            assert!(err.contains(wanted), "{text}: {err}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(nanos in 0_u64..=i64::MAX as u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.hmsnu\u{b5}]{0,12}") {
            let _ = parse(&text);
        }
    }
}
