//! What goes to the data directory for the next start, and comes from it.

use crate::local::agent::{Local, now};
use crate::local::checks::Report;
use crate::local::files::{FileError, StoredStatus};
use crate::local::state::{LocalState, NewCheck, Source};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the data directory held and [`Local::load`] could not place.
#[derive(Default)]
pub(super) struct Waiting {
    /// Checks whose service is none of those that requests registered.
    checks: Vec<NewCheck>,
    /// All reported statuses.
    statuses: Vec<StoredStatus>,
}

impl Local {
    /// Takes what the data directory holds. Returns the files that were skipped.
    pub(super) fn load(&self) -> Vec<FileError> {
        let Some(files) = &self.inner.files else {
            return Vec::new();
        };
        let loaded = files.load();
        let (now, wall) = (now(), unix_seconds());
        let mut state = self.inner.state.lock();
        let mut waiting = self.inner.waiting.lock();
        for stored in loaded.services {
            state.put_service(stored.service, stored.token, Source::Request);
        }
        for stored in loaded.checks {
            let id = stored.definition.id.clone();
            let put = self
                .prepare(stored.definition, Source::Request)
                .and_then(|new| {
                    let service = &new.definition.service_id;
                    if service.is_empty() || state.service(service.as_str()).is_some() {
                        return Ok(state.put_check(new, now, &mut rand::rng())?);
                    }
                    waiting.checks.push(new);
                    Ok(())
                });
            if let Err(error) = put {
                tracing::warn!(check = %id, %error, "a kept check is not loaded");
            }
        }
        restore(&mut state, &loaded.statuses, now, wall);
        waiting.statuses = loaded.statuses;
        loaded.problems
    }

    /// Loads the checks that waited for services of the configuration, and what was reported about those and its own.
    pub(super) fn load_waiting(&self, state: &mut LocalState) {
        let Waiting { checks, statuses } = std::mem::take(&mut *self.inner.waiting.lock());
        let now = now();
        for new in checks {
            let id = new.definition.id.clone();
            if state.check(id.as_str()).is_some() {
                continue; // The configuration defines it.
            }
            if let Err(error) = state.put_check(new, now, &mut rand::rng()) {
                tracing::warn!(check = %id, %error, "a kept check is not loaded");
            }
        }
        restore(state, &statuses, now, unix_seconds());
    }

    /// Keeps reported statuses that are not kept yet. The sync loop calls it at most once a second and when it ends.
    pub(in crate::local) async fn save_statuses(&self) {
        let unsaved = std::mem::take(&mut *self.inner.unsaved.lock());
        if unsaved.is_empty() {
            return;
        }
        let wall = unix_seconds();
        let statuses: Vec<StoredStatus> = {
            let (state, now) = (self.inner.state.lock(), now());
            let rows = unsaved.iter().filter_map(|id| {
                let row = state.check(id.as_str())?;
                let left = state
                    .report_counts_until(id)?
                    .saturating_duration_since(now);
                Some(StoredStatus {
                    check_id: id.clone(),
                    status: row.check.status,
                    output: row.check.output.clone(),
                    expires: wall + left.as_secs(),
                })
            });
            rows.collect()
        };
        let saved = self
            .with_files(move |files| statuses.iter().try_for_each(|s| files.put_status(s)))
            .await;
        if let Err(error) = saved {
            tracing::warn!(%error, "reported statuses are not kept over a restart");
        }
    }

    /// Whether reports wait to be kept.
    pub(in crate::local) fn has_unsaved(&self) -> bool {
        !self.inner.unsaved.lock().is_empty()
    }
}

/// Brings back what was reported before the restart and counts still.
fn restore(state: &mut LocalState, statuses: &[StoredStatus], now: Instant, wall: u64) {
    for stored in statuses {
        if let Some(left) = stored.expires.checked_sub(wall) {
            let report = Report {
                status: stored.status,
                output: stored.output.clone(),
            };
            let left = Duration::from_secs(left);
            state.restore_report(&stored.check_id, report, left, now);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "expiry times in files must outlive the process"
)]
fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}
