//! Keeps what outsiders can cause at will from flooding the log.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::time::Duration;
use std::time::Instant;

/// At most one line about the same thing from the same address in this time.
const QUIET_TIME: Duration = Duration::from_secs(10);

/// Things that are told apart; beyond that, all further ones share one line.
const REMEMBERED: usize = 64;

/// What was said, and how often it was not said since.
#[derive(Debug)]
struct Said {
    at: Instant,
    unsaid: u64,
}

/// Decides which messages about misbehaving peers are said: each of them once in ten seconds for each address.
#[derive(Debug, Default)]
pub struct Quiet {
    said: Mutex<HashMap<(IpAddr, String), Said>>,
}

impl Quiet {
    /// Whether to say `what` about `peer` at `now`, and how often it was not said since the last time.
    pub fn speak(&self, now: Instant, peer: IpAddr, what: &str) -> Option<u64> {
        let mut said = self.said.lock();
        let mut key = (peer.to_canonical(), what.to_owned());
        if said.len() >= REMEMBERED && !said.contains_key(&key) {
            said.retain(|_, said| now.saturating_duration_since(said.at) < QUIET_TIME);
            if said.len() >= REMEMBERED {
                key = (Ipv4Addr::UNSPECIFIED.into(), String::new());
            }
        }
        match said.get_mut(&key) {
            Some(said) if now.saturating_duration_since(said.at) < QUIET_TIME => {
                said.unsaid += 1;
                None
            }
            Some(said) => {
                said.at = now;
                Some(std::mem::take(&mut said.unsaid))
            }
            None => {
                said.insert(key, Said { at: now, unsaid: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u16) -> IpAddr {
        let [high, low] = n.to_be_bytes();
        Ipv4Addr::new(10, 0, high, low).into()
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an arbitrary start of time")]
    fn each_thing_is_said_once_in_a_while_and_floods_share_a_line() {
        let (quiet, mut now) = (Quiet::default(), Instant::now());
        assert_eq!(quiet.speak(now, address(1), "a"), Some(0));
        assert_eq!(quiet.speak(now, address(1), "a"), None);
        assert_eq!(quiet.speak(now, address(1), "b"), Some(0));
        assert_eq!(quiet.speak(now, address(2), "a"), Some(0));
        now += QUIET_TIME;
        assert_eq!(quiet.speak(now, address(1), "a"), Some(1));
        let flood = (0..5000).filter(|n| quiet.speak(now, address(*n), "c").is_some());
        let spoken = flood.count();
        assert!(spoken <= REMEMBERED + 1, "{spoken} lines");
        assert!(
            quiet.said.lock().len() <= REMEMBERED + 1,
            "memory is bounded"
        );
        now += QUIET_TIME;
        assert!(quiet.speak(now, address(4999), "c").is_some());
    }
}
