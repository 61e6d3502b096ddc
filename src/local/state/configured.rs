//! What configuration files define: how it fits what is there, and how it takes its place.

use crate::local::state::{LocalState, NewCheck, NewService, Refused, Source, apart};
use crate::model::{CheckId, NodeService, ServiceId};
use rand::Rng;
use std::collections::BTreeSet;
use std::time::Instant;

/// Services and checks of configuration files, each judged by itself.
#[derive(Debug, Default)]
pub struct Configured {
    /// Services with their checks.
    pub services: Vec<NewService>,
    /// Checks that stand in no service's definition.
    pub checks: Vec<NewCheck>,
}

impl Configured {
    fn service_ids(&self) -> BTreeSet<&ServiceId> {
        self.services.iter().map(|new| &new.service.id).collect()
    }

    fn all_checks(&self) -> impl Iterator<Item = &NewCheck> {
        let of_services = self.services.iter().flat_map(|new| &new.checks);
        of_services.chain(&self.checks)
    }

    fn check_ids(&self) -> BTreeSet<&CheckId> {
        self.all_checks().map(|new| &new.definition.id).collect()
    }
}

impl LocalState {
    /// What of the new definitions the catalog could not tell from each other or from what requests registered, and checks
    /// of services that are not there.
    pub fn misfits(&self, new: &Configured) -> Vec<Refused> {
        let mut services = new.service_ids();
        services.extend(self.services.values().filter_map(|row| {
            let stays = row.source == Source::Request;
            stays.then_some(&row.service.id)
        }));
        let mut checks = new.check_ids();
        checks.extend(self.checks.iter().filter_map(|(id, row)| {
            let service = &row.check.service_id;
            let stays =
                row.source == Source::Request && (service.is_empty() || services.contains(service));
            stays.then_some(id)
        }));
        let of_services = new.services.iter().map(|new| &new.service.id);
        let of_services =
            of_services.map(|id| apart(id.as_str(), services.iter().map(|other| other.as_str())));
        let of_checks = new.all_checks().map(|check| {
            let definition = &check.definition;
            let service = &definition.service_id;
            if !service.is_empty() && !services.contains(service) {
                return Err(Refused::NoService(service.clone()));
            }
            apart(
                definition.id.as_str(),
                checks.iter().map(|other| other.as_str()),
            )
        });
        of_services
            .chain(of_checks)
            .filter_map(Result::err)
            .collect()
    }

    /// What the data directory has to forget: services and checks that are defined now, and, with their reported status,
    /// checks that go.
    pub fn no_longer_kept(&self, new: &Configured) -> (Vec<ServiceId>, Vec<CheckId>, Vec<CheckId>) {
        let services = new.service_ids().into_iter().cloned().collect();
        let defined = new.check_ids();
        let mut going = self.going_checks(new);
        for service in self.going_services(new) {
            let own = self.checks_of(service.as_str());
            going.extend(own.map(|row| row.check.check_id.clone()));
        }
        (services, defined.into_iter().cloned().collect(), going)
    }

    fn going_checks(&self, new: &Configured) -> Vec<CheckId> {
        let stay = new.check_ids();
        let rows = self.checks.iter();
        rows.filter(|(id, row)| row.source == Source::Configuration && !stay.contains(id))
            .map(|(id, _)| id.clone())
            .collect()
    }

    fn going_services(&self, new: &Configured) -> Vec<ServiceId> {
        let stay = new.service_ids();
        let rows = self.services.iter();
        rows.filter(|(id, row)| row.source == Source::Configuration && !stay.contains(id))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Puts the new definitions in the place of those that an earlier configuration had. What is defined as before keeps
    /// its timers. Returns what has changed, for logs.
    ///
    /// # Errors
    /// A check names a service that is not there; [`LocalState::misfits`] tells before.
    pub fn configure(
        &mut self,
        new: Configured,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Result<Vec<String>, Refused> {
        let mut changed = Vec::new();
        for id in self.going_services(&new) {
            self.remove_service(&id);
            changed.push(format!("service {id} deregistered"));
        }
        for id in self.going_checks(&new) {
            self.remove_check(&id);
            changed.push(format!("check {id} deregistered"));
        }
        let mut checks = new.checks;
        for service in new.services {
            if !self.is_configured(&service) {
                changed.push(format!("service {} registered", service.service.id));
                self.put_service(service.service, service.token, Source::Configuration);
            }
            checks.extend(service.checks);
        }
        for check in checks {
            let old = self.checks.get(&check.definition.id);
            let same = old.is_some_and(|old| {
                old.source == Source::Configuration && *old.definition == check.definition
            });
            if !same {
                changed.push(format!("check {} registered", check.definition.id));
                self.put_check(check, now, rng)?;
            }
        }
        Ok(changed)
    }

    /// Whether a service stands already as it is defined. Tags that the catalog may override are no difference.
    fn is_configured(&self, new: &NewService) -> bool {
        let Some(old) = self.services.get(&new.service.id) else {
            return false;
        };
        let overridden = old.service.enable_tag_override && new.service.enable_tag_override;
        let same = if overridden {
            let tags = old.service.tags.clone();
            *old.service
                == NodeService {
                    tags,
                    ..new.service.clone()
                }
        } else {
            *old.service == new.service
        };
        same && old.source == Source::Configuration && old.token == new.token
    }
}
