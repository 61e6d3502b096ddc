//! Addresses that are followed for the life of the process: the gateways of the primary datacenter.

use crate::discovery::resolve::Environment;
use crate::discovery::resolve::Found;
use crate::discovery::resolve::resolve;
use crate::discovery::source::Source;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;
use tracing::warn;

/// The newest addresses, sorted, each once; empty until the first answer.
pub type Addresses = watch::Receiver<Arc<[Found]>>;

/// What to follow.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The configuration key that names the sources, for messages.
    pub key: &'static str,
    /// Where the addresses are.
    pub sources: Vec<Source>,
    /// The port of addresses that come without one.
    pub default_port: u16,
    /// Time between two looks.
    pub interval: Duration,
}

/// Follows sources: the addresses, and the task that keeps them fresh until `stop` is cancelled or nobody looks any more.
///
/// The set is replaced as a whole, only when it really changes (another order is no change); when nothing is found the last
/// set stays (case C011). Sources that cannot change are asked once.
pub fn watch(
    what: Watched,
    environment: Environment,
    stop: CancellationToken,
) -> (Addresses, impl Future<Output = ()> + Send + 'static) {
    let (sender, receiver) = watch::channel(Arc::from([]));
    let task = async move {
        let follow = follow(&what, &environment, &sender);
        let unused = sender.closed();
        tokio::select! {
            () = follow => {}
            () = unused => {}
            () = stop.cancelled() => {}
        }
    };
    (receiver, task)
}

async fn follow(what: &Watched, environment: &Environment, sender: &watch::Sender<Arc<[Found]>>) {
    loop {
        let resolution = resolve(&what.sources, what.default_port, environment).await;
        let mut found = resolution.found;
        found.sort();
        let kept = found.is_empty() && !sender.borrow().is_empty();
        for problem in &resolution.problems {
            warn!(key = what.key, kept, "not found: {problem}");
        }
        if !found.is_empty() {
            publish(what, sender, found);
        }
        let dynamic = what.sources.iter().any(Source::is_dynamic);
        if !dynamic {
            // Only IP addresses: there is nothing to wait for, but whoever looks must be able to go on.
            return std::future::pending().await;
        }
        tokio::time::sleep(what.interval).await;
    }
}

fn publish(what: &Watched, sender: &watch::Sender<Arc<[Found]>>, found: Vec<Found>) {
    sender.send_if_modified(|old| {
        let changed = old[..] != found[..];
        if changed {
            let shown: Vec<_> = found.iter().map(|f| f.address.to_string()).collect();
            info!(key = what.key, addresses = shown.join(" "), "updated");
            *old = found.into();
        }
        changed
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::net::IpAddr;

    type Answer = Arc<Mutex<Vec<IpAddr>>>;

    /// Lookups give the answer of the moment and are counted.
    fn environment(answer: &Answer, asked: watch::Sender<u32>) -> Environment {
        let answer = answer.clone();
        Environment {
            lookup: Arc::new(move |_| {
                let now = answer.lock().clone();
                asked.send_modify(|count| *count += 1);
                Box::pin(async move { Ok(now) })
            }),
            ..Environment::system()
        }
    }

    fn set(answer: &Answer, ips: &[&str]) {
        *answer.lock() = ips.iter().map(|ip| ip.parse().unwrap()).collect();
    }

    fn shown(addresses: &Addresses) -> Vec<String> {
        let now = addresses.borrow();
        now.iter().map(|f| f.address.to_string()).collect()
    }

    /// Case C011: a changed record is followed, another order is no change, and a failure keeps the last set (C117).
    #[tokio::test]
    async fn a_name_is_followed() {
        let answer = Answer::default();
        set(&answer, &["10.0.0.2", "10.0.0.1"]);
        let what = Watched {
            key: "primary_gateways",
            sources: vec![Source::parse("gw.example:8443").unwrap()],
            default_port: 443,
            interval: Duration::from_millis(5),
        };
        let (stop, asked) = (CancellationToken::new(), watch::Sender::new(0));
        let mut rounds = asked.subscribe();
        let (mut addresses, task) = watch(what, environment(&answer, asked), stop.clone());
        let task = tokio::spawn(task);
        addresses.changed().await.unwrap();
        assert_eq!(shown(&addresses), ["10.0.0.1:8443", "10.0.0.2:8443"]);
        for same in [&["10.0.0.1", "10.0.0.2"][..], &[]] {
            set(&answer, same);
            let seen = *rounds.borrow();
            // The second lookup from here on begins after the first one's answer was dealt with.
            rounds.wait_for(|count| *count >= seen + 3).await.unwrap();
            assert!(!addresses.has_changed().unwrap(), "{same:?}");
        }
        set(&answer, &["10.0.0.3"]);
        addresses.changed().await.unwrap();
        assert_eq!(shown(&addresses), ["10.0.0.3:8443"]);
        stop.cancel();
        task.await.unwrap();
    }
}
