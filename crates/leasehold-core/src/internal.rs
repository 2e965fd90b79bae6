//! What the store crates and `leasehold` need, and users do not. It may change at any time.

pub use crate::claimant_info::ENCODED;
pub use crate::engine::{hold_from, safe_duration};
pub use crate::runtime::backlog::{Backlog, Repeat, repeat};
pub use crate::runtime::backoff::Backoff;
pub use crate::runtime::clock::BootInstant;
pub use crate::runtime::panics::without_panic;
pub use crate::store_kind::{StoreKind, UnopenedStore};
#[cfg(feature = "file")]
pub use crate::stores::file::{FILE, SYSTEM};
pub use crate::stores::lazy::LazyStore;
pub use crate::stores::memory::MEMORY;
pub use crate::stores::url::{
    Host, Password, Setting, StoreUrl, TlsFiles, Transport, UrlForm, check_characters, io_reason,
    is_host,
};
pub use crate::stray_character::stray_character;

/// What the examinations of stores are made of.
pub mod examination {
    pub use crate::examination::{
        Check, danger, examined_server, percentiles, version_numbers, warning,
    };
}

/// The one background thread of a process.
pub mod background {
    pub use crate::runtime::background::{
        block_on, caller_runtime, on_background, run_blocking, run_on, spawn, spawn_on,
        spawn_restarting, start,
    };
}

/// The servers of a simulated world.
pub mod simulation {
    pub use crate::runtime::simulation::{SimulatedStream, connect};
}

/// TLS for the stores on a network.
#[cfg(feature = "tls")]
pub mod tls {
    pub use crate::stores::tls::{PemFiles, rejected_client, untrusted};
}

/// Records a connection or session that replaced one that had ended.
pub fn reconnected(service: &'static str) {
    crate::metrics::reconnected(service);
}
