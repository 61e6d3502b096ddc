//! In which order a proxy learns of a change: make before break.
//!
//! New clusters come first, then their endpoints at once (Envoy acknowledges a cluster only when it is warm), then the
//! listeners that use them; what is gone goes last, when nothing uses it any more.

use crate::xds::resources::ResourceType;

/// Which part of a difference a step sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// New and changed resources, and answers for names that do not exist.
    Put,
    /// Resources that the proxy has and that are gone.
    Remove,
}

/// One step of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends one part of one type's difference, unless a response of that type is unacknowledged.
    Send(ResourceType, &'static [Stage]),
    /// Goes no further while one of these types has something unacknowledged.
    Acknowledged(&'static [ResourceType]),
    /// Goes no further while one of these types has something refused: the old listener may still use old clusters.
    Accepted(&'static [ResourceType]),
}

const BOTH: &[Stage] = &[Stage::Put, Stage::Remove];

/// The steps of every flush.
pub const ORDER: &[Step] = &[
    Step::Send(ResourceType::Cluster, &[Stage::Put]),
    // Right after the clusters: a changed cluster stays cold until its endpoints come again.
    Step::Send(ResourceType::Endpoint, &[Stage::Put]),
    Step::Send(ResourceType::Secret, &[Stage::Put]),
    // A listener must not name a cluster that is not there yet.
    Step::Acknowledged(&[
        ResourceType::Cluster,
        ResourceType::Endpoint,
        ResourceType::Secret,
    ]),
    Step::Send(ResourceType::Listener, BOTH),
    Step::Send(ResourceType::Route, BOTH),
    // A cluster must not go while a listener or route still names it.
    Step::Acknowledged(&[ResourceType::Listener, ResourceType::Route]),
    Step::Accepted(&[ResourceType::Listener, ResourceType::Route]),
    Step::Send(ResourceType::Cluster, &[Stage::Remove]),
    Step::Send(ResourceType::Endpoint, &[Stage::Remove]),
    Step::Send(ResourceType::Secret, &[Stage::Remove]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_every_type_is_sent_exactly_once() {
        for kind in ResourceType::ALL {
            let mut stages = Vec::new();
            for step in ORDER {
                if let Step::Send(of, parts) = step
                    && *of == kind
                {
                    stages.extend_from_slice(parts);
                }
            }
            assert_eq!(stages, BOTH, "{kind:?}");
        }
    }

    #[test]
    fn a_parent_comes_before_its_child() {
        let place = |kind| {
            ORDER
                .iter()
                .position(|step| matches!(step, Step::Send(of, _) if *of == kind))
        };
        for parent in ResourceType::ALL {
            if let Some(child) = parent.child() {
                assert!(place(parent) < place(child), "{parent:?}");
            }
        }
    }
}
