//! The programs of `src/bin`, as processes, with real servers.
#![allow(missing_docs)]

mod accounts;
mod checked;
mod elected;
mod guarded;
mod lock_layer;
mod orders;
mod page;
mod program;
mod scheduled;
