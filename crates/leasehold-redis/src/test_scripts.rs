//! Single requests of scripts on a model of the server, as lines of text.

use std::fmt::Write as _;

use lab_redis_model::{Reply, Server};

/// A server, and the scripts that it knows by name.
pub(crate) struct ScriptServer {
    server: Server,
    scripts: &'static [(&'static str, &'static str)],
    /// In microseconds.
    now: i64,
}

/// What the server's clock shows at the start, in microseconds.
const START: i64 = 1_750_000_000_000_000;
/// The channels whose messages the server's only subscriber receives.
pub(crate) const CHANNELS: [&str; 2] = ["chan", "leasehold:inbox:clientXXXXX"];

impl ScriptServer {
    pub(crate) fn start(scripts: &'static [(&'static str, &'static str)]) -> Self {
        let mut server = Server::new("0123456789");
        for channel in CHANNELS {
            let words = ["SUBSCRIBE", channel].map(|word| word.as_bytes().to_vec());
            server.execute(1, START, &words);
        }
        Self {
            server,
            scripts,
            now: START,
        }
    }

    /// Sends each request, and checks the reply and the messages that it causes.
    pub(crate) fn check(&mut self, expected: &[(&str, &str)]) {
        for (line, reply) in expected {
            assert_eq!(self.send(line), *reply, "{line}");
        }
    }

    /// Executes a line: a command; `@` with the name of a script, its keys, and after `|` its
    /// arguments; `pass` with milliseconds; `mute`, after which nobody may publish; or `fill`, which
    /// leaves no memory. Returns the reply, and then the messages in angle brackets. `''` is an
    /// empty word, `\_` a space in a word, and `\xff` a byte.
    fn send(&mut self, line: &str) -> String {
        let words: Vec<Vec<u8>> = line.split_whitespace().map(word).collect();
        let reply = match line.split_whitespace().next() {
            Some("pass") => {
                let millis = line.strip_prefix("pass ").map(str::parse::<i64>);
                self.now += millis.expect("a time").expect("a number") * 1_000;
                Reply::Nil
            }
            Some("fill") => {
                self.server.fill();
                Reply::Nil
            }
            Some("mute") => {
                self.server.deny("PUBLISH");
                Reply::Nil
            }
            Some(name) if name.starts_with('@') => {
                let mut known = self.scripts.iter();
                let script = known.find(|(known, _)| *known == &name[1..]);
                let (_, text) = script.expect("a script of this name");
                let keys = words.iter().position(|word| word == b"|");
                let keys = keys.unwrap_or(words.len()) - 1;
                let mut request = vec![b"EVAL".to_vec(), text.as_bytes().to_vec()];
                request.push(keys.to_string().into_bytes());
                request.extend(words.into_iter().skip(1).filter(|word| word != b"|"));
                self.server.execute(0, self.now, &request)
            }
            _ => self.server.execute(0, self.now, &words),
        };

        let mut text = shown(&reply);
        for message in self.server.take_messages() {
            let message = String::from_utf8_lossy(&message.text).into_owned();
            write!(text, " <{message}>").expect("a string has room");
        }
        text
    }
}

fn word(text: &str) -> Vec<u8> {
    if text == "''" {
        return Vec::new();
    }
    let text = text.replace("\\_", " ");
    let parts: Vec<&[u8]> = text.split("\\xff").map(str::as_bytes).collect();
    parts.join(&0xff)
}

fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Nil => "nil".to_owned(),
        Reply::Int(number) => number.to_string(),
        Reply::Status(text) | Reply::Error(text) => text.clone(),
        Reply::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
        Reply::List(replies) => replies.iter().map(shown).collect::<Vec<_>>().join(","),
    }
}
