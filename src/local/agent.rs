//! The handle callers use: registers, reports, answers. The shell around [`LocalState`].

mod configure;
mod restart;

use crate::local::agent::restart::Waiting;
use crate::local::checks::{Limits, Report};
use crate::local::config::{Config, Identity};
use crate::local::definition::useless_federation_mark;
use crate::local::definition::{CheckDefinition, DefinitionError, ServiceDefinition};
use crate::local::files::{FileError, Files, StoredCheck, StoredService};
use crate::local::state::{
    LocalCheck, LocalService, LocalState, NewCheck, NewService, Refused, Rules, Source,
};
use crate::model::catalog::META_WAN_FEDERATION;
use crate::model::{CheckId, CheckStatus, NodeService, Secret, ServiceId, ServiceKind};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{Notify, watch};

/// Why a registration or a report is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The definition is wrong.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// It does not fit what is registered.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It could not be kept; nothing was changed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Services and checks registered with this server. Cloning it shares them.
#[derive(Clone)]
pub struct Local {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) config: Config,
    /// As in the configuration, with the metadata of the last reload.
    identity: ArcSwap<Identity>,
    pub(super) state: Mutex<LocalState>,
    /// Wakes the sync loop.
    pub(super) changed: Notify,
    /// Counts changes of services, for those who wait for one.
    services: watch::Sender<u64>,
    files: Option<Files>,
    /// One registration at a time, so that files and state change in the same order.
    order: tokio::sync::Mutex<()>,
    /// What the data directory held about checks and has to wait for the services of the configuration.
    waiting: Mutex<Waiting>,
    /// Reported statuses that are not kept yet.
    unsaved: Mutex<BTreeSet<CheckId>>,
}

impl Local {
    /// Loads what the data directory holds. Files that cannot be read are returned with what is wrong with them; the rest
    /// is loaded. To be called before [`Local::configure`].
    ///
    /// # Errors
    /// The data directory cannot be written.
    pub fn open(config: Config) -> Result<(Self, Vec<FileError>), FileError> {
        let files = config.data_dir.as_deref().map(Files::open).transpose()?;
        let rules = Rules {
            limits: config.limits,
            check_update_interval: config.check_update_interval,
            output_max: config.output_max,
            discard_output: config.discard_output,
        };
        let state = LocalState::new(&config.identity, rules);
        let local = Self {
            inner: Arc::new(Inner {
                identity: ArcSwap::from_pointee(config.identity.clone()),
                config,
                state: Mutex::new(state),
                changed: Notify::new(),
                services: watch::Sender::new(0),
                files,
                order: tokio::sync::Mutex::new(()),
                waiting: Mutex::default(),
                unsaved: Mutex::default(),
            }),
        };
        let problems = local.load();
        Ok((local, problems))
    }

    fn prepare(&self, definition: CheckDefinition, source: Source) -> Result<NewCheck, Error> {
        Ok(NewCheck {
            plan: definition.plan(self.inner.config.limits)?,
            definition,
            source,
        })
    }

    /// Judges a service by itself and names its checks.
    fn prepare_service(
        &self,
        mut definition: ServiceDefinition,
        source: Source,
    ) -> Result<NewService, Error> {
        definition.validate(self.inner.config.limits)?;
        definition.complete();
        warn_about_meta(&definition.service);
        let ServiceDefinition {
            service,
            checks,
            token,
            ..
        } = definition;
        let checks = name_checks(&service, checks)
            .into_iter()
            .map(|check| self.prepare(check, source))
            .collect::<Result<_, _>>()?;
        Ok(NewService {
            service,
            token,
            checks,
        })
    }

    /// Judges a check that stands in no service's definition, by itself.
    fn prepare_check(
        &self,
        mut definition: CheckDefinition,
        source: Source,
    ) -> Result<NewCheck, Error> {
        definition.validate(self.inner.config.limits)?;
        if definition.id.is_empty() {
            definition.id = definition.name.as_str().into();
        }
        self.prepare(definition, source)
    }

    /// Registers a service and its checks. With `replace_checks`, checks of an earlier registration that are not among
    /// the new ones go.
    ///
    /// # Errors
    /// The definition breaks a rule, or it cannot be kept.
    pub async fn register_service(
        &self,
        definition: ServiceDefinition,
        replace_checks: bool,
    ) -> Result<(), Error> {
        let local = self.clone();
        to_its_end(async move { local.put_service(definition, replace_checks).await }).await
    }

    async fn put_service(
        &self,
        definition: ServiceDefinition,
        replace_checks: bool,
    ) -> Result<(), Error> {
        let NewService {
            service,
            token,
            checks,
        } = self.prepare_service(definition, Source::Request)?;
        let _order = self.inner.order.lock().await;
        let ids = checks.iter().map(|check| &check.definition.id);
        let apart = self.inner.state.lock().tell_apart(Some(&service.id), ids);
        apart?;
        let obsolete = if replace_checks {
            self.obsolete_checks(&service.id, &checks)
        } else {
            Vec::new()
        };
        self.keep_service(&service, &token, &checks, &obsolete)
            .await?;
        let now = now();
        {
            let mut state = self.inner.state.lock();
            tracing::info!(service = %service.id, kind = service.kind.as_str(), "service registered");
            state.put_service(service, token, Source::Request);
            for check in checks {
                state.put_check(check, now, &mut rand::rng())?;
            }
            for check in &obsolete {
                state.remove_check(check);
            }
        }
        self.services_changed();
        Ok(())
    }

    fn obsolete_checks(&self, service: &ServiceId, new: &[NewCheck]) -> Vec<CheckId> {
        let state = self.inner.state.lock();
        let old = state.checks_of(service.as_str());
        old.map(|row| row.check.check_id.clone())
            .filter(|id| new.iter().all(|check| check.definition.id != *id))
            .collect()
    }

    async fn keep_service(
        &self,
        service: &NodeService,
        token: &Secret,
        checks: &[NewCheck],
        obsolete: &[CheckId],
    ) -> Result<(), Error> {
        let service = StoredService {
            service: service.clone(),
            token: token.clone(),
        };
        let stored = |check: &NewCheck| StoredCheck {
            definition: check.definition.clone(),
        };
        let checks: Vec<StoredCheck> = checks.iter().map(stored).collect();
        let obsolete = obsolete.to_vec();
        self.with_files(move |files| files.put(Some(&service), &checks, &obsolete))
            .await
    }

    /// Removes a service and its checks. Answers whether there was one.
    ///
    /// # Errors
    /// Its files cannot be removed.
    pub async fn deregister_service(&self, id: &ServiceId) -> Result<bool, Error> {
        let (local, id) = (self.clone(), id.clone());
        to_its_end(async move { local.drop_service(&id).await }).await
    }

    async fn drop_service(&self, id: &ServiceId) -> Result<bool, Error> {
        let _order = self.inner.order.lock().await;
        let checks: Vec<CheckId> = {
            let state = self.inner.state.lock();
            if state.service(id.as_str()).is_none() {
                return Ok(false);
            }
            let checks = state.checks_of(id.as_str());
            checks.map(|row| row.check.check_id.clone()).collect()
        };
        let service = id.clone();
        self.with_files(move |files| {
            checks
                .iter()
                .try_for_each(|check| files.remove_check(check))?;
            files.remove_service(&service)
        })
        .await?;
        self.inner.state.lock().remove_service(id);
        tracing::info!(service = %id, "service deregistered");
        self.services_changed();
        Ok(true)
    }

    /// Registers a check that stands alone or belongs to a registered service.
    ///
    /// # Errors
    /// The definition breaks a rule, its service is not registered here, or it cannot be kept.
    pub async fn register_check(&self, definition: CheckDefinition) -> Result<(), Error> {
        let local = self.clone();
        to_its_end(async move { local.put_check(definition).await }).await
    }

    async fn put_check(&self, definition: CheckDefinition) -> Result<(), Error> {
        let new = self.prepare_check(definition, Source::Request)?;
        let definition = new.definition.clone();
        let _order = self.inner.order.lock().await;
        let service = &definition.service_id;
        let (known, apart) = {
            let state = self.inner.state.lock();
            let known = state.service(service.as_str()).is_some();
            (
                known,
                state.tell_apart(None, std::iter::once(&definition.id)),
            )
        };
        apart?;
        if !service.is_empty() && !known {
            return Err(Refused::NoService(service.clone()).into());
        }
        let stored = StoredCheck { definition };
        self.with_files(move |files| files.put(None, &[stored], &[]))
            .await?;
        let id = new.definition.id.clone();
        let put = self
            .inner
            .state
            .lock()
            .put_check(new, now(), &mut rand::rng());
        put?;
        tracing::info!(check = %id, "check registered");
        self.inner.changed.notify_one();
        Ok(())
    }

    /// Removes a check. Answers whether there was one.
    ///
    /// # Errors
    /// Its files cannot be removed.
    pub async fn deregister_check(&self, id: &CheckId) -> Result<bool, Error> {
        let (local, id) = (self.clone(), id.clone());
        to_its_end(async move { local.drop_check(&id).await }).await
    }

    async fn drop_check(&self, id: &CheckId) -> Result<bool, Error> {
        let _order = self.inner.order.lock().await;
        let check = id.clone();
        self.with_files(move |files| files.remove_check(&check))
            .await?;
        let removed = self.inner.state.lock().remove_check(id);
        if removed {
            tracing::info!(check = %id, "check deregistered");
            self.inner.changed.notify_one();
        }
        Ok(removed)
    }

    /// Takes a service's report about itself.
    ///
    /// # Errors
    /// There is no such check, or this server runs it.
    pub fn report(&self, id: &CheckId, status: CheckStatus, output: String) -> Result<(), Error> {
        let report = Report { status, output };
        {
            let mut state = self.inner.state.lock();
            state.report(id, report, now(), &mut rand::rng())?;
        }
        if self.inner.files.is_some() {
            self.inner.unsaved.lock().insert(id.clone());
        }
        self.inner.changed.notify_one();
        Ok(())
    }

    async fn with_files(
        &self,
        work: impl FnOnce(&Files) -> Result<(), FileError> + Send + 'static,
    ) -> Result<(), Error> {
        let Some(files) = self.inner.files.clone() else {
            return Ok(());
        };
        match tokio::task::spawn_blocking(move || work(&files)).await {
            Ok(result) => Ok(result?),
            // The runtime is going down; the process ends with it.
            Err(_) => Ok(()),
        }
    }

    fn services_changed(&self) {
        self.inner.services.send_modify(|n| *n += 1);
        self.inner.changed.notify_one();
    }

    /// Who this server is.
    pub fn identity(&self) -> Arc<Identity> {
        self.inner.identity.load_full()
    }

    /// Bounds of definitions.
    pub fn limits(&self) -> Limits {
        self.inner.config.limits
    }

    /// All services, in id order.
    pub fn services(&self) -> Vec<LocalService> {
        self.inner.state.lock().services().cloned().collect()
    }

    /// One service.
    pub fn service(&self, id: &str) -> Option<LocalService> {
        self.inner.state.lock().service(id).cloned()
    }

    /// All checks, in id order.
    pub fn checks(&self) -> Vec<LocalCheck> {
        self.inner.state.lock().checks().cloned().collect()
    }

    /// Checks of one service, and those of the node that concern every service.
    pub fn checks_of(&self, service: &str) -> Vec<LocalCheck> {
        let state = self.inner.state.lock();
        let own = state.checks_of(service).cloned();
        let of_node = state.checks_of("").cloned();
        own.chain(of_node).collect()
    }

    /// Changes whenever a service is registered or deregistered.
    pub fn service_changes(&self) -> watch::Receiver<u64> {
        self.inner.services.subscribe()
    }
}

/// Does the work whether or not the caller waits for it: files and state would part if a client that hangs up stopped it
/// in between, and the next registration could write the same file at the same time.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        // The runtime is going down and this future with it.
        Err(_) => std::future::pending().await,
    }
}

/// Ids and names for checks that have none: `service:<id>`, and with a number when there are several.
fn name_checks(service: &NodeService, checks: Vec<CheckDefinition>) -> Vec<CheckDefinition> {
    let several = checks.len() > 1;
    let named = checks.into_iter().enumerate().map(|(at, mut check)| {
        if check.id.is_empty() {
            check.id = if several {
                format!("service:{}:{}", service.id, at + 1).into()
            } else {
                format!("service:{}", service.id).into()
            };
        }
        if check.name.is_empty() {
            check.name = format!("Service '{}' check", service.service);
        }
        check.service_id = service.id.clone();
        check
    });
    named.collect()
}

fn warn_about_meta(service: &NodeService) {
    if let Some(value) = useless_federation_mark(service)
        && service.kind == ServiceKind::MeshGateway
    {
        tracing::warn!(
            service = %service.id,
            value,
            "meta {META_WAN_FEDERATION} counts only with the value \"1\": this gateway is no way to the servers"
        );
    }
}

/// The shell's clock; tokio's, so that tests can stop it.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
