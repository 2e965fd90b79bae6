//! The stores that need no service, one module each, and what stores on a network share.

#[cfg(all(feature = "file", target_os = "linux"))]
pub(crate) mod file;
#[cfg(all(feature = "file", not(target_os = "linux")))]
#[path = "stores/no_file.rs"]
pub(crate) mod file;
pub(crate) mod lazy;
pub(crate) mod memory;
#[allow(
    missing_docs,
    clippy::must_use_candidate,
    reason = "the store crates use it, and no user"
)]
pub(crate) mod url;

#[cfg(all(feature = "file", target_os = "linux"))]
pub use file::{File, FileBuilder};
pub use memory::Memory;
