//! What the store crates and `leasehold` need, and users do not. It may change at any time.

pub use crate::claim::ById;
pub use crate::claimant_info::ENCODED;
pub use crate::engine::{hold_from, safe_duration};
pub use crate::examination::{Check, EXPOSED, danger, version_numbers, warning};
pub use crate::runtime::backlog::{Backlog, Repeat, repeat};
pub use crate::runtime::backoff::Backoff;
pub use crate::runtime::clock::BootInstant;
pub use crate::store_kind::{OpenedStore, StoreKind};
#[cfg(feature = "file")]
pub use crate::stores::file::{FILE, SYSTEM};
pub use crate::stores::memory::MEMORY;
pub use crate::stores::url::{
    Credentials, Host, Identity, Password, Setting, Settings, StoreUrl, TlsFiles, Transport,
    UrlForm, assert_documented, io_reason, number, settings, within,
};

/// The one background thread of a process.
pub mod background {
    pub use crate::runtime::background::{
        block_on, caller_runtime, handle, on_background, run_on, spawn, spawn_here, spawn_on, start,
    };
}

/// The servers of a simulated world.
pub mod simulation {
    pub use crate::runtime::simulation::{SimulatedStream, connect};
}

/// TLS for the stores on a network.
#[cfg(feature = "tls")]
pub mod tls {
    pub use crate::stores::tls::built_in::provider as built_in_provider;
    pub use crate::stores::tls::{PemFiles, client_rejected, rejects_client, untrusted};
}

/// Records a connection or session that replaced one that had ended.
pub fn reconnected(service: &'static str) {
    crate::metrics::reconnected(service);
}
