//! A server: its data, its scripts and its connections.

use std::collections::BTreeSet;

use crate::data::{Data, Thrown};
use crate::reply::{Outcome, Reply};
use crate::{keys, script};

/// The number of a connection.
pub type Connection = u64;

/// A message to a subscriber.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The subscriber.
    pub to: Connection,
    /// The channel.
    pub channel: Vec<u8>,
    /// The text.
    pub text: Vec<u8>,
}

/// What a server has after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Its data, as with `appendonly yes` and `appendfsync always`.
    WithData,
    /// Nothing.
    Empty,
}

/// A server. A copy is the server at one moment, so that a model can keep and compare it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    data: Data,
    /// The hashes of the scripts that it knows.
    scripts: BTreeSet<String>,
}

impl Server {
    /// Creates an empty server. `history` is its `master_replid`.
    #[must_use]
    pub fn new(history: &str) -> Self {
        Self {
            data: Data::new(history),
            scripts: BTreeSet::new(),
        }
    }

    /// Restarts the server. It forgets scripts and subscriptions, and begins another history.
    pub fn restart(&mut self, restart: Restart) {
        self.scripts.clear();
        self.data.restart();
        if restart == Restart::Empty {
            self.data.clear();
        }
    }

    /// Makes the server a replica with the data that `master` has now.
    pub fn follow(&mut self, master: &Self) {
        self.data.follow(&master.data);
    }

    /// Makes a replica a master. It begins another history.
    pub fn promote(&mut self) {
        self.data.is_replica = false;
        self.data.begin_history();
    }

    /// Moves the keys of another server that `is_moved` selects to this one, as `MIGRATE` does.
    pub fn take_keys(&mut self, from: &mut Self, is_moved: impl Fn(&[u8]) -> bool) {
        self.data.take_keys(&mut from.data, is_moved);
    }

    /// Returns the keys that differ from those of an earlier state.
    pub(crate) fn changed_since(&self, before: &Self) -> Vec<Vec<u8>> {
        self.data.changed_since(&before.data)
    }

    /// Executes a request at a time, in microseconds.
    pub fn execute(&mut self, from: Connection, now: i64, words: &[Vec<u8>]) -> Reply {
        self.data.now = now;
        let outcome = self.command(from, words);
        self.data.now = 0;
        self.data.has_written = false;
        outcome.unwrap_or_else(Reply::Error)
    }

    /// Lets the server refuse requests that need memory, with the policy `noeviction`.
    pub fn fill(&mut self) {
        self.data.is_full = true;
    }

    /// Refuses a command to the user from now on.
    pub fn deny(&mut self, command: &'static str) {
        self.data.denied = command;
    }

    /// Moves a key to another node of a cluster, while others of its slot are still here.
    pub fn move_away(&mut self, key: &str) {
        self.data.moved = Some(key.into());
    }

    /// Lets scripts catch errors as tables from now on, as Redis 7 does, and not as texts.
    pub fn throw_tables(&mut self) {
        self.data.thrown = Thrown::Table;
    }

    /// Returns the messages to subscribers since the last call.
    pub fn take_messages(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.data.messages)
    }

    /// Ends a connection and its subscriptions.
    pub fn disconnect(&mut self, connection: Connection) {
        self.data.channels.retain(|_, subscribers| {
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
            ("EVAL", [text, rest @ ..]) => {
                let hash = script::load(text)?;
                self.scripts.insert(hash.clone());
                script::run(&hash, rest, &mut self.data)
            }
            ("SCRIPT", [word, text]) if word.eq_ignore_ascii_case(b"LOAD") => {
                let hash = script::load(text)?;
                self.scripts.insert(hash.clone());
                Ok(Reply::text(hash))
            }
            ("EVALSHA", [hash, rest @ ..]) => {
                let hash = String::from_utf8_lossy(hash).to_lowercase();
                if !self.scripts.contains(&hash) {
                    return Err("NOSCRIPT No matching script. Please use EVAL.".to_owned());
                }
                script::run(&hash, rest, &mut self.data)
            }
            ("SUBSCRIBE", [channel]) => {
                self.data
                    .channels
                    .entry(channel.clone())
                    .or_default()
                    .insert(from);
                Ok(Reply::ok())
            }
            ("UNSUBSCRIBE", [channel]) => {
                self.unsubscribe(from, channel);
                Ok(Reply::ok())
            }
            ("FLUSHALL", []) => {
                self.data.clear();
                Ok(Reply::ok())
            }
            ("PING", []) => Ok(Reply::Status("PONG".to_owned())),
            ("ROLE", []) => Ok(Reply::List(vec![Reply::text(keys::role(&self.data))])),
            ("CLIENT" | "SELECT" | "AUTH", _) => Ok(Reply::ok()),
            _ => self.data.command(words),
        }
    }

    fn unsubscribe(&mut self, from: Connection, channel: &[u8]) {
        if let Some(subscribers) = self.data.channels.get_mut(channel) {
            subscribers.remove(&from);
            if subscribers.is_empty() {
                self.data.channels.remove(channel);
            }
        }
    }
}
