//! Sets of resources that share what they have in common.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use crate::xds::resources::{Resource, Version};

/// One difference between two sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change<'a> {
    /// The resource is new, or its version is.
    Put(&'a Arc<Resource>),
    /// The resource is gone.
    Gone(&'a Arc<Resource>),
}

/// What [`ResourceSet::evolve`] could keep: the share of reused encodings is `kept / (kept + fresh)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Resources whose earlier bytes are used again.
    pub kept: usize,
    /// Resources with new bytes.
    pub fresh: usize,
}

/// All resources of one type for one proxy: an immutable map, ordered by name, cheap to clone and to compare.
#[derive(Clone, Default)]
pub struct ResourceSet {
    map: OrdMap<Arc<str>, Arc<Resource>>,
    /// Sum of the members' shares: independent of order, kept up to date in O(1) per change.
    hash: u128,
    joined: Arc<Joined>,
}

/// The members' bytes one after another, made when the first stream needs all of them.
#[derive(Default)]
struct Joined {
    delta: OnceLock<Bytes>,
    sotw: OnceLock<Bytes>,
}

impl ResourceSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many resources there are.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The version of the whole set: equal sets have equal hashes, on every server.
    pub fn hash(&self) -> Version {
        Version::from(self.hash)
    }

    /// Whether both hold the same resources at the same versions, in O(1).
    pub fn same(&self, other: &Self) -> bool {
        self.hash == other.hash && self.len() == other.len()
    }

    /// Whether both are the same value in memory, which tells more than [`Self::same`]: holding one holds the other.
    pub fn shares(&self, other: &Self) -> bool {
        self.map.ptr_eq(&other.map)
    }

    /// All [`Resource::delta_field`]s in one piece that all streams share.
    pub fn joined_delta(&self) -> Bytes {
        let join = || concat(self.iter().map(|resource| resource.delta_field()));
        self.joined.delta.get_or_init(join).clone()
    }

    /// All [`Resource::sotw_field`]s in one piece that all streams share.
    pub fn joined_sotw(&self) -> Bytes {
        let join = || concat(self.iter().map(|resource| resource.sotw_field()));
        self.joined.sotw.get_or_init(join).clone()
    }

    /// The resource with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        self.map.get(name)
    }

    /// Whether there is a resource with this name.
    pub fn contains(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// The resources in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.map.values()
    }

    /// Adds or replaces one resource. An equal one stays as it is, so its bytes remain shared; gives whether it did.
    pub fn put(&mut self, resource: impl Into<Arc<Resource>>) -> bool {
        let resource = resource.into();
        let old = self.map.get(&*resource.name).map(|old| old.share);
        if old == Some(resource.share) {
            return true;
        }
        let without = self.hash.wrapping_sub(old.unwrap_or_default());
        self.hash = without.wrapping_add(resource.share);
        self.forget_joined();
        self.map.insert(Arc::clone(&resource.name), resource);
        false
    }

    /// Removes and returns one resource.
    pub fn remove(&mut self, name: &str) -> Option<Arc<Resource>> {
        let old = self.map.remove(name)?;
        self.hash = self.hash.wrapping_sub(old.share);
        self.forget_joined();
        Some(old)
    }

    fn forget_joined(&mut self) {
        let joined = Arc::get_mut(&mut self.joined);
        if joined.is_none_or(|j| j.delta.get().is_some() || j.sotw.get().is_some()) {
            self.joined = Arc::default();
        }
    }

    /// The set that holds exactly `next`, sharing with this one all that is equal.
    pub fn evolve(&self, next: impl IntoIterator<Item = Resource>) -> (Self, Reuse) {
        let mut set = self.clone();
        let mut reuse = Reuse::default();
        let mut names = Self::default();
        for resource in next {
            let resource = Arc::new(resource);
            names.put(Arc::clone(&resource));
            if set.put(resource) {
                reuse.kept += 1;
            } else {
                reuse.fresh += 1;
            }
        }
        if set.len() > names.len() {
            let gone = set.iter().filter(|old| !names.contains(&old.name));
            let gone: Vec<_> = gone.map(|old| Arc::clone(&old.name)).collect();
            for name in gone {
                set.remove(&name);
            }
        }
        (set, reuse)
    }

    /// What leads from `old` to this set, in the order of names. Costs little where the two share their content.
    pub fn changes<'a>(&'a self, old: &'a Self) -> impl Iterator<Item = Change<'a>> {
        old.map.diff(&self.map).map(|item| match item {
            DiffItem::Add(_, new) | DiffItem::Update { new: (_, new), .. } => Change::Put(new),
            DiffItem::Remove(_, old) => Change::Gone(old),
        })
    }
}

impl FromIterator<Resource> for ResourceSet {
    fn from_iter<I: IntoIterator<Item = Resource>>(resources: I) -> Self {
        let mut set = Self::default();
        for resource in resources {
            set.put(resource);
        }
        set
    }
}

impl fmt::Debug for ResourceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

fn concat(parts: impl Iterator<Item = Bytes>) -> Bytes {
    let parts: Vec<_> = parts.collect();
    Bytes::from(parts.concat())
}
