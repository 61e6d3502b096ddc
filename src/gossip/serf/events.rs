//! User events: what somebody tells all members.

use std::time::Instant;

use bytes::Bytes;
use rand::RngCore;

use crate::gossip::serf::Error;
use crate::gossip::serf::Output;
use crate::gossip::serf::Serf;
use crate::gossip::swim::UserQueue;
use crate::gossip::wire::Blob;
use crate::gossip::wire::SerfMessage;
use crate::gossip::wire::serf::PastEvent;
use crate::gossip::wire::serf::UserEvent;

/// Most bytes of an event, as name and payload and as a message: serf's default of `UserEventSizeLimit`.
const MAX_EVENT: usize = 512;

impl Serf {
    /// Tells all members something. With `coalesce`, whoever receives several events of one name soon after each other
    /// may take only the last one.
    ///
    /// # Errors
    /// When name and payload together are too long.
    pub fn user_event(
        &mut self,
        now: Instant,
        name: &str,
        payload: Bytes,
        coalesce: bool,
        rng: &mut dyn RngCore,
    ) -> Result<(), Error> {
        let event = UserEvent {
            ltime: self.event_clock.time(),
            name: name.to_owned(),
            payload: Blob(payload),
            coalesce,
        };
        let message = SerfMessage::UserEvent(event.clone()).encode()?;
        let size = message.len().max(name.len() + event.payload.len());
        if size > MAX_EVENT {
            return Err(Error::TooLong {
                what: "event",
                name: name.to_owned(),
                size,
                limit: MAX_EVENT,
            });
        }
        self.hear_event(event);
        self.broadcast(UserQueue::Events, &message, None);
        self.settle(now, rng);
        Ok(())
    }

    /// Says whether it is news.
    pub(super) fn hear_event(&mut self, event: UserEvent) -> bool {
        let what = PastEvent {
            name: event.name.clone(),
            payload: event.payload.clone(),
        };
        let news = self.event_clock.witness(event.ltime)
            && self.events.hear(self.event_clock.time(), event.ltime, what);
        if news {
            self.outputs.push_back(Output::UserEvent(event));
        }
        news
    }
}
