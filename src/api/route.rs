//! Who answers a request.

use crate::api::cluster::Standing;
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
    Leader(Option<String>),
    /// A server of another datacenter.
    Datacenter(Datacenter),
}

/// Decides who answers. `heard` says whether this server ever heard from a leader: before that even a stale answer would
/// be an empty one.
pub fn route(
    here: &Datacenter,
    asked: &Datacenter,
    consistency: Consistency,
    standing: &Standing,
    heard: bool,
) -> Route {
    if !asked.is_empty() && !asked.as_str().eq_ignore_ascii_case(here.as_str()) {
        return Route::Datacenter(asked.clone());
    }
    if standing.leads || (consistency == Consistency::Stale && heard) {
        return Route::Local;
    }
    Route::Leader(standing.leader.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_reads_stay_here_and_others_go_to_the_leader() {
        let here = Datacenter::from("dc1");
        let follower = Standing {
            leads: false,
            leader: Some("10.0.0.1:8300".into()),
        };
        let leader = Standing {
            leads: true,
            ..follower.clone()
        };
        let alone = Standing::default();
        let to_leader = Route::Leader(follower.leader.clone());
        use Consistency::*;
        for (dc, consistency, standing, heard, expected) in [
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
            let got = route(&here, &Datacenter::from(dc), consistency, standing, heard);
            assert_eq!(got, expected, "{dc} {consistency:?} {standing:?}");
        }
    }
}
