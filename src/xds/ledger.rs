//! What one client asked for and holds, of one type.
//!
//! Nearly always a client holds exactly what it is to have. So the ledger is a shared [`ResourceSet`] (the base) plus
//! the few names that deviate from it: its size does not depend on the number of resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::xds::resources::{Change, Resource, ResourceSet, Version};

/// What a client holds under one name.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Held {
    /// Nothing was said about the name.
    #[default]
    Nothing,
    /// The client knows that there is no such resource.
    Absent,
    /// The client acknowledged this resource.
    Has(Arc<Resource>),
    /// The client says that it has this version from an earlier stream.
    Claimed(Version),
    /// The client must be told again. It may have the resource or not; the last good one is kept, if there was one.
    Unsure(Option<Arc<Resource>>),
}

impl Held {
    /// The same name, to be told again.
    pub fn unsure(self) -> Self {
        match self {
            Self::Has(good) => Self::Unsure(Some(good)),
            Self::Unsure(good) => Self::Unsure(good),
            Self::Nothing | Self::Absent | Self::Claimed(_) => Self::Unsure(None),
        }
    }

    /// The last resource that the client accepted, as far as this stream knows.
    pub const fn good(&self) -> Option<&Arc<Resource>> {
        match self {
            Self::Has(good) | Self::Unsure(Some(good)) => Some(good),
            Self::Nothing | Self::Absent | Self::Claimed(_) | Self::Unsure(None) => None,
        }
    }

    /// Whether the client is known to hold exactly this resource.
    pub fn is(&self, resource: &Resource) -> bool {
        match self {
            Self::Has(held) => **held == *resource,
            Self::Claimed(version) => *version == resource.version(),
            Self::Nothing | Self::Absent | Self::Unsure(_) => false,
        }
    }
}

/// What is known about one name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Whether the client subscribed to this very name.
    pub named: bool,
    /// What the client holds.
    pub held: Held,
}

/// Subscriptions and holdings of one client for one type.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The client holds all of these, but for the names in `over`.
    base: ResourceSet,
    /// Whether the client subscribed to the names in `base` one by one.
    base_named: bool,
    over: BTreeMap<Arc<str>, Entry>,
}

impl Ledger {
    /// What is known about `name`.
    pub fn entry(&self, name: &str) -> Entry {
        match self.over.get(name) {
            Some(entry) => entry.clone(),
            None => self.base_entry(name),
        }
    }

    fn base_entry(&self, name: &str) -> Entry {
        match self.base.get(name) {
            Some(resource) => Entry {
                named: self.base_named,
                held: Held::Has(Arc::clone(resource)),
            },
            None => Entry::default(),
        }
    }

    /// Changes what is known about `name`.
    pub fn update(&mut self, name: &Arc<str>, change: impl FnOnce(&mut Entry)) {
        let mut entry = self.entry(name);
        change(&mut entry);
        self.set(name, entry);
    }

    fn set(&mut self, name: &Arc<str>, entry: Entry) {
        if entry == self.base_entry(name) {
            self.over.remove(name);
        } else {
            self.over.insert(Arc::clone(name), entry);
        }
    }

    /// How many names deviate from the shared base: the memory that this ledger alone uses.
    pub fn deviations(&self) -> usize {
        self.over.len()
    }

    /// All names for which the client may hold something else than `wanted`, in order. For the other names of `wanted`
    /// either the client holds the same, or (unless it subscribes to everything) did not ask.
    pub fn candidates(&self, wanted: &ResourceSet, wildcard: bool) -> Vec<Arc<str>> {
        let mut names: Vec<_> = self.over.keys().cloned().collect();
        if wildcard || !self.base.is_empty() {
            let changed = wanted.changes(&self.base).map(|change| match change {
                Change::Put(resource) | Change::Gone(resource) => resource.name(),
            });
            names.extend(changed.cloned());
            names.sort_unstable();
            names.dedup();
        }
        names
    }

    /// All names that the client subscribed to one by one, in order.
    pub fn named(&self) -> Vec<Arc<str>> {
        let over = self.over.iter().filter(|(_, entry)| entry.named);
        let mut names: Vec<_> = over.map(|(name, _)| Arc::clone(name)).collect();
        if self.base_named {
            let base = self.base.iter().map(|resource| resource.name());
            names.extend(
                base.filter(|name| !self.over.contains_key(&***name))
                    .cloned(),
            );
            names.sort_unstable();
        }
        names
    }

    /// Every name about which anything is known.
    pub fn known(&self) -> Vec<Arc<str>> {
        let base = self.base.iter().map(|resource| resource.name());
        let mut names: Vec<_> = base.chain(self.over.keys()).cloned().collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Describes the same knowledge relative to `wanted`, if that takes no more room. Also lets go of old generations.
    pub fn rebase(&mut self, wanted: &ResourceSet, wildcard: bool) {
        let settled = self.base.shares(wanted) && self.over.is_empty();
        // A debugging stream that asks for few of many names is described best by these names alone.
        let few = !wildcard && self.base.is_empty() && self.over.len() * 2 < wanted.len();
        if settled || few {
            return;
        }
        let mut next = Self {
            base: wanted.clone(),
            base_named: !wildcard,
            over: BTreeMap::new(),
        };
        let names = if next.base_named == self.base_named {
            self.candidates(wanted, true)
        } else {
            let mut names = self.known();
            names.extend(wanted.iter().map(|resource| Arc::clone(resource.name())));
            names
        };
        for name in names {
            let mut entry = self.entry(&name);
            if let Some(resource) = wanted.get(&name)
                && entry.held.is(resource)
            {
                entry.held = Held::Has(Arc::clone(resource));
            }
            next.set(&name, entry);
        }
        if next.over.len() <= self.over.len() {
            *self = next;
        }
    }

    /// Forgets everything that the client did not subscribe to by name (the end of a wildcard subscription).
    pub fn keep_named(&mut self) {
        let named = self.named();
        let old = std::mem::take(self);
        for name in named {
            self.set(&name, old.entry(&name));
        }
    }

    /// Marks everything that the client holds as to be told again.
    pub fn doubt_all(&mut self) {
        for name in self.known() {
            self.update(&name, |entry| {
                entry.held = std::mem::take(&mut entry.held).unsure();
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;

    use super::*;
    use crate::xds::resources::ResourceType;

    fn set(items: &[(&str, &str)]) -> ResourceSet {
        let resource = |(name, content): &(&str, &str)| {
            let message = Cluster {
                name: (*name).to_owned(),
                alt_stat_name: (*content).to_owned(),
                ..Default::default()
            };
            Resource::new(ResourceType::Cluster, *name, &message)
        };
        items.iter().map(resource).collect()
    }

    fn hold_all(ledger: &mut Ledger, set: &ResourceSet, named: bool) {
        for resource in set.iter() {
            ledger.update(resource.name(), |entry| {
                entry.named = named;
                entry.held = Held::Has(Arc::clone(resource));
            });
        }
    }

    #[test]
    fn a_client_in_step_costs_nothing() {
        for wildcard in [true, false] {
            let mut ledger = Ledger::default();
            let wanted = set(&[("a", "1"), ("b", "1"), ("c", "1")]);
            hold_all(&mut ledger, &wanted, !wildcard);
            assert_eq!(ledger.deviations(), 3);
            ledger.rebase(&wanted, wildcard);
            assert_eq!(ledger.deviations(), 0);
            assert!(ledger.candidates(&wanted, wildcard).is_empty());
            let next = set(&[("a", "1"), ("b", "2"), ("d", "1")]);
            let names = ledger.candidates(&next, wildcard);
            assert_eq!(names, ["b", "c", "d"].map(Arc::from));
        }
    }

    #[test]
    fn a_client_with_few_names_is_not_described_by_all_the_others() {
        let wanted = set(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
        let mut ledger = Ledger::default();
        ledger.update(&"a".into(), |entry| entry.named = true);
        ledger.rebase(&wanted, false);
        assert_eq!(ledger.deviations(), 1);
        assert_eq!(ledger.named(), [Arc::from("a")]);
        assert_eq!(ledger.candidates(&wanted, false), [Arc::from("a")]);
    }

    #[test]
    fn rebasing_changes_no_answer() {
        let one = set(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let two = set(&[("a", "1"), ("b", "2"), ("d", "1")]);
        let mut ledger = Ledger::default();
        hold_all(&mut ledger, &one, true);
        ledger.update(&"a".into(), |entry| entry.held = Held::Absent);
        ledger.update(&"c".into(), |entry| entry.named = false);
        let names = ["a", "b", "c", "d"];
        let before = names.map(|name| ledger.entry(name));
        for set in [&one, &two, &one] {
            for wildcard in [true, false] {
                ledger.rebase(set, wildcard);
                assert_eq!(names.map(|name| ledger.entry(name)), before);
            }
        }
        assert_eq!(ledger.named(), ["a", "b"].map(Arc::from));
    }
}
