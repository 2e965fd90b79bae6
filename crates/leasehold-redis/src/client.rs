//! The parts that all stores on Redis servers share: connections, handshake, scripts, errors.
//!
//! How a store uses them:
//!
//! 1. [`Topology::parse`] reads a URL without a dialect, and [`Topology::of_url`] one with a
//!    dialect. An [`Endpoint`] is one server, or the master that sentinels name.
//! 2. `background::start` starts the background thread; [`Link::spawn`] panics without it. The
//!    store connects inside `background::on_background`, which gives any executor timers and I/O.
//! 3. [`Link::spawn`] takes the channel of the client, the function that receives notifications,
//!    and the handshake: [`handshake()`], and any further checks of the store. [`Link::first`]
//!    returns the error of the first attempt to connect.
//! 4. Each request takes the session of [`Link::session`], and runs a [`Script`] inside
//!    [`with_reply_timeout`]. The macro [`script!`](script) reads files:
//!    `script!("NAME/lua/enter")` in `NAME.rs` is `NAME/lua/enter.lua`.
//! 5. [`Link::states`] reports each reconnect, which may have lost notifications.
//!
//! The key of a name is made of [`PLAIN`] characters. [`list`] finds them.

mod address;
mod channels;
mod cluster;
mod endpoint;
pub(super) mod groups;
mod handshake;
mod ids;
mod link;
mod redirect;
mod reply_error;
mod scan;
mod script;
mod sentinel;
mod servers;
mod session;
mod stream;
#[cfg_attr(not(feature = "tls"), path = "client/no_tls.rs")]
mod tls;
mod topology;
mod watched;

pub(super) use address::{Address, PORT, SERVER_SCHEMES, Settings, check_grace, longest_lease};
pub(super) use channels::{ChannelSubscription, Channels};
pub(super) use cluster::ClusterNode;
pub(super) use endpoint::Endpoint;
pub(super) use handshake::{
    Report, ServerClock, ServerId, check_mode, field, handshake, micros_of,
};
pub(super) use ids::{PLAIN, fresh_client, id_from, id_text};
pub(super) use link::{DoHandshake, Epochs, Handshake, Link, LinkConfig, Links, State};
pub(super) use scan::{Scan, list, pattern_of};
pub(super) use script::{Script, list_script, script};
pub(super) use sentinel::PORT as SENTINEL_PORT;
pub(super) use servers::{ServerCall, StoreServers};
pub(super) use session::{
    Command, FromReply, INVALIDATION, PushHandler, READ_TIMEOUT, RequestError, Session, Value,
    command, decode, reply_timeout, with_reply_timeout,
};
pub(super) use topology::{SENTINEL_SCHEMES, Topology};
pub(super) use watched::Watched;

#[cfg(test)]
pub(super) use reply_error::store_error;
pub(super) use reply_error::{OTHER_VERSION, detail, protocol_error, shows_replica};
#[cfg(test)]
#[allow(unused_imports, reason = "the tests of the queue parse replies")]
pub(super) use session::parse_reply;
