//! The parts that all stores on Redis servers share: connections, handshake, scripts, errors.

mod address;
mod handshake;
mod ids;
mod link;
mod reply;
mod reply_error;
mod scan;
mod script;
mod session;
mod stream;
#[cfg_attr(not(feature = "tls"), path = "redis_client/no_tls.rs")]
mod tls;

pub(super) use address::{Address, Settings, check_grace};
pub(super) use handshake::{ServerClock, ServerId, field, handshake, info_section};
pub(super) use ids::{PLAIN, fresh_client, id_from, id_text};
pub(super) use link::{DoHandshake, Handshake, Link, LinkConfig, State};
pub(super) use reply::{READ_TIMEOUT, reply_timeout, text, with_reply_timeout};
pub(super) use scan::list;
pub(super) use script::{Script, script};
pub(super) use session::{PushHandler, Session};

pub(super) use reply_error::{OTHER_VERSION, detail, protocol_error, store_error};
