//! On other systems than Linux, nothing is known of other processes.

use std::convert::Infallible;
use std::io;

#[derive(Debug)]
pub(super) struct LockedFile(Infallible);

impl LockedFile {
    pub(super) fn create(_client: &str) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(super) fn has_ended(_client: &str) -> io::Result<bool> {
    Ok(false)
}
