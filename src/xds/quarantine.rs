//! One refused resource must not hold up the others.
//!
//! Envoy answers a response as a whole. After a NACK the culprit is found by its name in Envoy's text, else by sending
//! halves of the response until one resource is left. That one is *refused*: these very bytes are not sent again until
//! they change, except for a slow retry, because Envoy may refuse for reasons outside of the resource (a port in use).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::xds::resources::{Resource, ResourceSet, Version};

/// First pause before a refused resource is tried again unchanged; doubled after each refusal.
pub const FIRST_RETRY: Duration = Duration::from_secs(30);
/// Longest pause before a refused resource is tried again unchanged.
pub const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// Why and when a resource was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The refused version.
    pub version: Version,
    /// Envoy's words.
    pub detail: Arc<str>,
    /// The last time it was refused.
    pub at: Instant,
    /// How often this version was refused.
    pub attempts: u32,
    retry_at: Instant,
    retrying: bool,
}

/// What one client refused of one type, and the search for the culprit of the last refusal.
#[derive(Clone, Debug, Default)]
pub struct Quarantine {
    refused: BTreeMap<Arc<str>, Refusal>,
    /// Names to be sent by themselves, group by group. Names are in order within a group.
    trial: VecDeque<Vec<Arc<str>>>,
}

impl Quarantine {
    /// Whether `resource` may be part of the next response.
    pub fn allows(&self, resource: &Resource) -> bool {
        let refused = self.refused.get(resource.name());
        if refused.is_some_and(|r| r.version == resource.version() && !r.retrying) {
            return false;
        }
        match self.trial.front() {
            Some(group) => group.binary_search(resource.name()).is_ok(),
            None => true,
        }
    }

    /// Whether a search is going on.
    pub fn is_searching(&self) -> bool {
        !self.trial.is_empty()
    }

    /// Goes on to the next group of the search.
    pub fn next_group(&mut self) {
        self.trial.pop_front();
    }

    /// The refusal that is in force for this resource.
    pub fn refusal(&self, name: &str) -> Option<&Refusal> {
        self.refused.get(name)
    }

    /// Everything that is refused, in the order of names.
    pub fn refusals(&self) -> impl Iterator<Item = (&Arc<str>, &Refusal)> {
        self.refused.iter()
    }

    /// Whether nothing is refused.
    pub fn is_empty(&self) -> bool {
        self.refused.is_empty()
    }

    /// Forgets refusals of versions that nobody wants any more.
    pub fn prune(&mut self, wanted: &ResourceSet) {
        self.refused.retain(|name, refusal| {
            wanted
                .get(name)
                .is_some_and(|resource| resource.version() == refusal.version)
        });
    }

    /// The client took the resource with this name, or asks for it again: nothing is held against it any more.
    pub fn release(&mut self, name: &str) {
        self.refused.remove(name);
    }

    /// The client refused a response that carried `puts` (in the order of names). Gives those that are now refused.
    /// If the response was a group of the search, call [`Self::next_group`] before.
    pub fn nack(
        &mut self,
        now: Instant,
        puts: &[Arc<Resource>],
        detail: &Arc<str>,
    ) -> Vec<Arc<Resource>> {
        let guilty = |resource: &&Arc<Resource>| puts.len() == 1 || names(detail, resource.name());
        let culprits: Vec<_> = puts.iter().filter(guilty).cloned().collect();
        for culprit in &culprits {
            self.refuse(now, culprit, detail);
        }
        let mut rest: Vec<_> = puts.iter().map(|r| Arc::clone(r.name())).collect();
        if culprits.is_empty() {
            let second = rest.split_off(rest.len() / 2);
            self.try_first(second);
        } else {
            rest.retain(|name| !culprits.iter().any(|culprit| culprit.name() == name));
        }
        self.try_first(rest);
        culprits
    }

    fn try_first(&mut self, group: Vec<Arc<str>>) {
        if !group.is_empty() {
            self.trial.push_front(group);
        }
    }

    fn refuse(&mut self, now: Instant, resource: &Resource, detail: &Arc<str>) {
        let earlier = self.refused.get(resource.name());
        let earlier = earlier.filter(|refusal| refusal.version == resource.version());
        let attempts = earlier
            .map_or(0, |refusal| refusal.attempts)
            .saturating_add(1);
        let pause = FIRST_RETRY.saturating_mul(1 << (attempts - 1).min(10));
        let refusal = Refusal {
            version: resource.version(),
            detail: Arc::clone(detail),
            at: now,
            attempts,
            retry_at: now + pause.min(LONGEST_RETRY),
            retrying: false,
        };
        self.refused.insert(Arc::clone(resource.name()), refusal);
    }

    /// When [`Self::tick`] has something to do.
    pub fn next_retry(&self) -> Option<Instant> {
        let waiting = self.refused.values().filter(|refusal| !refusal.retrying);
        waiting.map(|refusal| refusal.retry_at).min()
    }

    /// Lets refused resources be tried again whose pause is over, each by itself. Gives whether there are any.
    pub fn tick(&mut self, now: Instant) -> bool {
        let mut any = false;
        for (name, refusal) in &mut self.refused {
            if !refusal.retrying && refusal.retry_at <= now {
                refusal.retrying = true;
                self.trial.push_back(vec![Arc::clone(name)]);
                any = true;
            }
        }
        any
    }
}

/// Whether an error text of Envoy blames the resource called `name`.
///
/// Texts quote a name or put it after `cluster(s) ` or `listener(s) `. A bare word counts only if it looks like one of
/// our names: a service called `update` must not be blamed for "Error adding/updating".
fn names(text: &str, name: &str) -> bool {
    if name.is_empty() {
        return false;
    }
    let telling = name.contains(['.', ':', '/', '~']);
    text.match_indices(name).any(|(at, _)| {
        let (before, rest) = text.split_at(at);
        let after = rest.get(name.len()..).unwrap_or_default();
        let quoted = |mark: char| before.ends_with(mark) && after.starts_with(mark);
        let whole = !before.ends_with(is_name_char) && !starts_longer_name(after);
        quoted('\'') || quoted('"') || whole && (telling || before.ends_with("(s) "))
    })
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '~' | '/')
}

/// A name may be followed by a full stop or a colon of the sentence, but not by more of a name.
fn starts_longer_name(after: &str) -> bool {
    let mut chars = after.chars();
    match chars.next() {
        Some('.' | ':') => chars.next().is_some_and(char::is_alphanumeric),
        Some(c) => is_name_char(c),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;

    use super::*;
    use crate::xds::resources::ResourceType;

    fn resources(names: &[&str]) -> Vec<Arc<Resource>> {
        let one = |name: &&str| {
            Arc::new(Resource::new(
                ResourceType::Cluster,
                *name,
                &Cluster::default(),
            ))
        };
        names.iter().map(one).collect()
    }

    #[expect(clippy::disallowed_methods, reason = "an arbitrary start of time")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn names_are_found_in_the_texts_of_envoy() {
        let text = "Error adding/updating cluster(s) bad.dc1.consul: LOGICAL_DNS clusters must have a single endpoint";
        assert!(names(text, "bad.dc1.consul"));
        assert!(!names(text, "dc1.consul"));
        assert!(!names(text, "bad.dc1"));
        assert!(!names(text, "clusters"));
        assert!(!names(text, "updating"));
        assert!(names("Error adding/updating cluster(s) web: no", "web"));
        assert!(names("unknown cluster 'web'", "web"));
        let text =
            "Error adding/updating listener(s) default:0.0.0.0:8443: cannot bind '0.0.0.0:8443'";
        assert!(names(text, "default:0.0.0.0:8443"));
        assert!(!names(text, "default:0.0.0.0:844"));
        assert!(!names(text, ""));
    }

    #[test]
    fn without_a_name_halves_are_tried_until_one_is_left() {
        let bad = "c05";
        let all: Vec<String> = (0..100).map(|n| format!("c{n:02}")).collect();
        let all = resources(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let mut quarantine = Quarantine::default();
        let mut sent = all.clone();
        let mut accepted = Vec::new();
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 20, "a search in halves");
            quarantine.next_group();
            if sent.iter().any(|r| &**r.name() == bad) {
                quarantine.nack(start(), &sent, &"constraint".into());
            } else {
                accepted.extend(sent.iter().map(|r| Arc::clone(r.name())));
            }
            let had = |r: &Arc<Resource>| accepted.contains(r.name());
            let due = all.iter().filter(|r| !had(r) && quarantine.allows(r));
            sent = due.cloned().collect();
            if sent.is_empty() && !quarantine.is_searching() {
                break;
            }
        }
        assert_eq!(accepted.len(), 99);
        let refused: Vec<_> = quarantine.refusals().map(|(name, _)| &**name).collect();
        assert_eq!(refused, [bad]);
    }

    #[test]
    fn a_named_culprit_is_refused_and_the_rest_goes_on() {
        let all = resources(&["a.x", "b.x", "c.x"]);
        let mut quarantine = Quarantine::default();
        let text = "Error adding/updating cluster(s) b.x: no".into();
        let refused = quarantine.nack(start(), &all, &text);
        assert_eq!(refused, [Arc::clone(&all[1])]);
        let allowed: Vec<_> = all.iter().map(|r| quarantine.allows(r)).collect();
        assert_eq!(allowed, [true, false, true]);
    }

    #[test]
    fn a_refused_resource_is_retried_ever_more_slowly() {
        let one = resources(&["a"]);
        let mut quarantine = Quarantine::default();
        let mut now = start();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            quarantine.next_group();
            quarantine.nack(now, &one, &"no".into());
            assert!(!quarantine.allows(&one[0]));
            let next = quarantine.next_retry().unwrap();
            pauses.push((next - now).as_secs());
            assert!(!quarantine.tick(next - Duration::from_millis(1)));
            now = next;
            assert!(quarantine.tick(now));
            assert!(quarantine.allows(&one[0]));
        }
        assert_eq!(pauses, [30, 60, 120, 240, 480, 600, 600]);
    }
}
