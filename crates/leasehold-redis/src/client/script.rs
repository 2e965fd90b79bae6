//! Lua scripts, and how a client runs them.

use std::sync::OnceLock;

use redis::{Cmd, ServerErrorKind, Value};

use super::session::Session;
use leasehold_core::Result;

/// A script. A client runs it by its hash, and sends the text if the server does not know it.
#[derive(Debug)]
pub(crate) struct Script {
    template: &'static str,
    expand: fn(&str) -> String,
    source: OnceLock<Source>,
}

#[derive(Debug)]
struct Source {
    text: String,
    hash: String,
}

/// A script made of parts: files in the folder `lua` next to the caller's file.
macro_rules! script {
    ($($part:literal),+) => {
        $crate::client::Script::new(
            concat!($(include_str!(concat!($part, ".lua")), "\n"),+)
        )
    };
}
pub(crate) use script;

pub(crate) static SERVER_ID: Script = script!("lua/server_id");
pub(crate) static PROBE: Script = script!("lua/probe");

impl Script {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self::from_template(text, str::to_owned)
    }

    /// A script whose text `expand` creates from a template at the first use.
    pub(crate) const fn from_template(template: &'static str, expand: fn(&str) -> String) -> Self {
        Self {
            template,
            expand,
            source: OnceLock::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.source().text
    }

    #[cfg(test)]
    pub(crate) fn hash(&self) -> &str {
        &self.source().hash
    }

    fn source(&self) -> &Source {
        self.source.get_or_init(|| {
            let text = (self.expand)(self.template);
            let hash = sha1_smol::Sha1::from(&text).digest().to_string();
            Source { text, hash }
        })
    }

    /// Runs the script with these keys and arguments.
    pub(crate) async fn run(
        &self,
        session: &Session,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Value> {
        let source = self.source();
        match session
            .send(&call("EVALSHA", &source.hash, keys, arguments))
            .await
        {
            Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) => {}
            reply => return reply.map_err(super::reply_error::store_error),
        }

        // The server executed nothing, so the same arguments may be sent again.
        self.send_text(session, keys, arguments).await
    }

    /// Sends the text of the script, so that one round trip is enough on every server. This is for
    /// short scripts.
    pub(crate) async fn send_text(
        &self,
        session: &Session,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Value> {
        let request = call("EVAL", &self.source().text, keys, arguments);
        let reply = session.send(&request).await;
        reply.map_err(super::reply_error::store_error)
    }

    /// Runs the script on a node of a cluster that is receiving the slot of its keys.
    pub(crate) async fn ask(
        &self,
        session: &Session,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Value> {
        // The text, because this is rare: the node may not know the script.
        let request = call("EVAL", &self.source().text, keys, arguments);
        let reply = session.send_asking(&request).await;
        reply.map_err(super::reply_error::store_error)
    }
}

/// The usual length of the keys and arguments of a script.
const BYTES_USUAL: usize = 512;

fn call(command: &str, script: &str, keys: &[&str], arguments: &[&str]) -> Cmd {
    let parts = 3 + keys.len() + arguments.len();
    let mut call = Cmd::with_capacity(parts, script.len() + BYTES_USUAL);
    call.arg(command).arg(script).arg(keys.len());
    call.arg(keys).arg(arguments);
    call
}
