//! What configuration files define: put in force at start, and anew at every reload.

use crate::local::agent::{Error, Local, now, to_its_end};
use crate::local::definition::{CheckDefinition, ServiceDefinition};
use crate::local::state::{Configured, Source};
use crate::model::catalog::StringMap;

impl Local {
    /// Judges what configuration files define, by itself and beside what is registered.
    ///
    /// # Errors
    /// Every problem.
    pub fn judge(
        &self,
        services: Vec<ServiceDefinition>,
        checks: Vec<CheckDefinition>,
    ) -> Result<Configured, Vec<Error>> {
        let (mut new, mut problems) = (Configured::default(), Vec::new());
        let from = Source::Configuration;
        for service in services {
            match self.prepare_service(service, from) {
                Ok(service) => new.services.push(service),
                Err(error) => problems.push(error),
            }
        }
        for check in checks {
            match self.prepare_check(check, from) {
                Ok(check) => new.checks.push(check),
                Err(error) => problems.push(error),
            }
        }
        let misfits = self.inner.state.lock().misfits(&new);
        problems.extend(misfits.into_iter().map(Error::Refused));
        if problems.is_empty() {
            Ok(new)
        } else {
            Err(problems)
        }
    }

    /// Puts in force what configuration files define, in place of what they defined before. What requests registered
    /// stays, unless it has the id of something defined now: the data directory forgets that. Whatever is defined as
    /// before goes on undisturbed.
    ///
    /// # Errors
    /// Something registered meanwhile stands in the way, or a file cannot be removed; nothing is changed then.
    pub async fn configure(&self, new: Configured) -> Result<(), Error> {
        let local = self.clone();
        to_its_end(async move { local.put_configured(new).await }).await
    }

    async fn put_configured(&self, new: Configured) -> Result<(), Error> {
        let _order = self.inner.order.lock().await;
        let (services, defined, going) = {
            let state = self.inner.state.lock();
            if let Some(misfit) = state.misfits(&new).into_iter().next() {
                return Err(misfit.into());
            }
            state.no_longer_kept(&new)
        };
        self.with_files(move |files| {
            going
                .iter()
                .try_for_each(|check| files.remove_check(check))?;
            defined
                .iter()
                .try_for_each(|check| files.remove_definition(check))?;
            services
                .iter()
                .try_for_each(|service| files.remove_service(service))
        })
        .await?;
        let changed = {
            let mut state = self.inner.state.lock();
            let changed = state.configure(new, now(), &mut rand::rng())?;
            self.load_waiting(&mut state);
            changed
        };
        for what in changed {
            tracing::info!("by configuration: {what}");
        }
        self.services_changed();
        Ok(())
    }

    /// Takes over what a reload may change besides: whether the output of checks is thrown away, and the node's metadata.
    pub fn tune(&self, discard_output: bool, meta: StringMap) {
        self.inner.state.lock().discard_output(discard_output);
        self.inner.identity.rcu(|old| {
            let mut new = (**old).clone();
            new.meta.clone_from(&meta);
            new
        });
    }
}
