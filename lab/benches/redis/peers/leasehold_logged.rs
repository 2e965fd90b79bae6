//! leasehold with a subscriber that formats the spans and events of `info` as lines of text.

use std::io;

use anyhow::Result;
use tracing::Level;
use tracing_subscriber::FmtSubscriber;

use super::{Peer, leasehold};

pub(super) fn connect(url: &str) -> Result<Box<dyn Peer>> {
    let subscriber = FmtSubscriber::builder()
        .with_max_level(Level::INFO)
        .with_ansi(false)
        .with_writer(io::sink)
        .finish();
    tracing::subscriber::set_global_default(subscriber)?;

    leasehold::connect(url)
}
