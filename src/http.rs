//! The HTTP API: JSON, headers and error texts over `api`.
