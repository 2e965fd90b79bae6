//! The parsers of what services return, for random inputs. They are not a part of the API.
//!
//! Each function takes any bytes, as a damaged or hostile service might send them, and returns.

#[cfg(feature = "file")]
pub use crate::stores::parsers::file::{queue_file, small_files};
#[cfg(feature = "redis")]
pub use crate::stores::parsers::redis::texts as redis_texts;
#[cfg(feature = "redis")]
pub use crate::stores::parsers::redis_client::reply as redis_reply;
#[cfg(feature = "redis")]
pub use crate::stores::parsers::redisson::fields as redisson_fields;
#[cfg(feature = "redis")]
pub use crate::stores::parsers::redlock::record as redlock_record;
#[cfg(feature = "redis")]
pub use crate::stores::parsers::votes::texts as vote_texts;
#[cfg(feature = "zookeeper")]
pub use crate::stores::parsers::zookeeper::nodes as zookeeper_nodes;
