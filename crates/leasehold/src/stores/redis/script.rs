//! The Lua scripts, and how they are run.

use std::sync::OnceLock;

use redis::{Cmd, ServerErrorKind, Value};

use super::session::Session;
use crate::Result;

/// A script: asked for by its hash, and sent whole when the server does not know it.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

macro_rules! script {
    ($($part:literal),+) => {
        Script { text: concat!($(include_str!(concat!("lua/", $part, ".lua")), "\n"),+), hash: OnceLock::new() }
    };
}

pub(super) static ENTER: Script = script!("enter", "line", "enter_line");
pub(super) static LEAVE: Script = script!("leave", "line", "leave_line");
pub(super) static RENEW: Script = script!("renew", "line", "renew_each");
pub(super) static LOOK: Script = script!("look", "line", "look_line");
pub(super) static NAMES: Script = script!("names");
pub(super) static PRESENCE: Script = script!("presence");

impl Script {
    fn hash(&self) -> &str {
        self.hash.get_or_init(|| {
            let mut sha = sha1_smol::Sha1::new();
            sha.update(self.text.as_bytes());
            sha.digest().to_string()
        })
    }

    /// Asks for it with these keys and arguments.
    pub(super) async fn run(&self, session: &Session, keys: &[&str], arguments: &[&str]) -> Result<Value> {
        match session.ask(&call("EVALSHA", self.hash(), keys, arguments)).await {
            Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) => {}
            answer => return answer.map_err(super::trouble::told),
        }
        // Nothing was run, so the same arguments may be sent again.
        session.ask(&call("EVAL", self.text, keys, arguments)).await.map_err(super::trouble::told)
    }
}

fn call(command: &str, script: &str, keys: &[&str], arguments: &[&str]) -> Cmd {
    let mut call = redis::cmd(command);
    call.arg(script).arg(keys.len());
    for argument in keys.iter().chain(arguments) {
        call.arg(*argument);
    }
    call
}
