//! What the store crates and `leasehold` need, and users do not. It may change at any time.

pub use crate::absences::{Absence, Observations, Observed};
pub use crate::claimant_info::{ENCODED, words};
pub use crate::engine::{hold_from, safe_duration};
pub use crate::net::{Host, Password, io_reason};
pub use crate::runtime::background::without_panic;
pub use crate::runtime::backlog::{Backlog, Repeat, repeat};
pub use crate::runtime::backoff::Backoff;
pub use crate::runtime::clock::BootInstant;
pub use crate::runtime::process_file::{
    ProcessFile, RevokeEnded, SeenHold, has_ended, keep_no_process_file, revoke_ended,
};
pub use crate::store_kind::{Dialect, FirstClaim, OpenEntering, Place, StoreKind, UnopenedStore};
#[cfg(feature = "file")]
pub use crate::stores::file::{FILE, SYSTEM};
pub use crate::stores::lazy::LazyStore;
pub use crate::stores::memory::MEMORY;
pub use crate::stores::url::{
    Setting, StoreUrl, Transport, UrlForm, check_characters, is_host, with_setting,
};
pub use crate::stray_character::stray_character;

/// What the examinations of stores are made of.
pub mod examination {
    pub use crate::examination::{
        Check, ServerFacts, Service, danger, percentiles, version_numbers, warning,
    };
}

/// The one background thread of a process.
pub mod background {
    pub use crate::runtime::background::{
        BlockingSteps, block_on, caller_runtime, on_background, run_on, spawn, spawn_on,
        spawn_restarting, start,
    };
}

/// What stores with a service share.
pub mod net {
    pub use crate::net::{
        AttemptLimit, Attempts, CloseOnDrop, Closed, Connect, Connector, Encrypted, Epochs, Help,
        Host, Identity, Login, Password, Pauses, Reader, Session, State, Stream, Supervised,
        Target, Tls, Up, Watched, Writer, check_identity, no_server, rejected_client, store_closed,
    };
    #[cfg(feature = "tls")]
    pub use crate::net::{PemFiles, certificate_name, install_provider};
}
