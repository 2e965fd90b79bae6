//! Spans, events and metrics: their names, their fields, and that they contain no secret.
#![allow(missing_docs, clippy::unwrap_used)]

mod capture;
mod document;
mod meters;
mod spans;
