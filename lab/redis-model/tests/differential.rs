//! The model and a real server receive the same commands and scripts, and give the same replies.
//!
//! `MODEL_SEED` is the seed, and `MODEL_STEPS` the number of commands.

#[path = "differential/groups.rs"]
mod groups;

use std::os::unix::net::UnixStream;
use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use lab_redis_model::{Reply, Server};
use lab_servers::{Raw, Redis, Reply as RealReply};

/// The commands of a test run. The whole suite runs 100,000 with the scripts.
const STEPS: u64 = 80_000;

/// A real server and the model.
pub(crate) struct Both {
    _server: Redis,
    real: Raw<UnixStream>,
    model: Server,
}

impl Both {
    pub(crate) fn new() -> Self {
        let server = Redis::start();
        let about = server.info("replication");
        let mut lines = about.lines();
        let history = lines.find_map(|line| line.strip_prefix("master_replid:"));

        Self {
            real: server.socket_connection(),
            model: Server::new(history.expect("every server has a history")),
            _server: server,
        }
    }

    /// Sends a request to both; returns the reply of the server and that of the model.
    pub(crate) fn request(&mut self, words: &[&str]) -> (RealReply, RealReply) {
        let real = self.real.request(words).expect("the server replies");
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let model = self.model.execute(1, now(), &words);
        (real, converted(model))
    }

    pub(crate) fn clear(&mut self) {
        self.request(&["FLUSHALL"]);
    }
}

#[test]
fn random_commands_and_scripts_get_the_replies_of_a_server() {
    let seed = number("MODEL_SEED").unwrap_or_else(|| now().unsigned_abs());
    let mut rng = Rng::with_seed(seed);
    let mut both = Both::new();
    let mut differences = Vec::new();

    for step in 0..number("MODEL_STEPS").unwrap_or(STEPS) {
        if step % 500 == 0 {
            both.clear();
        }
        let command = command(&mut rng);
        let drawn = in_script(command, &mut rng);
        let words: Vec<&str> = drawn.iter().map(String::as_str).collect();

        let (real, model) = both.request(&words);
        if !is_same(&words, &real, &model) {
            differences.push(format!("{words:?}\nserver: {real:?}\n model: {model:?}"));
            both.clear();
        }
    }
    assert!(
        differences.is_empty(),
        "{}\nin all {}; repeat with: MODEL_SEED={seed}",
        differences[..differences.len().min(DIFFERENCES_SHOWN)].join("\n"),
        differences.len()
    );
}

/// How many differences a failed test prints.
const DIFFERENCES_SHOWN: usize = 40;

pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns the microseconds of the wall clock, as the server reads it.
fn now() -> i64 {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = clock.expect("the clock is after 1970").as_micros();
    i64::try_from(micros).expect("the clock is before 294247")
}

fn converted(reply: Reply) -> RealReply {
    match reply {
        Reply::Nil => RealReply::Nil,
        Reply::Int(number) => RealReply::Int(number),
        Reply::Status(text) => RealReply::Bytes(text.into_bytes()),
        Reply::Bytes(bytes) => RealReply::Bytes(bytes),
        Reply::Error(text) => RealReply::Error(text),
        Reply::List(replies) => RealReply::List(replies.into_iter().map(converted).collect()),
    }
}

fn is_same(words: &[&str], real: &RealReply, model: &RealReply) -> bool {
    let asks_for = |command: &str| words.contains(&command);
    match (real, model) {
        (RealReply::Int(real), RealReply::Int(model)) if asks_for("PTTL") => {
            real == model || *real > 0 && *model > 0 && (real - model).abs() < 5_000
        }
        // A script may return the remaining time among other values.
        (RealReply::List(real), RealReply::List(model)) if asks_for("PTTL") => {
            let pairs = || real.iter().zip(model);
            real.len() == model.len() && pairs().all(|(real, model)| is_same(words, real, model))
        }
        (RealReply::List(real), RealReply::List(model)) if asks_for("TIME") => {
            real.len() == model.len() || words[0] == "EVAL"
        }
        (RealReply::List(real), RealReply::List(model))
            if asks_for("HKEYS") || asks_for("HGETALL") =>
        {
            sorted(real) == sorted(model)
        }
        (RealReply::Error(real), RealReply::Error(model)) => {
            // The server adds the name of the script and the line.
            let real = real.split(" script: ").next().unwrap_or_default();
            real == model || real.strip_prefix("ERR ") == Some(model)
        }
        (real, model) => real == model,
    }
}

fn sorted(replies: &[RealReply]) -> Vec<String> {
    let mut shown: Vec<String> = replies.iter().map(|reply| format!("{reply:?}")).collect();
    shown.sort();
    shown
}

/// Draws a command with its arguments, most of which are right.
fn command(rng: &mut Rng) -> Vec<String> {
    let (name, kinds) = *rng.choice(COMMANDS).expect("a command");
    let mut words: Vec<String> = vec![name.to_owned()];
    words.extend(kinds.split_whitespace().map(|kind| argument(kind, rng)));

    match rng.u8(..40) {
        0 => drop(words.pop()),
        1 => words.push(argument("value", rng)),
        _ => {}
    }
    if words.is_empty() {
        words.push("GET".to_owned());
    }
    words
}

/// What leasehold's scripts use.
const COMMANDS: &[(&str, &str)] = &[
    ("GET", "key"),
    ("SET", "key value"),
    ("SET", "key value PX time"),
    ("SET", "key value EX time"),
    ("SET", "key value NX PX time"),
    ("SET", "key value XX"),
    ("SETRANGE", "key index value"),
    ("GETRANGE", "key index index"),
    ("STRLEN", "key"),
    ("INCR", "key"),
    ("INCRBY", "key index"),
    ("DECRBY", "key index"),
    ("EXISTS", "key key"),
    ("DEL", "key"),
    ("TYPE", "key"),
    ("PTTL", "key"),
    ("PEXPIRE", "key time"),
    ("PERSIST", "key"),
    ("TIME", ""),
    ("HGET", "key member"),
    ("HMGET", "key member member"),
    ("HSET", "key member value"),
    ("HSET", "key member value member value"),
    ("HSETNX", "key member value"),
    ("HDEL", "key member member"),
    ("HLEN", "key"),
    ("HKEYS", "key"),
    ("HEXISTS", "key member"),
    ("HGETALL", "key"),
    ("ZADD", "key score member"),
    ("ZADD", "key score member score member"),
    ("ZADD", "key NX score member"),
    ("ZREM", "key member member"),
    ("ZRANGE", "key index index"),
    ("ZRANGE", "key index index WITHSCORES"),
    ("ZRANGEBYSCORE", "key bound bound"),
    ("ZRANGEBYSCORE", "key -inf bound LIMIT index index"),
    ("ZRANK", "key member"),
    ("ZSCORE", "key member"),
    ("ZCARD", "key"),
    ("ZCOUNT", "key bound bound"),
    ("RPUSH", "key value value"),
    ("LRANGE", "key index index"),
    ("LINDEX", "key index"),
    ("ZPOPMIN", "key"),
    ("ZPOPMIN", "key index"),
    ("PUBLISH", "key value"),
    ("PUBSUB", "NUMSUB key member"),
];

fn argument(kind: &str, rng: &mut Rng) -> String {
    let choices: &[&str] = match kind {
        "key" => &["a", "b", "c", "d"],
        "member" => &["m", "n", "o", "p", "", "m n"],
        "value" => &[
            "",
            "a",
            "12",
            "-5",
            "007",
            "9223372036854775807",
            "1.5",
            "~H W",
            "-9223372036854775808",
        ],
        "time" => &[
            "86400000",
            "172800000",
            "0",
            "-1",
            "1.5",
            "x",
            "",
            "9223372036854775807",
            "99999999999",
        ],
        "index" => &[
            "0",
            "1",
            "-1",
            "2",
            "-3",
            "40",
            "x",
            "1.0",
            "-9223372036854775808",
        ],
        "score" => &[
            "0",
            "1",
            "-1",
            "3",
            "1795268260247958",
            "inf",
            "-inf",
            "1.5",
            "nan",
            "x",
        ],
        "bound" => &["0", "(1", "1795268260247958", "-inf", "+inf", "x", "(x"],
        literal => return literal.to_owned(),
    };
    (*rng.choice(choices).expect("an argument")).to_owned()
}

/// Runs the command in a script, in half of the cases.
fn in_script(command: Vec<String>, rng: &mut Rng) -> Vec<String> {
    let Some(script) = rng.choice(SCRIPTS).filter(|_| rng.bool()) else {
        return command;
    };
    let script = [(*script).to_owned(), "0".to_owned()];
    [vec!["EVAL".to_owned()], script.to_vec(), command].concat()
}

const SCRIPTS: &[&str] = &[
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "local _, r = pcall(redis.call, unpack(ARGV)) return type(r) == 'string' and r or type(r)",
    "local r = redis.pcall(unpack(ARGV)) return type(r)",
    "local r = redis.pcall(unpack(ARGV)) if type(r) == 'table' and r.err then return r.err end \
     return 'fine'",
    "local r = redis.call(unpack(ARGV)) return { r, 'x', 3.9, -3.9, true, false, 'after nil' }",
    "return redis.error_reply('LATE ' .. tostring(ARGV[2]))",
    "return redis.status_reply(ARGV[1])",
    "redis.call('SET', 'a', 1) redis.call(unpack(ARGV)) return redis.call('GET', 'a')",
    "return redis.call('SET', 'b', 3.0) and redis.call('GET', 'b')",
    "return redis.call('SET', 'b', ARGV[2] .. 'x') and string.format('%016d', '0041' + 1)",
    "return tostring(redis.pcall(unpack(ARGV)) == false)",
    "return #ARGV + 0.7",
    "return redis.pcall('NOSUCH', ARGV[1])",
    "return redis.call('NOSUCH', ARGV[1])",
    "return redis.pcall('GET')",
    "return { 1, 2, nil, 4 }",
    "return { err = 'ERR by hand' }",
    "return { ok = 'by hand' }",
];
