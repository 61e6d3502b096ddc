//! A point in time that may be Go's zero time.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Seconds from Go's year 1 to the Unix epoch.
const YEAR_ONE_TO_UNIX: i64 = 62_135_596_800;

/// UTC time with nanoseconds. The default is Go's zero time, 0001-01-01T00:00:00Z, which peers read as "not set".
///
/// Human-readable formats carry RFC 3339 text; others the 15 bytes of Go's `time.Time`: version 1, seconds since year 1
/// (i64, big endian), nanoseconds (i32), zone offset in minutes (i16, -1 for UTC).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 0001-01-01T00:00:00Z.
    seconds: i64,
    nanos: u32,
}

impl Default for Timestamp {
    fn default() -> Self {
        Self::ZERO
    }
}

impl Timestamp {
    /// Go's zero time.
    pub const ZERO: Self = Self {
        seconds: 0,
        nanos: 0,
    };

    /// From seconds and nanoseconds since the Unix epoch.
    pub fn from_unix(seconds: i64, nanos: u32) -> Self {
        Self {
            seconds: seconds.saturating_add(YEAR_ONE_TO_UNIX),
            nanos: nanos.min(999_999_999),
        }
    }

    /// Seconds since the Unix epoch.
    pub fn unix_seconds(self) -> i64 {
        self.seconds.saturating_sub(YEAR_ONE_TO_UNIX)
    }

    /// Nanoseconds within the second.
    pub fn subsec_nanos(self) -> u32 {
        self.nanos
    }

    /// Whether this is Go's zero time.
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// The next nanosecond.
    pub fn just_after(self) -> Self {
        match self.nanos {
            999_999_999 => Self {
                seconds: self.seconds.saturating_add(1),
                nanos: 0,
            },
            nanos => Self {
                nanos: nanos + 1,
                ..self
            },
        }
    }

    /// How long before `later` this was; zero when it was not.
    pub fn age(self, later: Self) -> Duration {
        let nanos = (i128::from(later.seconds) - i128::from(self.seconds)) * 1_000_000_000
            + i128::from(later.nanos)
            - i128::from(self.nanos);
        u64::try_from(nanos.max(0)).map_or(Duration::MAX, Duration::from_nanos)
    }

    /// The 15 bytes Go's `time.Time` marshals to.
    pub fn to_go_bytes(self) -> [u8; 15] {
        let mut out = [0; 15];
        let (version, rest) = out.split_at_mut(1);
        version.fill(1);
        let (seconds, rest) = rest.split_at_mut(8);
        seconds.copy_from_slice(&self.seconds.to_be_bytes());
        let (nanos, zone) = rest.split_at_mut(4);
        nanos.copy_from_slice(&self.nanos.to_be_bytes());
        zone.fill(0xff);
        out
    }

    /// Reads Go's marshalled time: 15 bytes (version 1) or 16 (version 2, with seconds in the zone offset).
    pub fn from_go_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        if !matches!((version, bytes.len()), (1, 15) | (2, 16)) {
            return None;
        }
        let (seconds, rest) = rest.split_first_chunk::<8>()?;
        let (nanos, _zone) = rest.split_first_chunk::<4>()?;
        let nanos = u32::from_be_bytes(*nanos);
        (nanos < 1_000_000_000).then_some(Self {
            seconds: i64::from_be_bytes(*seconds),
            nanos,
        })
    }

    /// Parses RFC 3339 text.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        OffsetDateTime::parse(text, &Rfc3339).ok().map(Self::from)
    }
}

impl From<OffsetDateTime> for Timestamp {
    fn from(at: OffsetDateTime) -> Self {
        Self::from_unix(at.unix_timestamp(), at.nanosecond())
    }
}

impl From<SystemTime> for Timestamp {
    fn from(at: SystemTime) -> Self {
        match at.duration_since(UNIX_EPOCH) {
            Ok(d) => Self::from_unix(
                i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
                d.subsec_nanos(),
            ),
            Err(before) => Self::from_unix(
                -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
                0,
            ),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = OffsetDateTime::from_unix_timestamp(self.unix_seconds())
            .ok()
            .and_then(|at| at.replace_nanosecond(self.nanos).ok())
            .and_then(|at| at.format(&Rfc3339).ok());
        f.write_str(at.as_deref().unwrap_or("0001-01-01T00:00:00Z"))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_bytes(&self.to_go_bytes())
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            Self::parse_rfc3339(&text)
                .ok_or_else(|| D::Error::custom(format!("{text:?} is not an RFC 3339 time")))
        } else {
            let bytes = serde_bytes::ByteBuf::deserialize(deserializer)?;
            if bytes.is_empty() {
                return Ok(Self::ZERO);
            }
            // People who call a method by hand write the time as text.
            let text = || {
                std::str::from_utf8(&bytes)
                    .ok()
                    .and_then(Self::parse_rfc3339)
            };
            Self::from_go_bytes(&bytes)
                .or_else(text)
                .ok_or_else(|| D::Error::custom("not a Go time, nor RFC 3339 text"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_bytes_round_trip_and_zero_is_year_one() {
        let at = Timestamp::from_unix(1_606_780_800, 5);
        assert_eq!(Timestamp::from_go_bytes(&at.to_go_bytes()), Some(at));
        assert_eq!(Timestamp::ZERO.to_string(), "0001-01-01T00:00:00Z");
        let mut zero = [0u8; 15];
        zero[0] = 1;
        zero[13] = 0xff;
        zero[14] = 0xff;
        assert_eq!(Timestamp::ZERO.to_go_bytes(), zero);
        assert_eq!(at.to_string(), "2020-12-01T00:00:00.000000005Z");
        assert_eq!(Timestamp::from_go_bytes(&[1; 14]), None);
    }

    #[test]
    fn age_never_goes_below_zero() {
        let (a, b) = (Timestamp::from_unix(10, 0), Timestamp::from_unix(12, 5));
        assert_eq!(a.age(b), Duration::new(2, 5));
        assert_eq!(b.age(a), Duration::ZERO);
    }
}
