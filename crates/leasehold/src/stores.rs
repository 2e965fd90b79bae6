//! The places where locks can be kept, one module each: the only code that knows a service.

#[cfg(feature = "file")]
mod file;
mod memory;

#[cfg(feature = "file")]
pub use file::File;
pub use memory::Memory;
