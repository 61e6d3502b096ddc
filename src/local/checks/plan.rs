//! From a check's definition to what has to be done. Pure.

use crate::local::checks::{DEFAULT_OUTPUT_MAX, DEFAULT_TIMEOUT, Limits};
use crate::model::HealthCheckDefinition;
use std::time::Duration;

/// Most bytes of output a definition may ask to keep: what a check says travels through Raft.
pub const OUTPUT_LIMIT: usize = 64 * 1024;

/// An HTTP request to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpProbe {
    /// The address to ask.
    pub url: String,
    /// The method; `GET` when the definition has none.
    pub method: String,
    /// Headers, in any case.
    pub header: Vec<(String, String)>,
    /// The body, perhaps empty.
    pub body: String,
    /// Whether any certificate is accepted.
    pub tls_skip_verify: bool,
    /// How many bytes of the answer's end are kept.
    pub output_max: usize,
}

/// What is done in one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// Connects to `host:port`.
    Tcp(String),
    /// Makes an HTTP request.
    Http(Box<HttpProbe>),
}

/// How a check gets its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Somebody reports it, at least this often.
    Ttl(Duration),
    /// It is run.
    Probe {
        /// What is done.
        probe: Probe,
        /// Time from the end of one run to the next.
        interval: Duration,
        /// How long one run may take.
        timeout: Duration,
    },
}

/// Why a definition cannot be run. The first texts are Consul's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The texts say it.
pub enum PlanError {
    #[error("Interval and TTL cannot both be specified")]
    IntervalAndTtl,
    #[error("Interval must be > 0 for Script, HTTP, or TCP checks")]
    NoInterval,
    #[error("TTL must be > 0 for TTL checks")]
    NoTtl,
    #[error("{0:?} checks are not supported by this server: use a TCP, HTTP or TTL check")]
    Unsupported(&'static str),
    #[error("a check has one type: give either TCP or HTTP")]
    TwoTypes,
}

impl Plan {
    /// What a definition asks for.
    ///
    /// # Errors
    /// The definition contradicts itself, or asks for a kind of check that is not supported.
    pub fn of(definition: &HealthCheckDefinition, limits: Limits) -> Result<Self, PlanError> {
        let unsupported = unsupported(definition);
        let probed =
            !definition.tcp.is_empty() || !definition.http.is_empty() || unsupported.is_some();
        if definition.interval.0 > 0 && definition.ttl.0 > 0 {
            return Err(PlanError::IntervalAndTtl);
        }
        if unsupported == Some("alias") {
            return Err(PlanError::Unsupported("alias"));
        }
        if probed && definition.interval.0 <= 0 {
            return Err(PlanError::NoInterval);
        }
        if !probed {
            return match definition.ttl.0 {
                ttl if ttl > 0 => Ok(Self::Ttl(definition.ttl.to_std())),
                _ => Err(PlanError::NoTtl),
            };
        }
        if let Some(name) = unsupported {
            return Err(PlanError::Unsupported(name));
        }
        let interval = definition.interval.to_std().max(limits.min_interval);
        let timeout = match definition.timeout.to_std() {
            Duration::ZERO => interval.min(DEFAULT_TIMEOUT),
            given => given,
        };
        Ok(Self::Probe {
            probe: probe(definition)?,
            interval,
            timeout,
        })
    }

    /// The type's name as Consul shows it: `tcp`, `http` or `ttl`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Ttl(_) => "ttl",
            Self::Probe {
                probe: Probe::Tcp(_),
                ..
            } => "tcp",
            Self::Probe { .. } => "http",
        }
    }
}

fn probe(definition: &HealthCheckDefinition) -> Result<Probe, PlanError> {
    if definition.http.is_empty() {
        return Ok(Probe::Tcp(definition.tcp.clone()));
    }
    if !definition.tcp.is_empty() {
        return Err(PlanError::TwoTypes);
    }
    let values = |(name, values): (&String, &Vec<String>)| {
        let name = name.clone();
        let pair = move |value: &String| (name.clone(), value.clone());
        values.iter().map(pair).collect::<Vec<_>>()
    };
    Ok(Probe::Http(Box::new(HttpProbe {
        url: definition.http.clone(),
        method: match definition.method.as_str() {
            "" => "GET".to_owned(),
            method => method.to_ascii_uppercase(),
        },
        header: definition.header.iter().flat_map(values).collect(),
        body: definition.body.clone(),
        tls_skip_verify: definition.tls_skip_verify,
        output_max: output_max(definition),
    })))
}

/// How many bytes of output a definition keeps.
pub fn output_max(definition: &HealthCheckDefinition) -> usize {
    match usize::try_from(definition.output_max_size) {
        Ok(0) => DEFAULT_OUTPUT_MAX,
        Ok(given) => given.min(OUTPUT_LIMIT),
        Err(_) => OUTPUT_LIMIT,
    }
}

fn unsupported(definition: &HealthCheckDefinition) -> Option<&'static str> {
    if !definition.docker_container_id.is_empty() {
        Some("docker")
    } else if !definition.script_args.is_empty() {
        Some("script")
    } else if !definition.grpc.is_empty() {
        Some("grpc")
    } else if !definition.alias_node.is_empty() || !definition.alias_service.is_empty() {
        Some("alias")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::GoDuration;

    fn definition(edit: impl FnOnce(&mut HealthCheckDefinition)) -> HealthCheckDefinition {
        let mut definition = HealthCheckDefinition::default();
        edit(&mut definition);
        definition
    }

    fn seconds(s: u64) -> GoDuration {
        Duration::from_secs(s).into()
    }

    #[test]
    fn a_timeout_is_ten_seconds_but_never_longer_than_the_interval() {
        for (interval, timeout, expect) in [(30, 0, 10), (3, 0, 3), (0, 0, 0), (3, 20, 20)] {
            let plan = Plan::of(
                &definition(|d| {
                    d.tcp = "h:1".into();
                    d.interval = seconds(interval);
                    d.timeout = seconds(timeout);
                }),
                Limits::default(),
            );
            match plan {
                Ok(Plan::Probe { timeout, .. }) => assert_eq!(timeout.as_secs(), expect),
                other => assert_eq!((other, interval), (Err(PlanError::NoInterval), 0)),
            }
        }
    }

    #[test]
    fn contradictions_and_later_kinds_are_named() {
        let of = |edit: fn(&mut HealthCheckDefinition)| {
            Plan::of(&definition(edit), Limits::default())
                .map(|plan| plan.kind())
                .map_err(|e| e.to_string())
        };
        assert_eq!(of(|d| d.ttl = seconds(3)), Ok("ttl"));
        assert_eq!(of(|_| ()), Err("TTL must be > 0 for TTL checks".into()));
        assert_eq!(
            of(|d| (d.ttl, d.interval) = (seconds(1), seconds(1))),
            Err("Interval and TTL cannot both be specified".into())
        );
        for (edit, name) in [
            (
                (|d| d.grpc = "x".into()) as fn(&mut HealthCheckDefinition),
                "grpc",
            ),
            (|d| d.script_args = vec!["x".into()], "script"),
            (|d| d.alias_service = "x".into(), "alias"),
        ] {
            let mut d = definition(edit);
            d.interval = seconds(1);
            let error = Plan::of(&d, Limits::default()).unwrap_err().to_string();
            assert!(
                error.contains(name) && error.contains("use a TCP"),
                "{error}"
            );
        }
    }
}
