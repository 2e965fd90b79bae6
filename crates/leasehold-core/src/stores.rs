//! The stores that need no service, one module each, and what stores on a network share.

#[cfg(feature = "file")]
pub(crate) mod file;
pub(crate) mod memory;
#[cfg(feature = "tls")]
pub(crate) mod tls;
#[allow(
    missing_docs,
    clippy::must_use_candidate,
    reason = "the store crates use it, and no user"
)]
pub(crate) mod url;

#[cfg(feature = "file")]
pub use file::{File, FileBuilder};
pub use memory::Memory;
