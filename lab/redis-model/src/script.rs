//! The scripts, which run in the Lua that Redis has.
//!
//! A thread has one interpreter for all servers: an interpreter takes longer to make than most
//! scripts to run. While a script runs, the interpreter owns the data of its server.

use std::cell::RefCell;
use std::collections::BTreeMap;

use mlua::{Function, IntoLua, Lua, MultiValue, Table, Value};
use parking_lot::Mutex;

use crate::data::{Data, Thrown};
use crate::mutants::text_to_run;
use crate::reply::{Outcome, Reply};

/// What runs for the texts that servers of this process have received, by their hashes.
static TEXTS: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());

thread_local! {
    static INTERPRETER: RefCell<Interpreter> = RefCell::new(Interpreter::new());
}

struct Interpreter {
    lua: Lua,
    compiled: BTreeMap<String, Function>,
}

/// How a script calls a command.
#[derive(Clone, Copy)]
enum OnError {
    /// `redis.call`: the script ends.
    End,
    /// `redis.pcall`: the script receives the error as a table.
    Return,
}

/// Compiles a script; returns its hash.
pub(crate) fn load(text: &[u8]) -> Result<String, String> {
    let hash = sha1hex(text);
    TEXTS
        .lock()
        .entry(hash.clone())
        .or_insert_with(|| text_to_run(text).into_owned());

    INTERPRETER.with_borrow_mut(|interpreter| interpreter.compiled(&hash).map(|_| ()))?;
    Ok(hash)
}

/// Runs a script that was loaded, by its hash, on the data of a server.
pub(crate) fn run(hash: &str, arguments: &[Vec<u8>], data: &mut Data) -> Outcome {
    let Some((count, words)) = arguments.split_first() else {
        return Err("ERR wrong number of arguments for 'eval' command".to_owned());
    };
    let Ok(count) = usize::try_from(crate::data::integer(count)?) else {
        return Err("ERR Number of keys can't be negative".to_owned());
    };
    let Some((keys, words)) = words.split_at_checked(count) else {
        return Err("ERR Number of keys can't be greater than number of args".to_owned());
    };

    INTERPRETER.with_borrow_mut(|interpreter| {
        let script = interpreter.compiled(hash)?;
        interpreter.run(&script, keys, words, data)
    })
}

impl Interpreter {
    fn new() -> Self {
        let lua = Lua::new();
        install(&lua).expect("an empty interpreter takes a table");
        Self {
            lua,
            compiled: BTreeMap::new(),
        }
    }

    fn compiled(&mut self, hash: &str) -> Result<Function, String> {
        if let Some(compiled) = self.compiled.get(hash) {
            return Ok(compiled.clone());
        }
        let texts = TEXTS.lock();
        let text = texts.get(hash).expect("a server knows only loaded scripts");
        let compiled = self
            .lua
            .load(text.as_slice())
            .set_name("=user_script")
            .into_function()
            .map_err(|error| format!("ERR Error compiling script (new function): {error}"))?;

        self.compiled.insert(hash.to_owned(), compiled.clone());
        Ok(compiled)
    }

    fn run(
        &self,
        script: &Function,
        keys: &[Vec<u8>],
        words: &[Vec<u8>],
        data: &mut Data,
    ) -> Outcome {
        self.lua.set_app_data(std::mem::take(data));
        let returned = self.call(script, keys, words);
        *data = self
            .lua
            .remove_app_data()
            .expect("a script leaves the data of its server");

        match returned {
            Ok(Reply::Error(text)) => Err(text),
            Ok(reply) => Ok(reply),
            Err(error) => Err(text_of(&error)),
        }
    }

    fn call(&self, script: &Function, keys: &[Vec<u8>], words: &[Vec<u8>]) -> mlua::Result<Reply> {
        let globals = self.lua.globals();
        globals.set("KEYS", list(&self.lua, keys)?)?;
        globals.set("ARGV", list(&self.lua, words)?)?;

        reply_of(&script.call(())?)
    }
}

pub(crate) fn sha1hex(text: &[u8]) -> String {
    let mut sha = sha1_smol::Sha1::new();
    sha.update(text);
    sha.digest().to_string()
}

fn install(lua: &Lua) -> mlua::Result<()> {
    let redis = lua.create_table()?;
    redis.set("call", caller(lua, OnError::End)?)?;
    redis.set("pcall", caller(lua, OnError::Return)?)?;

    redis.set(
        "sha1hex",
        lua.create_function(|_, text: mlua::String| Ok(sha1hex(&text.as_bytes())))?,
    )?;
    redis.set(
        "error_reply",
        lua.create_function(|lua, text: mlua::String| {
            let table = lua.create_table()?;
            let text = text.to_string_lossy();
            let text = text.strip_prefix('-').unwrap_or(&text).to_owned();
            let text = if text.contains(' ') {
                text
            } else {
                format!("ERR {text}")
            };
            table.set("err", text)?;
            Ok(table)
        })?,
    )?;
    redis.set(
        "status_reply",
        lua.create_function(|lua, text: mlua::String| {
            let table = lua.create_table()?;
            table.set("ok", text)?;
            Ok(table)
        })?,
    )?;
    let globals = lua.globals();
    globals.set("pcall", protected_call(lua)?)?;
    globals.set("redis", redis)
}

/// Creates Lua's `pcall`. A script that catches the error of a command receives its text, and since
/// Redis 7 a table.
fn protected_call(lua: &Lua) -> mlua::Result<Function> {
    lua.create_function(|lua, (function, arguments): (Function, MultiValue)| {
        let outcome = function.call::<MultiValue>(arguments);
        let is_done = outcome.is_ok();
        let mut results = match outcome {
            Ok(results) => results,
            Err(error) => MultiValue::from_iter([caught(lua, text_of(&error))?]),
        };
        results.push_front(Value::Boolean(is_done));
        Ok(results)
    })
}

fn caught(lua: &Lua, error: String) -> mlua::Result<Value> {
    match with_data(lua, |data| data.thrown) {
        Thrown::Text => error.into_lua(lua),
        Thrown::Table => value_of(lua, &Reply::Error(error)),
    }
}

fn with_data<T>(lua: &Lua, use_data: impl FnOnce(&mut Data) -> T) -> T {
    let mut data = lua.app_data_mut::<Data>();
    use_data(
        data.as_mut()
            .expect("a script runs on the data of a server"),
    )
}

fn caller(lua: &Lua, on_error: OnError) -> mlua::Result<Function> {
    lua.create_function(move |lua, words: MultiValue| {
        let outcome = match words_of(&words) {
            Some(words) => with_data(lua, |data| command(data, &words)),
            None => Err("ERR Lua redis lib command arguments must be strings or integers".into()),
        };
        match (outcome, on_error) {
            (Ok(reply), _) => value_of(lua, &reply),
            (Err(text), OnError::End) => Err(mlua::Error::RuntimeError(format!("{MARK}{text}"))),
            (Err(text), OnError::Return) => value_of(lua, &Reply::Error(text)),
        }
    })
}

fn command(data: &mut Data, words: &[Vec<u8>]) -> Outcome {
    if data.moved.is_some() && words.get(1) == data.moved.as_ref() {
        return Err("ERR Script attempted to access a non local key in a cluster node".into());
    }
    data.command(words).map_err(|text| in_script(text, words))
}

/// Begins the error of a command, in front of which Lua may write a position.
const MARK: &str = "\u{1}";

/// Returns the error of a script that has ended.
fn text_of(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::CallbackError { cause, .. } => cause.to_string(),
        mlua::Error::RuntimeError(text) => text.clone(),
        error => error.to_string(),
    };
    match text.split_once(MARK) {
        Some((_, text)) => text.lines().next().unwrap_or_default().to_owned(),
        None => format!("ERR {}", text.lines().next().unwrap_or_default()),
    }
}

/// Inside a script, errors about the command itself are others.
fn in_script(text: String, words: &[Vec<u8>]) -> String {
    if text.starts_with("ERR unknown command") {
        return "ERR Unknown Redis command called from script".to_owned();
    }
    // The server checks the least number itself, and a command that there are pairs.
    let has_odd_pair = text.contains("'hset'") && words.len() >= 4;
    if text.starts_with("ERR wrong number of arguments") && !has_odd_pair {
        return "ERR Wrong number of args calling Redis command from script".to_owned();
    }
    text
}

fn words_of(words: &MultiValue) -> Option<Vec<Vec<u8>>> {
    let words = words.iter().map(|word| match word {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => Some(number_text(*number).into_bytes()),
        _ => None,
    });
    let words: Vec<Vec<u8>> = words.collect::<Option<_>>()?;
    (!words.is_empty()).then_some(words)
}

/// Writes a number as an argument: an integer in full, any other with its digits.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the number is whole and in range"
)]
fn number_text(number: f64) -> String {
    if number.fract().abs() < f64::MIN_POSITIVE && number.abs() < 9.0e18 {
        return (number as i64).to_string();
    }
    format!("{number}")
}

fn list(lua: &Lua, words: &[Vec<u8>]) -> mlua::Result<Table> {
    let texts = words.iter().map(|word| lua.create_string(word));
    lua.create_sequence_from(texts.collect::<mlua::Result<Vec<_>>>()?)
}

fn value_of(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Nil => Value::Boolean(false),
        #[allow(clippy::cast_precision_loss, reason = "the numbers of Lua are doubles")]
        Reply::Int(number) => Value::Number(*number as f64),
        Reply::Bytes(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Status(text) => table_with(lua, "ok", text)?,
        Reply::Error(text) => table_with(lua, "err", text)?,
        Reply::List(replies) => {
            let values = replies
                .iter()
                .map(|reply| value_of(lua, reply))
                .collect::<mlua::Result<Vec<Value>>>()?;
            Value::Table(lua.create_sequence_from(values)?)
        }
    })
}

fn table_with(lua: &Lua, key: &str, text: &str) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.set(key, text)?;
    Ok(Value::Table(table))
}

#[allow(clippy::cast_possible_truncation, reason = "Redis cuts fractions")]
fn reply_of(value: &Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::Bytes(text.as_bytes().to_vec()),
        Value::Integer(number) => Reply::Int(*number),
        // The processor converts a number that is too large to the least integer.
        Value::Number(number) if *number >= TWO_TO_63 => Reply::Int(i64::MIN),
        Value::Number(number) => Reply::Int(*number as i64),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => reply_of_table(table)?,
        _ => Reply::Nil,
    })
}

/// The least number that no integer of a reply can be.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

fn reply_of_table(table: &Table) -> mlua::Result<Reply> {
    if let Value::String(text) = table.raw_get("err")? {
        return Ok(Reply::Error(text.to_string_lossy()));
    }
    if let Value::String(text) = table.raw_get("ok")? {
        return Ok(Reply::Status(text.to_string_lossy()));
    }

    let mut replies = Vec::new();
    for at in 1.. {
        match table.raw_get(at)? {
            Value::Nil => break,
            value => replies.push(reply_of(&value)?),
        }
    }
    Ok(Reply::List(replies))
}
