//! The HTTP server: each wire format is one file over one internal request.

mod error;
mod generation;
mod request;
