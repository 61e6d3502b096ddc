//! Who answers a request.

use crate::consensus::{Peer, Role};
use crate::model::{Datacenter, QueryOptions};

/// How fresh an answer must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// The leader answers from its state.
    #[default]
    Default,
    /// Any server answers.
    Stale,
    /// The leader answers after a majority confirmed that it leads.
    Consistent,
}

impl Consistency {
    /// What the options of a read ask for.
    pub fn of(options: &QueryOptions) -> Self {
        match (options.allow_stale, options.require_consistent) {
            (_, true) => Self::Consistent,
            (true, false) => Self::Stale,
            (false, false) => Self::Default,
        }
    }

    /// The text of `X-Consul-Effective-Consistency`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "leader",
            Self::Stale => "stale",
            Self::Consistent => "consistent",
        }
    }
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// This server.
    Local,
    /// The leader of this datacenter, if there is one.
    Leader(Option<Peer>),
    /// A server of another datacenter.
    Datacenter(Datacenter),
}

/// Decides who answers. `heard` says whether this server ever heard from a leader: before that even a stale answer would
/// be an empty one.
pub fn route(
    here: &Datacenter,
    asked: &Datacenter,
    consistency: Consistency,
    role: &Role,
    heard: bool,
) -> Route {
    if !asked.is_empty() && !asked.as_str().eq_ignore_ascii_case(here.as_str()) {
        return Route::Datacenter(asked.clone());
    }
    if consistency == Consistency::Stale && heard {
        return Route::Local;
    }
    match role {
        Role::Leader { .. } => Route::Local,
        Role::Follower { leader } => Route::Leader(leader.clone()),
        Role::Candidate | Role::Stopped { .. } => Route::Leader(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_reads_stay_here_and_others_go_to_the_leader() {
        let here = Datacenter::from("dc1");
        let peer = Some(Peer::default());
        let follower = Role::Follower {
            leader: peer.clone(),
        };
        let leader = Role::Leader { term: 1 };
        let alone = Role::Candidate;
        let to_leader = Route::Leader(peer);
        use Consistency::*;
        for (dc, consistency, role, heard, expected) in [
            ("", Default, &leader, true, Route::Local),
            ("DC1", Consistent, &leader, true, Route::Local),
            ("dc1", Default, &follower, true, to_leader.clone()),
            ("", Consistent, &follower, true, to_leader.clone()),
            ("", Stale, &follower, true, Route::Local),
            ("", Stale, &follower, false, to_leader),
            ("", Stale, &alone, true, Route::Local),
            ("", Default, &alone, true, Route::Leader(None)),
            ("dc2", Stale, &leader, true, Route::Datacenter("dc2".into())),
        ] {
            let got = route(&here, &Datacenter::from(dc), consistency, role, heard);
            assert_eq!(got, expected, "{dc} {consistency:?} {role:?}");
        }
    }
}
