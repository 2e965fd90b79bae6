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
mod link;
mod reader;
mod redirect;
mod reply_error;
mod request;
mod scan;
mod script;
mod seeds;
mod sentinel;
mod server_info;
mod servers;
mod session;
mod topology;
mod value;

pub(super) use address::{Address, PORT, SERVER_SCHEMES, Settings};
pub(super) use channels::{ChannelSubscription, Channels};
pub(super) use cluster::ClusterNode;
pub(super) use endpoint::Endpoint;
pub(super) use handshake::{Report, ServerId, check_mode, handshake};
pub(super) use leasehold_core::internal::net::{Epochs, Watched};
pub(super) use link::{DoHandshake, Link, LinkConfig, Links, State};
pub(super) use request::{
    Command, IdText, PLAIN, RequestError, command, fresh_client, id_from, id_text,
};
pub(super) use scan::{Scan, list, pattern_of};
pub(super) use script::{NO_TEXTS, Script, Text, list_script, script};
pub(super) use sentinel::PORT as SENTINEL_PORT;
pub(super) use server_info::{ServerClock, field, micros_of};
pub(super) use servers::{ServerCall, StoreServers};
pub(super) use session::{
    Handshake, INVALIDATION, Opening, PushHandler, READ_TIMEOUT, Session, connector, decode,
    reply_timeout, with_reply_timeout,
};
pub(super) use topology::{CLUSTER_URL, SENTINEL_SCHEMES, SENTINEL_URL, SINGLE_URL, Topology};
pub(super) use value::{FromReply, ReplyText, Value};

#[cfg(test)]
#[allow(unused_imports, reason = "the tests of the queue parse replies")]
pub(super) use reader::parse_reply;
#[cfg(test)]
pub(super) use reply_error::store_error;
pub(super) use reply_error::{
    NO_REPLY, OTHER_VERSION, cause, detail, no_reply, protocol_error, shows_replica,
};
