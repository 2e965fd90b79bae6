//! leasehold with a recorder of its metrics.

use anyhow::{Context, Result};
use metrics_util::debugging::DebuggingRecorder;

use super::{Peer, leasehold};

pub(super) fn connect(url: &str) -> Result<Box<dyn Peer>> {
    DebuggingRecorder::new()
        .install()
        .ok()
        .context("another recorder is installed")?;

    leasehold::connect(url)
}
