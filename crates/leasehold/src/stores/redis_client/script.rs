//! The Lua scripts, and how they are run.

use std::sync::OnceLock;

use redis::{Cmd, ServerErrorKind, Value};

use super::session::Session;
use crate::Result;

/// A script: asked for by its hash, and sent whole when the server does not know it.
#[derive(Debug)]
pub(in crate::stores) struct Script {
    pub(in crate::stores) text: &'static str,
    hash: OnceLock<String>,
}

/// A script made of parts, files in the folder `lua` beside the caller's.
macro_rules! script {
    ($($part:literal),+) => {
        $crate::stores::redis_client::Script::new(
            concat!($(include_str!(concat!($part, ".lua")), "\n"),+)
        )
    };
}
pub(in crate::stores) use script;

pub(in crate::stores) static PRESENCE: Script = script!("lua/server_id");
pub(in crate::stores) static PROBE: Script = script!("lua/probe");

impl Script {
    pub(in crate::stores) const fn new(text: &'static str) -> Self {
        Self {
            text,
            hash: OnceLock::new(),
        }
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| {
            let mut sha = sha1_smol::Sha1::new();
            sha.update(self.text.as_bytes());
            sha.digest().to_string()
        })
    }

    /// Asks for it with these keys and arguments.
    pub(in crate::stores) async fn run(
        &self,
        session: &Session,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Value> {
        match session
            .send(&call("EVALSHA", self.hash(), keys, arguments))
            .await
        {
            Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) => {}
            reply => return reply.map_err(super::reply_error::store_error),
        }
        // Nothing was run, so the same arguments may be sent again.
        session
            .send(&call("EVAL", self.text, keys, arguments))
            .await
            .map_err(super::reply_error::store_error)
    }
}

fn call(command: &str, script: &str, keys: &[&str], arguments: &[&str]) -> Cmd {
    let parts = keys.iter().chain(arguments);
    let len: usize = parts.clone().map(|part| part.len()).sum();
    let mut call = Cmd::with_capacity(
        3 + keys.len() + arguments.len(),
        command.len() + script.len() + 8 + len,
    );
    call.arg(command).arg(script).arg(keys.len());
    for argument in parts {
        call.arg(*argument);
    }
    call
}
