//! What stores with a service share: hosts, streams, TLS, logins, and a session that is kept.
//!
//! A store's address is a value: a [`Target`], and how to log in. A [`Connector`] opens streams to
//! it. A [`Supervised`] session is opened again whenever it ends; the store says how, by
//! [`Connect`].

pub(crate) mod host;
mod login;
mod lookups;
mod pauses;
mod stream;
mod supervised;
#[cfg_attr(not(feature = "tls"), path = "net/no_tls.rs")]
mod tls;
mod tls_settings;
mod watched;

pub use host::{Help, Host, io_reason, no_server};
pub use login::{Login, Password};
pub use pauses::{AttemptLimit, Pauses};
pub use stream::{Connector, Reader, Stream, Target, Writer};
pub use supervised::{Attempts, Connect, Epochs, Session, State, Supervised, Up, store_closed};
pub use tls::{Encrypted, check_identity, rejected_client};
#[cfg(feature = "tls")]
pub use tls::{PemFiles, certificate_name, install_provider};
pub use tls_settings::{Identity, Tls};
pub use watched::{CloseOnDrop, Closed, Watched};
