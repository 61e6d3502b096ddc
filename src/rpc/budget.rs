//! How many bytes of requests one address may have here at a time.
//!
//! Each request is bounded by itself ([`crate::rpc::MAX_BODY`]), but a connection has thousands of streams and a stream
//! many calls. What is counted are bytes that have arrived and whose call is not answered yet.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use crate::net::Reading;

/// More bytes of requests than an address may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the requests of this address that are not answered yet have more than {limit} bytes; send fewer or smaller ones at a time"
)]
pub(super) struct Exceeded {
    limit: usize,
}

/// The bytes of all requests of one address. Cloning it shares the count.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    held: Arc<AtomicUsize>,
    limit: usize,
}

/// The budgets of all addresses that have a connection.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    held: HashMap<IpAddr, Weak<AtomicUsize>>,
}

impl Budgets {
    /// The budget that all connections of `address` share.
    pub(super) fn of(&mut self, address: IpAddr, limit: usize) -> Budget {
        let held = self.held.get(&address).and_then(Weak::upgrade);
        let held = held.unwrap_or_else(|| {
            self.held.retain(|_, held| held.strong_count() > 0);
            let held = Arc::default();
            self.held.insert(address, Arc::downgrade(&held));
            held
        });
        Budget { held, limit }
    }
}

/// The bytes that arrived on one stream; dropping it gives them back.
#[derive(Debug)]
pub(super) struct Share {
    budget: Budget,
    bytes: usize,
    exceeded: Option<Exceeded>,
}

impl Share {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            budget,
            bytes: 0,
            exceeded: None,
        }
    }

    fn take(&mut self, bytes: usize) {
        let before = self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        let limit = self.budget.limit;
        if limit > 0 && before + bytes > limit {
            self.exceeded = Some(Exceeded { limit });
        }
    }

    /// What is wrong once too much has arrived: the stream has no future then.
    pub(super) fn exceeded(&self) -> Option<Exceeded> {
        self.exceeded
    }

    /// The call of a request of so many bytes is answered.
    pub(super) fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

impl Reading for Share {
    fn poll_read(
        &mut self,
        io: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // What arrived last was given on, as it may tell who is to have the error.
        if let Some(exceeded) = self.exceeded {
            return Poll::Ready(Err(io::Error::other(exceeded)));
        }
        let before = buffer.filled().len();
        let read = io.poll_read(cx, buffer);
        self.take(buffer.filled().len().saturating_sub(before));
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_an_address_share_and_give_back() {
        let mut budgets = Budgets::default();
        let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut one = Share::new(budgets.of(a, 100));
        let mut two = Share::new(budgets.of(a, 100));
        let mut other = Share::new(budgets.of(b, 100));
        let fits = |share: &mut Share, bytes| {
            share.take(bytes);
            share.exceeded().is_none()
        };
        assert!(fits(&mut one, 60) && fits(&mut other, 100));
        one.give_back(20);
        assert!(fits(&mut two, 60));
        assert!(!fits(&mut two, 1));
        assert_eq!(two.exceeded(), Some(Exceeded { limit: 100 }));
        drop((one, two));
        assert!(fits(&mut Share::new(budgets.of(a, 100)), 100));
        assert!(fits(&mut Share::new(budgets.of(a, 0)), usize::MAX >> 1));
        drop(other);
        budgets.of("10.0.0.3".parse().unwrap(), 1);
        assert_eq!(budgets.held.len(), 1, "nothing is remembered of who left");
    }
}
