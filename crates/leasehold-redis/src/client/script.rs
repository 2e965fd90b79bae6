//! Lua scripts, and how a client runs them.

use std::fmt::Display;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::request::{Request, RequestError, write_count, write_number, write_part, write_shown};
use super::session::Session;
use super::value::Value;
use leasehold_core::Result;

/// A key or an argument, which is written into the request without a copy.
pub(crate) trait Text: Display + Sync {}

impl<T: Display + Sync> Text for T {}

/// The keys or the arguments of a script that has none.
pub(crate) const NO_TEXTS: &[&str] = &[];

/// A script. A client runs it by its hash, and sends the text if the server does not know it.
#[derive(Debug)]
pub(crate) struct Script {
    template: &'static str,
    expand: fn(&str) -> String,
    only_reads: bool,
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

/// The text of the script that lists the keys in use of one page, from the file that finds them
/// among keys.
macro_rules! list_script {
    ($part:literal) => {
        concat!(
            "local function in_use(KEYS)\n",
            include_str!(concat!($part, ".lua")),
            "end\n",
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/client/lua/scan.lua"
            ))
        )
    };
}
pub(crate) use list_script;

pub(crate) static SERVER_ID: Script = script!("lua/server_id").only_reads();
pub(crate) static PROBE: Script = script!("lua/probe").only_reads();

impl Script {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self::from_template(text, str::to_owned)
    }

    /// A script whose text `expand` creates from a template at the first use.
    pub(crate) const fn from_template(template: &'static str, expand: fn(&str) -> String) -> Self {
        Self {
            template,
            expand,
            only_reads: false,
            source: OnceLock::new(),
        }
    }

    /// Lets a user run the script who may only read.
    pub(crate) const fn only_reads(mut self) -> Self {
        self.only_reads = true;
        self
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
        keys: &[impl Text],
        arguments: &[impl Text],
    ) -> Result<Value> {
        let call = ScriptRequest {
            command: "EVALSHA",
            script: &self.source().hash,
            keys,
            arguments,
        };
        match self.send(session, call, "EVALSHA_RO").await {
            Err(error) if error.code() == Some("NOSCRIPT") => {}
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
        keys: &[impl Text],
        arguments: &[impl Text],
    ) -> Result<Value> {
        let call = self.text_call(keys, arguments);
        let reply = self.send(session, call, "EVAL_RO").await;
        reply.map_err(super::reply_error::store_error)
    }

    /// Runs the script by the first command or, if it only reads and the user may not do that, by
    /// the second one, which Redis 7 has and which needs no right to write.
    ///
    /// The usual users have no right to the second command. So the first one is tried until a
    /// connection has shown that its user may only read.
    async fn send(
        &self,
        session: &Session,
        call: ScriptRequest<'_, impl Text, impl Text>,
        reading: &'static str,
    ) -> Result<Value, RequestError> {
        let mut denied = None;
        if !self.only_reads || !session.only_reads.load(Ordering::Relaxed) {
            match session.send(&call).await {
                Err(error) if self.only_reads && error.code() == Some("NOPERM") => {
                    denied = Some(error);
                }
                reply => return reply,
            }
        }

        let call = ScriptRequest {
            command: reading,
            ..call
        };
        match (session.send(&call).await, denied) {
            // A server before Redis 7 does not know it.
            (Err(error), Some(denied)) if matches!(error.code(), Some("NOPERM" | "ERR")) => {
                Err(denied)
            }
            (reply, _) => {
                session.only_reads.store(true, Ordering::Relaxed);
                reply
            }
        }
    }

    /// Runs the script on a node of a cluster that is receiving the slot of its keys.
    pub(crate) async fn ask(
        &self,
        session: &Session,
        keys: &[impl Text],
        arguments: &[impl Text],
    ) -> Result<Value> {
        // The text, because this is rare: the node may not know the script.
        let call = self.text_call(keys, arguments);
        let reply = match session.send_asking(&call).await {
            Err(error) if self.only_reads && error.code() == Some("NOPERM") => {
                let reading = ScriptRequest {
                    command: "EVAL_RO",
                    ..call
                };
                session.send_asking(&reading).await
            }
            reply => reply,
        };
        reply.map_err(super::reply_error::store_error)
    }

    fn text_call<'a, K, A>(&'a self, keys: &'a [K], arguments: &'a [A]) -> ScriptRequest<'a, K, A> {
        ScriptRequest {
            command: "EVAL",
            script: &self.source().text,
            keys,
            arguments,
        }
    }
}

/// A request to run a script, which is given by its hash or its text.
struct ScriptRequest<'a, K, A> {
    command: &'static str,
    script: &'a str,
    keys: &'a [K],
    arguments: &'a [A],
}

impl<K: Text, A: Text> Request for ScriptRequest<'_, K, A> {
    fn write(&self, buffer: &mut Vec<u8>) {
        write_count(buffer, 3 + self.keys.len() + self.arguments.len());
        write_part(buffer, self.command.as_bytes());
        write_part(buffer, self.script.as_bytes());
        write_number(buffer, self.keys.len());
        for key in self.keys {
            write_shown(buffer, key);
        }
        for argument in self.arguments {
            write_shown(buffer, argument);
        }
    }
}
