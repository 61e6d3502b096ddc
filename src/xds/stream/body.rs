//! The bytes of one stream: requests out of the request body, pieces of responses into the response body.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http_body::Frame;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use prost::Message;
use tonic::Status;

use crate::xds::frame::{Deframer, FrameError};
use crate::xds::server::{OwedBy, Peer, Shared};
use crate::xds::session::{Protocol, Request};
use crate::xds::source::Source;
use crate::xds::stream::{Purpose, drive, now};
use crate::xds::wire::{DeltaRequest, SotwRequest};

/// Bytes that are handed out at a time: a frame of HTTP/2.
const PART: usize = 16 * 1024;

/// The response body of one stream.
pub(crate) struct StreamBody {
    driver: Option<Pin<Box<dyn Future<Output = Status> + Send>>>,
    queue: Queue,
    status: Option<Status>,
    /// Where to note what the client is given, and how long it may take to make room for more.
    owed: Option<(OwedBy, Duration)>,
}

pub(super) type Queue = Arc<Mutex<VecDeque<Bytes>>>;

impl StreamBody {
    /// A stream that serves the requests in `body`.
    pub(crate) fn new<S: Source>(
        shared: Arc<Shared<S>>,
        purpose: Purpose,
        peer: Option<Peer>,
        body: axum::body::Body,
    ) -> Self {
        let owed = peer.as_ref().map(|peer| peer.owed.stream());
        let owed = owed.map(|owed| (owed, shared.settings.send_timeout));
        let peer = peer.map(|peer| peer.address);
        let queue = Queue::default();
        let inbound = Inbound {
            body,
            deframer: Deframer::new(shared.settings.message_limit),
            protocol: purpose.protocol,
        };
        let driver = drive(shared, purpose, peer, inbound, Arc::clone(&queue));
        Self {
            driver: Some(Box::pin(driver)),
            queue,
            status: None,
            owed,
        }
    }

    /// A body that ends at once.
    pub(crate) fn refused(status: Status) -> Self {
        Self {
            driver: None,
            queue: Queue::default(),
            status: Some(status),
            owed: None,
        }
    }
}

impl http_body::Body for StreamBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // There was room for what was handed out last.
        if let Some((owed, _)) = &self.owed {
            owed.settled();
        }
        loop {
            let part = next_part(&mut self.queue.lock());
            if let Some(part) = part {
                if let Some((owed, patience)) = &self.owed {
                    owed.until(now().instant + *patience);
                }
                return Poll::Ready(Some(Ok(Frame::data(part))));
            }
            if let Some(status) = self.status.take() {
                return Poll::Ready(Some(trailers(&status).map(Frame::trailers)));
            }
            let Some(driver) = &mut self.driver else {
                return Poll::Ready(None);
            };
            match driver.as_mut().poll(cx) {
                Poll::Ready(status) => {
                    self.driver = None;
                    self.status = Some(status);
                }
                Poll::Pending if self.queue.lock().is_empty() => return Poll::Pending,
                Poll::Pending => {}
            }
        }
    }
}

/// The next part of what is to be sent. Long pieces go in parts: HTTP/2 takes what it is given whatever the client has room
/// for, and asks for more only when there is room.
fn next_part(queue: &mut VecDeque<Bytes>) -> Option<Bytes> {
    let mut piece = queue.pop_front()?;
    if piece.len() > PART {
        let part = piece.split_to(PART);
        queue.push_front(piece);
        return Some(part);
    }
    Some(piece)
}

/// The trailers that end a stream.
///
/// Only what must be is percent-encoded in the message (gRPC over HTTP/2, "Percent-Encoded"): Envoy logs it undecoded, and
/// tonic encodes each space.
fn trailers(status: &Status) -> Result<HeaderMap, Status> {
    let mut trailers = HeaderMap::new();
    status.add_header(&mut trailers)?;
    if let Ok(message) = HeaderValue::from_str(&percent_encoded(status.message()))
        && !message.is_empty()
    {
        trailers.insert(Status::GRPC_MESSAGE, message);
    }
    Ok(trailers)
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// The requests of one stream.
pub(super) struct Inbound {
    body: axum::body::Body,
    deframer: Deframer,
    protocol: Protocol,
}

impl Inbound {
    /// The next request; `None` when the client has said everything. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Request>, Status> {
        loop {
            let message = self.deframer.next_message().map_err(|error| match error {
                FrameError::Compressed => Status::unimplemented(error.to_string()),
                FrameError::TooLong(..) => Status::resource_exhausted(error.to_string()),
                FrameError::Truncated => Status::invalid_argument(error.to_string()),
            })?;
            if let Some(message) = message {
                return decode(self.protocol, message).map(Some);
            }
            match self.body.frame().await {
                None => {
                    let ended = self.deframer.end();
                    return ended
                        .map(|()| None)
                        .map_err(|error| Status::invalid_argument(error.to_string()));
                }
                Some(Err(error)) => return Err(Status::cancelled(error.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.deframer.push(data);
                    }
                }
            }
        }
    }
}

/// Reads one message.
fn decode(protocol: Protocol, message: Bytes) -> Result<Request, Status> {
    let request = match protocol {
        Protocol::Sotw => SotwRequest::decode(message).map(Request::Sotw),
        Protocol::Delta => DeltaRequest::decode(message).map(Request::Delta),
    };
    request.map_err(|error| Status::invalid_argument(format!("the request is malformed: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_trailers_are_legible_and_come_back_as_they_were() {
        let text = "no \"gw\" on (a, b): 100% \u{e4}\n";
        let trailers = trailers(&Status::not_found(text)).unwrap();
        let message = &trailers[Status::GRPC_MESSAGE];
        assert_eq!(message, "no \"gw\" on (a, b): 100%25 %C3%A4%0A");
        let read = Status::from_header_map(&trailers).unwrap();
        assert_eq!((read.code(), read.message()), (tonic::Code::NotFound, text));
        let empty = super::trailers(&Status::ok("")).unwrap();
        assert_eq!(empty.len(), 1);
    }
}
