//! The keys of a server, with their values and expiries.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use crate::reply::{Outcome, Reply, WRONG_TYPE};
use crate::script::sha1hex;
use crate::server::{Connection, Message};
use crate::{hashes, keys, lists, sorted_sets, strings};

/// The fields of a hash, with their values.
pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// A value of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(Vec<u8>),
    /// The fields in the order of their insertion.
    Hash(Fields),
    /// The members with their scores, in order.
    SortedSet(Vec<(f64, Vec<u8>)>),
    List(Vec<Vec<u8>>),
}

/// A score is a number.
impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Text(text) => text.hash(state),
            Self::Hash(fields) => fields.hash(state),
            Self::List(values) => values.hash(state),
            Self::SortedSet(members) => {
                for (score, member) in members {
                    // The sum is the same number for both zeros.
                    (score + 0.0).to_bits().hash(state);
                    member.hash(state);
                }
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    pub(crate) value: Value,
    /// In milliseconds.
    pub(crate) expires_at: Option<i64>,
}

/// The form of an error that a script catches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Thrown {
    #[default]
    Text,
    /// Since Redis 7.
    Table,
}

/// All that a server keeps, without its scripts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Data {
    keys: BTreeMap<Vec<u8>, Stored>,
    /// In microseconds. It does not change while a request is executed, and is 0 between requests.
    pub(crate) now: i64,
    /// The id of the server's process.
    pub(crate) run: String,
    /// The id of the server's history. A replica has that of its master.
    pub(crate) history: String,
    pub(crate) is_replica: bool,
    /// Whether the server has as much data as it may have.
    pub(crate) is_full: bool,
    /// The user may not send this command.
    pub(crate) denied: &'static str,
    /// Scripts cannot read this key: its slot of a cluster moves to another node.
    pub(crate) moved: Option<Vec<u8>>,
    /// What a script catches.
    pub(crate) thrown: Thrown,
    /// Whether the present request has written. A script that has written may write on.
    pub(crate) has_written: bool,
    pub(crate) channels: BTreeMap<Vec<u8>, BTreeSet<Connection>>,
    pub(crate) messages: Vec<Message>,
}

impl Data {
    pub(crate) fn new(history: &str) -> Self {
        Self {
            run: sha1hex(history.as_bytes()),
            history: history.to_owned(),
            ..Self::default()
        }
    }

    /// Begins another process, without subscribers.
    pub(crate) fn restart(&mut self) {
        self.channels.clear();
        self.run = sha1hex(self.run.as_bytes());
        self.begin_history();
    }

    /// Begins another history. No other server has the same one, because its process is another.
    pub(crate) fn begin_history(&mut self) {
        self.history = sha1hex(format!("{} {}", self.run, self.history).as_bytes());
    }

    /// Takes over the keys and the history of a master.
    pub(crate) fn follow(&mut self, master: &Self) {
        self.keys.clone_from(&master.keys);
        self.history.clone_from(&master.history);
        self.is_replica = true;
    }

    /// Moves the keys of another server that `is_moved` selects to this one.
    pub(crate) fn take_keys(&mut self, from: &mut Self, is_moved: impl Fn(&[u8]) -> bool) {
        let keys = std::mem::take(&mut from.keys).into_iter();
        let (moved, left): (BTreeMap<_, _>, _) = keys.partition(|(key, _)| is_moved(key));
        self.keys.extend(moved);
        from.keys = left;
    }

    pub(crate) fn now_millis(&self) -> i64 {
        self.now / 1_000
    }

    /// Executes a command that scripts may use.
    pub(crate) fn command(&mut self, words: &[Vec<u8>]) -> Outcome {
        let Some((name, arguments)) = words.split_first() else {
            return Err("ERR empty command".to_owned());
        };
        let name = String::from_utf8_lossy(name).to_uppercase();
        if self.is_replica && WRITES.contains(&name.as_str()) {
            return Err("READONLY You can't write against a read only replica.".to_owned());
        }
        if name == self.denied {
            return Err(format!(
                "NOPERM this user has no permissions to run '{name}'"
            ));
        }
        if self.is_full && !self.has_written && NEED_MEMORY.contains(&name.as_str()) {
            return Err("OOM command not allowed when used memory > 'maxmemory'.".to_owned());
        }
        self.has_written |= WRITES.contains(&name.as_str());
        let commands = [
            strings::command,
            hashes::command,
            lists::command,
            sorted_sets::command,
            keys::command,
        ];
        let mut outcomes = commands
            .iter()
            .filter_map(|command| command(self, &name, arguments));

        outcomes.next().unwrap_or_else(|| {
            let arguments = arguments
                .iter()
                .map(|argument| String::from_utf8_lossy(argument));
            let shown: Vec<String> = arguments.map(|argument| format!("'{argument}' ")).collect();
            let shown = shown.concat();
            Err(format!(
                "ERR unknown command '{}', with args beginning with: {shown}",
                String::from_utf8_lossy(&words[0])
            ))
        })
    }

    /// Returns the keys whose values differ from those of an earlier state.
    pub(crate) fn changed_since(&self, before: &Self) -> Vec<Vec<u8>> {
        let keys: BTreeSet<&Vec<u8>> = self.keys.keys().chain(before.keys.keys()).collect();
        let changed = keys
            .into_iter()
            .filter(|&key| self.keys.get(key) != before.keys.get(key));
        changed.cloned().collect()
    }

    pub(crate) fn names(&mut self) -> Vec<Vec<u8>> {
        let now = self.now_millis();
        self.keys.retain(|_, stored| !is_over(stored, now));
        self.keys.keys().cloned().collect()
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }

    /// Returns a key that has not expired.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<&mut Stored> {
        let now = self.now_millis();
        if self
            .keys
            .get(key)
            .is_some_and(|stored| is_over(stored, now))
        {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    pub(crate) fn set(&mut self, key: &[u8], stored: Stored) {
        self.keys.insert(key.to_vec(), stored);
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let exists = self.get(key).is_some();
        self.keys.remove(key);
        exists
    }

    /// Returns the text of a key.
    pub(crate) fn text(&mut self, key: &[u8]) -> Result<Option<&mut Vec<u8>>, String> {
        match self.get(key).map(|stored| &mut stored.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(WRONG_TYPE.to_owned()),
        }
    }

    /// Returns the fields of a hash; a missing key has none.
    pub(crate) fn hash(&mut self, key: &[u8]) -> Result<&mut Fields, String> {
        self.get(key);
        let empty = || Stored {
            value: Value::Hash(Vec::new()),
            expires_at: None,
        };
        match &mut self.keys.entry(key.to_vec()).or_insert_with(empty).value {
            Value::Hash(fields) => Ok(fields),
            _ => Err(WRONG_TYPE.to_owned()),
        }
    }

    /// Returns the members of a sorted set; a missing key has none.
    pub(crate) fn sorted_set(&mut self, key: &[u8]) -> Result<&mut Vec<(f64, Vec<u8>)>, String> {
        self.get(key);
        let empty = || Stored {
            value: Value::SortedSet(Vec::new()),
            expires_at: None,
        };
        match &mut self.keys.entry(key.to_vec()).or_insert_with(empty).value {
            Value::SortedSet(members) => Ok(members),
            _ => Err(WRONG_TYPE.to_owned()),
        }
    }

    /// Returns the values of a list; a missing key has none.
    pub(crate) fn list(&mut self, key: &[u8]) -> Result<&mut Vec<Vec<u8>>, String> {
        self.get(key);
        let empty = || Stored {
            value: Value::List(Vec::new()),
            expires_at: None,
        };
        match &mut self.keys.entry(key.to_vec()).or_insert_with(empty).value {
            Value::List(values) => Ok(values),
            _ => Err(WRONG_TYPE.to_owned()),
        }
    }

    /// Removes a key whose hash, sorted set or list is empty.
    pub(crate) fn drop_if_empty(&mut self, key: &[u8]) {
        let is_empty = self
            .keys
            .get(key)
            .is_some_and(|stored| match &stored.value {
                Value::Text(_) => false,
                Value::Hash(fields) => fields.is_empty(),
                Value::SortedSet(members) => members.is_empty(),
                Value::List(values) => values.is_empty(),
            });
        if is_empty {
            self.keys.remove(key);
        }
    }

    /// Sends a message to the subscribers of a channel; returns their number.
    pub(crate) fn publish(&mut self, channel: &[u8], text: &[u8]) -> Reply {
        let to = self.channels.get(channel).into_iter().flatten();
        let messages: Vec<Message> = to
            .map(|connection| Message {
                to: *connection,
                channel: channel.to_vec(),
                text: text.to_vec(),
            })
            .collect();

        let count = messages.len();
        self.messages.extend(messages);
        Reply::count(count)
    }
}

/// The commands that a replica refuses.
const WRITES: &[&str] = &[
    "SET", "SETRANGE", "INCR", "DEL", "PEXPIRE", "PERSIST", "HSET", "HSETNX", "HDEL", "ZADD",
    "ZREM", "ZPOPMIN", "RPUSH",
];

/// Commands that a full server refuses.
const NEED_MEMORY: &[&str] = &["SET", "SETRANGE", "INCR", "HSET", "HSETNX", "ZADD", "RPUSH"];

fn is_over(stored: &Stored, now: i64) -> bool {
    stored.expires_at.is_some_and(|at| now > at)
}

/// Returns the error for a wrong number of arguments.
pub(crate) fn wrong_count(command: &str) -> String {
    let name = command.to_lowercase();
    format!("ERR wrong number of arguments for '{name}' command")
}

pub(crate) fn integer(text: &[u8]) -> Result<i64, String> {
    let not_an_integer = || crate::reply::NOT_AN_INTEGER.to_owned();
    let text = std::str::from_utf8(text).map_err(|_| not_an_integer())?;
    let number: i64 = text.parse().map_err(|_| not_an_integer())?;
    // Redis accepts only the text that it would write.
    if number.to_string() == text {
        Ok(number)
    } else {
        Err(not_an_integer())
    }
}
