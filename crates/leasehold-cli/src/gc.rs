//! `leasehold gc`: removes the files that free locks have left.

use std::io::{self, Write};

use anyhow::Result;

use crate::commands::Store;
use crate::exit::{Exit, print_error};

pub(crate) async fn collect(store: &Store) -> Result<Exit> {
    let cleanup = store.open().await?.remove_unused().await?;
    for error in &cleanup.skipped {
        print_error(error);
    }

    let mut out = io::stdout().lock();
    writeln!(
        out,
        "removed the files of {} free locks; {} locks are in use; {} were skipped",
        cleanup.removed,
        cleanup.in_use,
        cleanup.skipped.len()
    )?;
    Ok(Exit::DONE)
}
