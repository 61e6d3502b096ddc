//! The one blocking read that every reading verb is made of.

use crate::api::Api;
use crate::api::error::Error;
use crate::api::route::{Consistency, Route, route};
use crate::consensus::{Freshness, Role};
use crate::model::query::ReadRequest;
use crate::model::{Datacenter, Index, QueryMeta, QueryOptions};
use crate::store::{State, Topic};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// A finished read: its facts, and the rows, which are made only when somebody asks for them.
pub struct Answer<T> {
    /// Index, leader and freshness.
    pub meta: QueryMeta,
    rows: Box<dyn FnOnce() -> T + Send>,
}

impl<T> Answer<T> {
    /// The rows of the state that the index belongs to.
    pub fn rows(self) -> T {
        (self.rows)()
    }

    /// Facts and rows.
    pub fn into_parts(self) -> (QueryMeta, T) {
        (self.meta, (self.rows)())
    }
}

/// How long a read waits for a newer index: the client's wish or the default, at most the maximum, plus up to a sixteenth
/// so that clients that started together do not come back together (`jitter` in 0..1).
pub fn wait_time(wish: Duration, default: Duration, max: Duration, jitter: f64) -> Duration {
    let wait = if wish.is_zero() { default } else { wish }.min(max);
    wait + (wait / 16).mul_f64(jitter.clamp(0.0, 1.0))
}

/// Whether a read that wants more than `min` is over. `first` is the index it began with, `applied` the newest index of
/// the whole state: a client that asks for more than that saw a state that was since replaced by an older one.
fn is_over(min: Index, index: Index, first: Index, applied: Index) -> bool {
    min == 0 || index > min || min > applied || index != first
}

impl Api {
    /// Waits until the answer's index is larger than the one the client has, then gives the state it belongs to.
    ///
    /// Wakes only for writes that touch `topics`; also returns when the time is up, when the state is older than the
    /// client's index, or when a restored snapshot replaced it.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader in time.
    pub async fn wait(
        &self,
        datacenter: &Datacenter,
        options: &QueryOptions,
        topics: Vec<Topic>,
        index_of: impl Fn(&State) -> Index,
    ) -> Result<(QueryMeta, Arc<State>), Error> {
        let consistency = self.consistency(options);
        self.reach(datacenter, consistency).await?;
        let store = self.store();
        let min = options.min_query_index;
        if min == 0 {
            let state = store.latest();
            return Ok((self.meta(index_of(&state), consistency), state));
        }
        let settings = self.settings();
        let wait = wait_time(
            options.max_query_time.to_std(),
            settings.default_query_time,
            settings.max_query_time,
            rand::random(),
        );
        let deadline = Instant::now() + wait;
        let mut watch = store.watch(topics);
        let mut first = None;
        loop {
            let state = store.latest();
            let index = index_of(&state).max(1);
            let first = *first.get_or_insert(index);
            if is_over(min, index, first, state.last_index()) || watch.abandoned() {
                return Ok((self.meta(index, consistency), state));
            }
            let woken = tokio::select! {
                () = watch.changed() => true,
                () = sleep_until(deadline) => false,
            };
            // What woke the reader is news; that there is none is for the leader to say.
            if !woken || consistency == Consistency::Consistent {
                self.reach(datacenter, consistency).await?;
            }
            if !woken {
                let state = store.latest();
                return Ok((self.meta(index_of(&state), consistency), state));
            }
        }
    }

    /// A whole read: [`Api::wait`], then rows of the state it ended with.
    pub(crate) async fn read<T: 'static>(
        &self,
        request: &impl ReadRequest,
        topics: Vec<Topic>,
        index_of: impl Fn(&State) -> Index,
        rows: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<Answer<T>, Error> {
        let options = request.options();
        let (meta, state) = self
            .wait(request.datacenter(), &options, topics, index_of)
            .await?;
        Ok(Answer {
            meta,
            rows: Box::new(move || rows(&state)),
        })
    }

    /// Facts about an answer given now. What is as new as the leader's state is the leader's answer, whoever gives it.
    pub(crate) fn meta(&self, index: Index, consistency: Consistency) -> QueryMeta {
        let mut meta = QueryMeta {
            index: index.max(1),
            known_leader: true,
            ..QueryMeta::default()
        };
        if consistency == Consistency::Stale {
            meta.last_contact = self.consensus().last_contact().unwrap_or_default().into();
            meta.known_leader = match &*self.consensus().role().borrow() {
                Role::Leader { .. } => true,
                Role::Follower { leader } => leader.is_some(),
                Role::Candidate | Role::Stopped { .. } => false,
            };
        }
        meta
    }

    /// How fresh an answer must be: as the client wishes, and no staler than it allows.
    fn consistency(&self, options: &QueryOptions) -> Consistency {
        let max = options.max_stale_duration.to_std();
        match Consistency::of(options) {
            Consistency::Stale if max.is_zero() => Consistency::Stale,
            Consistency::Stale => match self.consensus().last_contact() {
                Some(contact) if contact <= max => Consistency::Stale,
                _ => Consistency::Default,
            },
            other => other,
        }
    }

    /// Waits until this server may answer a request: at once for a stale answer, else when its state is as new as the
    /// leader's was at the time of the call.
    ///
    /// # Errors
    /// No path to the datacenter, no leader within the hold time, or leadership not confirmed.
    pub(crate) async fn reach(
        &self,
        datacenter: &Datacenter,
        consistency: Consistency,
    ) -> Result<(), Error> {
        let freshness = match consistency {
            Consistency::Consistent => Freshness::Quorum,
            Consistency::Default | Consistency::Stale => Freshness::Leader,
        };
        let mut patience = self.patience();
        loop {
            let heard = self.consensus().last_contact().is_some();
            let role = patience.role();
            let here = &self.settings().datacenter;
            match route(here, datacenter, consistency, &role, heard) {
                Route::Datacenter(dc) => return Err(Error::NoPath(dc)),
                Route::Local if consistency == Consistency::Stale => return Ok(()),
                Route::Local | Route::Leader(_) => {}
            }
            let caught_up = self.consensus().catch_up(freshness);
            let problem = match timeout_at(patience.deadline, caught_up).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) if error.is_final() => return Err(error.into()),
                Ok(Err(error)) => error.into(),
                Err(_) if consistency == Consistency::Consistent => Error::NotReady,
                Err(_) => Error::NoLeader,
            };
            patience.pause(problem).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_bounded_and_jittered() {
        let secs = Duration::from_secs;
        let (default, max) = (secs(300), secs(600));
        for (wish, jitter, expected) in [
            (Duration::ZERO, 0.0, secs(300)),
            (secs(16), 0.0, secs(16)),
            (secs(16), 1.0, secs(17)),
            (secs(86_400), 0.0, secs(600)),
            (Duration::from_millis(1), 0.0, Duration::from_millis(1)),
        ] {
            assert_eq!(wait_time(wish, default, max, jitter), expected, "{wish:?}");
        }
    }

    #[test]
    fn a_read_ends_for_news_and_for_an_older_state() {
        assert!(is_over(0, 1, 1, 9), "does not block");
        assert!(is_over(5, 6, 6, 9), "newer");
        assert!(!is_over(5, 5, 5, 9), "the same");
        assert!(!is_over(5, 1, 1, 9), "never written, but others were");
        assert!(is_over(99, 5, 5, 9), "from a state that is gone");
        assert!(is_over(5, 4, 5, 9), "the newest row was removed");
    }
}
