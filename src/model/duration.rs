//! Go's `time.Duration`: signed nanoseconds with a text form such as `1h30m0s`.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Signed nanoseconds, on the wire an integer. [`fmt::Display`] and [`FromStr`] speak Go's text form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub i64);

/// Why a duration's text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {0:?}: write a number with a unit, such as 300ms, 10s or 1h30m")]
pub struct DurationError(pub String);

impl GoDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// As a std duration; negative ones become zero.
    pub fn to_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Whether it is exactly zero.
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

impl From<Duration> for GoDuration {
    fn from(d: Duration) -> Self {
        Self(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    /// Parses Go's form: an optional sign, then numbers with the units ns, us, µs, ms, s, m, h. "0" needs no unit.
    fn from_str(text: &str) -> Result<Self, DurationError> {
        let bad = || DurationError(text.to_owned());
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..).unwrap_or("")),
            Some(b'+') => (false, text.get(1..).unwrap_or("")),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(bad());
        }
        let mut total = 0f64;
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .ok_or_else(bad)?;
            let (number, tail) = rest.split_at(digits);
            let number: f64 = number.parse().map_err(|_| bad())?;
            let unit_len = tail
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_len);
            let scale = match unit {
                "ns" => 1f64,
                "us" | "µs" | "μs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                _ => return Err(bad()),
            };
            total += number * scale;
            rest = tail;
        }
        if total >= i64::MAX as f64 {
            return Err(bad());
        }
        let nanos = total.round() as i64;
        Ok(Self(if negative { -nanos } else { nanos }))
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, nanos) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < 1_000 {
            return write!(f, "{sign}{nanos}ns");
        }
        if nanos < 1_000_000 {
            return write!(f, "{sign}{}µs", Decimal(nanos, 1_000));
        }
        if nanos < 1_000_000_000 {
            return write!(f, "{sign}{}ms", Decimal(nanos, 1_000_000));
        }
        let (minutes, seconds) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
        f.write_str(sign)?;
        if minutes >= 60 {
            write!(f, "{}h", minutes / 60)?;
        }
        if minutes > 0 {
            write!(f, "{}m", minutes % 60)?;
        }
        write!(f, "{}s", Decimal(seconds, 1_000_000_000))
    }
}

/// `value / unit` with as many decimals as it needs.
struct Decimal(u64, u64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / self.1, self.0 % self.1);
        if part == 0 {
            return write!(f, "{whole}");
        }
        let width = self.1.ilog10() as usize;
        let digits = format!("{part:0width$}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    /// Human-readable formats may also carry text such as `10s` (C101).
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.is_human_readable() {
            true => deserializer.deserialize_any(NumberOrText),
            false => i64::deserialize(deserializer).map(Self),
        }
    }
}

struct NumberOrText;

impl Visitor<'_> for NumberOrText {
    type Value = GoDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nanoseconds or a text such as 10s")
    }

    fn visit_i64<E: Error>(self, nanos: i64) -> Result<GoDuration, E> {
        Ok(GoDuration(nanos))
    }

    fn visit_u64<E: Error>(self, nanos: u64) -> Result<GoDuration, E> {
        let nanos = i64::try_from(nanos).map_err(|_| E::custom("duration out of range"))?;
        Ok(GoDuration(nanos))
    }

    fn visit_f64<E: Error>(self, nanos: f64) -> Result<GoDuration, E> {
        Ok(GoDuration(nanos as i64))
    }

    fn visit_unit<E: Error>(self) -> Result<GoDuration, E> {
        Ok(GoDuration::ZERO)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<GoDuration, E> {
        let unitless = text.parse::<f64>().is_ok();
        let problem = if unitless {
            "missing unit in"
        } else {
            "invalid"
        };
        text.parse()
            .map_err(|_| E::custom(format_args!("time: {problem} duration {text:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_as_go_writes_it() {
        for (text, canonical) in [
            ("10s", "10s"),
            ("1h30m", "1h30m0s"),
            ("300ms", "300ms"),
            ("1.5s", "1.5s"),
            ("90s", "1m30s"),
            ("15us", "15µs"),
            ("0", "0s"),
            ("-2m", "-2m0s"),
            ("72h", "72h0m0s"),
        ] {
            assert_eq!(text.parse::<GoDuration>().unwrap().to_string(), canonical);
        }
        for bad in ["", "10", "s", "1x", "1h-2m", "99999999999h", "1.2.3s"] {
            assert!(bad.parse::<GoDuration>().is_err(), "{bad:?}");
        }
    }
}
