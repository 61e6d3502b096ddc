//! Why a call got no answer.

use crate::codec;

/// Why a call was not answered, as the server side says it. The texts are those of Go's net/rpc.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The handler refuses or failed; the text goes to the caller as it is, and the stream stays usable.
    #[error("{0}")]
    Failed(String),
    /// The service part of the method's name is unknown; the stream is closed after the reply, as Go does.
    #[error("rpc: can't find service {0}")]
    UnknownService(String),
    /// The service is known, its method is not; the stream is closed after the reply.
    #[error("rpc: can't find method {0}")]
    UnknownMethod(String),
    /// The method's name has no dot; the stream is closed after the reply.
    #[error("rpc: service/method request ill-formed: {0}")]
    IllFormed(String),
    /// The body is not what the method takes; the stream is closed after the reply.
    #[error("{0}")]
    BadBody(codec::Error),
}

impl RpcError {
    /// An error whose text is sent to the caller.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// Whether the stream must end after the reply: the next request on it may not be where we look for it.
    pub fn ends_stream(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

impl From<codec::Error> for RpcError {
    fn from(error: codec::Error) -> Self {
        Self::BadBody(error)
    }
}
