//! Joining until it works: one loop for every pool.

use crate::discovery::resolve::Environment;
use crate::discovery::resolve::Found;
use crate::discovery::resolve::resolve;
use crate::discovery::schedule::Next;
use crate::discovery::schedule::Schedule;
use crate::discovery::source::Source;
use tokio_util::sync::CancellationToken;
use tracing::info;
use tracing::warn;

/// What to join.
#[derive(Debug, Clone)]
pub struct RetryJoin {
    /// The pool's name in messages: `LAN` or `WAN`.
    pub pool: &'static str,
    /// Where its members are.
    pub sources: Vec<Source>,
    /// The port of addresses that come without one.
    pub default_port: u16,
    /// When to try again.
    pub schedule: Schedule,
}

/// How joining ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// This many members were contacted.
    Members(usize),
    /// There is nothing to join: no source is configured.
    Nothing,
    /// The server stops.
    Stopped,
}

/// The schedule allows no further attempt; the agent ends with this text, as Consul does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("agent: max join {pool} retry exhausted, exiting. The last attempt failed: {reason}")]
pub struct Exhausted {
    /// The pool.
    pub pool: &'static str,
    /// All reasons for which the last attempt failed.
    pub reason: String,
}

/// Resolves and joins until one member was contacted, the schedule ends, or `stop` is cancelled. `join` answers how many
/// members were contacted, or why none was.
///
/// # Errors
/// The schedule allows no further attempt.
pub async fn retry_join<J, F>(
    what: &RetryJoin,
    environment: &Environment,
    mut join: J,
    stop: &CancellationToken,
) -> Result<Joined, Exhausted>
where
    J: FnMut(Vec<Found>) -> F,
    F: Future<Output = Result<usize, String>>,
{
    if what.sources.is_empty() {
        return Ok(Joined::Nothing);
    }
    let mut failed: u32 = 0;
    loop {
        let attempt = stop.run_until_cancelled(attempt(what, environment, &mut join));
        let reason = match attempt.await {
            None => return Ok(Joined::Stopped),
            Some(Ok(members)) => {
                info!(pool = what.pool, members, "joined");
                return Ok(Joined::Members(members));
            }
            Some(Err(reason)) => reason,
        };
        failed = failed.saturating_add(1);
        match what.schedule.after(failed) {
            Next::GiveUp => {
                return Err(Exhausted {
                    pool: what.pool,
                    reason,
                });
            }
            Next::Wait(interval) => {
                warn!(pool = what.pool, retry_in = ?interval, "no member could be joined: {reason}");
                let sleep = tokio::time::sleep(interval);
                if stop.run_until_cancelled(sleep).await.is_none() {
                    return Ok(Joined::Stopped);
                }
            }
        }
    }
}

/// One attempt; `Err` has all reasons in one line.
async fn attempt<J, F>(
    what: &RetryJoin,
    environment: &Environment,
    join: &mut J,
) -> Result<usize, String>
where
    J: FnMut(Vec<Found>) -> F,
    F: Future<Output = Result<usize, String>>,
{
    let resolution = resolve(&what.sources, what.default_port, environment).await;
    let mut reasons: Vec<_> = resolution
        .problems
        .iter()
        .map(ToString::to_string)
        .collect();
    if resolution.found.is_empty() {
        reasons.push("No servers to join".to_owned());
        return Err(reasons.join("; "));
    }
    match join(resolution.found).await {
        Ok(members) if members > 0 => {
            for problem in &resolution.problems {
                warn!(pool = what.pool, "a source of members failed: {problem}");
            }
            Ok(members)
        }
        Ok(_) => {
            reasons.push("no member answered".to_owned());
            Err(reasons.join("; "))
        }
        Err(reason) => {
            reasons.push(reason);
            Err(reasons.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    const INTERVAL: Duration = Duration::from_millis(20);

    fn what(texts: &[&str], retry_max: u32) -> RetryJoin {
        RetryJoin {
            pool: "LAN",
            sources: texts.iter().map(|t| Source::parse(t).unwrap()).collect(),
            default_port: 8301,
            schedule: Schedule::retries(INTERVAL, retry_max),
        }
    }

    /// A name that the first `failures` lookups do not find.
    fn late_name(failures: u32) -> Environment {
        let asked = Arc::new(AtomicU32::new(0));
        Environment {
            lookup: Arc::new(move |_| {
                let now = asked.fetch_add(1, Ordering::Relaxed);
                let found = vec!["10.0.0.9".parse().unwrap()];
                let result = match now < failures {
                    true => Err(std::io::Error::other("no such host")),
                    false => Ok(found),
                };
                Box::pin(async move { result })
            }),
            ..Environment::system()
        }
    }

    #[tokio::test]
    async fn a_name_that_answers_late_is_joined_then() {
        let began = tokio::time::Instant::now();
        let join = async |found: Vec<Found>| {
            assert_eq!(found[0].address.to_string(), "10.0.0.9:8301");
            Ok(found.len())
        };
        let stop = CancellationToken::new();
        let joined = retry_join(&what(&["db.example"], 0), &late_name(3), join, &stop).await;
        assert_eq!(joined, Ok(Joined::Members(1)));
        assert!(began.elapsed() >= INTERVAL * 3);
    }

    #[tokio::test]
    async fn the_last_failed_attempt_ends_the_agent() {
        let mut attempts = 0;
        let join = |_| {
            attempts += 1;
            async { Err("10.0.0.1:8301: connection refused".to_owned()) }
        };
        let stop = CancellationToken::new();
        let what = what(&["10.0.0.1", "db.example"], 2);
        let error = retry_join(&what, &late_name(99), join, &stop).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "agent: max join LAN retry exhausted, exiting. The last attempt failed: db.example: \"db.example\" is not \
             resolved: no such host; check the name and this machine's DNS; 10.0.0.1:8301: connection refused"
        );
        assert_eq!(attempts, 3);
    }

    #[tokio::test]
    async fn nothing_found_is_a_failed_attempt_and_stopping_ends_the_wait() {
        let never = async |_: Vec<Found>| -> Result<usize, String> { panic!("nothing to join") };
        let stop = CancellationToken::new();
        let error = retry_join(&what(&["db.example"], 1), &late_name(99), never, &stop).await;
        assert!(error.unwrap_err().reason.ends_with("No servers to join"));
        let after = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(INTERVAL * 5).await;
            after.cancel();
        });
        let joined = retry_join(&what(&["db.example"], 0), &late_name(99), never, &stop).await;
        assert_eq!(joined, Ok(Joined::Stopped));
        let joined = retry_join(&what(&[], 0), &late_name(99), never, &stop).await;
        assert_eq!(joined, Ok(Joined::Nothing));
    }
}
