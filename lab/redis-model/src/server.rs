//! A server: its data, its scripts and its connections.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::data::Data;
use crate::reply::{Outcome, Reply};
use crate::script::Scripts;

/// The number of a connection.
pub type Connection = u64;

/// A message to a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The subscriber.
    pub to: Connection,
    /// The channel.
    pub channel: Vec<u8>,
    /// The text.
    pub text: Vec<u8>,
}

/// A server.
pub struct Server {
    data: Arc<Mutex<Data>>,
    scripts: Scripts,
}

impl Server {
    /// Creates an empty server. `history` is its `master_replid`.
    #[must_use]
    pub fn new(history: &str) -> Self {
        let data = Arc::new(Mutex::new(Data::new(history)));
        Self {
            scripts: Scripts::new(&data),
            data,
        }
    }

    /// Executes a request at a time, in microseconds.
    pub fn execute(&mut self, from: Connection, now: i64, words: &[Vec<u8>]) -> Reply {
        self.data.lock().now = now;
        let outcome = self.command(from, words);
        outcome.unwrap_or_else(Reply::Error)
    }

    /// Returns the messages to subscribers since the last call.
    pub fn take_messages(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.data.lock().messages)
    }

    /// Ends a connection and its subscriptions.
    pub fn disconnect(&mut self, connection: Connection) {
        let mut data = self.data.lock();
        data.channels.retain(|_, subscribers| {
            subscribers.remove(&connection);
            !subscribers.is_empty()
        });
    }

    fn command(&mut self, from: Connection, words: &[Vec<u8>]) -> Outcome {
        let Some((name, arguments)) = words.split_first() else {
            return Err("ERR empty command".to_owned());
        };
        let name = String::from_utf8_lossy(name).to_uppercase();

        match (name.as_str(), arguments) {
            ("EVAL", [text, rest @ ..]) => self.scripts.eval(text, rest),
            ("EVALSHA", [hash, rest @ ..]) => {
                let hash = String::from_utf8_lossy(hash);
                self.scripts.eval_known(&hash, rest)
            }
            ("SUBSCRIBE", [channel]) => {
                let mut data = self.data.lock();
                data.channels
                    .entry(channel.clone())
                    .or_default()
                    .insert(from);
                Ok(Reply::ok())
            }
            ("UNSUBSCRIBE", [channel]) => {
                self.unsubscribe(from, channel);
                Ok(Reply::ok())
            }
            ("SCAN", [..]) => {
                let names = self.data.lock().names();
                let names = names.iter().map(Reply::text).collect();
                Ok(Reply::List(vec![Reply::text("0"), Reply::List(names)]))
            }
            ("FLUSHALL", []) => {
                self.data.lock().clear();
                Ok(Reply::ok())
            }
            ("PING", []) => Ok(Reply::Status("PONG".to_owned())),
            ("ROLE", []) => Ok(Reply::List(vec![Reply::text("master")])),
            ("CLIENT" | "SELECT" | "AUTH", _) => Ok(Reply::ok()),
            _ => self.data.lock().command(words),
        }
    }

    fn unsubscribe(&mut self, from: Connection, channel: &[u8]) {
        let mut data = self.data.lock();
        if let Some(subscribers) = data.channels.get_mut(channel) {
            subscribers.remove(&from);
            if subscribers.is_empty() {
                data.channels.remove(channel);
            }
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
