//! The Lua scripts of Redlock and of the plain lock.

use crate::stores::redis_client::{Script, script};

pub(super) static VOTE: Script = script!("lua/vote");
pub(super) static VOTE_LEAVE: Script = script!("lua/leave");
pub(super) static VOTE_LOOK: Script = script!("lua/inspect");
pub(super) static VOTE_NAMES: Script = script!("lua/list");
pub(super) static MARK: Script = script!("lua/incarnation");
pub(super) static PLAIN: Script = script!("lua/plain_vote");
pub(super) static PLAIN_LEAVE: Script = script!("lua/plain_leave");
pub(super) static PLAIN_LOOK: Script = script!("lua/plain_inspect");
pub(super) static PLAIN_NAMES: Script = script!("lua/plain_list");
