//! The layout of all texts that clients and scripts exchange.
//!
//! One table of fields generates the encoding and the decoding in Rust, and the positions in the
//! scripts. A script names a field as `@LAYOUT.FIELD@`; `expand` replaces it with the positions
//! that `string.sub` takes. docs/protocols/redis-layout.md has the same table for readers.

use std::fmt;

/// A part of a text, at fixed positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// Its name in scripts and documents.
    pub(crate) name: &'static str,
    /// The bytes before it.
    pub(crate) start: usize,
    /// Its bytes; 0 if it ends where the text ends.
    pub(crate) len: usize,
}

impl Field {
    const fn first(name: &'static str, len: usize) -> Self {
        Self {
            name,
            start: 0,
            len,
        }
    }

    const fn then(self, name: &'static str, len: usize) -> Self {
        Self {
            name,
            start: self.end(),
            len,
        }
    }

    /// Returns the field from the first byte of this one to the last byte of `last`.
    #[must_use]
    pub(crate) const fn to(self, last: Self) -> Self {
        Self {
            name: self.name,
            start: self.start,
            len: last.end() - self.start,
        }
    }

    /// Returns the bytes before its end.
    #[must_use]
    pub(crate) const fn end(self) -> usize {
        self.start + self.len
    }

    /// Returns the field's part of a text; `None` if the text is too short.
    #[must_use]
    pub(crate) fn read(self, text: &str) -> Option<&str> {
        match self.len {
            0 => text.get(self.start..),
            _ => text.get(self.start..self.end()),
        }
    }

    pub(super) fn read_number<N: std::str::FromStr>(self, text: &str) -> Option<N> {
        self.read(text)?.parse().ok()
    }

    /// Writes a number with the digits that the field has.
    pub(super) fn write_number(self, number: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{number:0width$}", width = self.len)
    }
}

/// The value of `key`, and a claim in `key:claims` after its deadline.
pub(crate) mod record {
    use super::Field;

    /// The token of the grant, or of the last one; zeros for a waiter.
    pub(crate) const TOKEN: Field = Field::first("token", 16);
    /// `~` free, `H` held, `W` held while others wait, `L` shared, `Q` queued.
    pub(crate) const MODE: Field = TOKEN.then("mode", 1);
    /// The claim's id.
    pub(crate) const CLAIM: Field = MODE.then("claim", 22);
    /// The nonce of an absence; dashes if the holder is present.
    pub(crate) const NONCE: Field = CLAIM.then("nonce", 11);
    /// The claim's client.
    pub(crate) const CLIENT: Field = NONCE.then("client", 11);
    /// The number of connections and disconnections of the client's background link.
    pub(crate) const EPOCH: Field = CLIENT.then("epoch", 8);
    /// The beginning of the server's `master_replid`; dashes without crash detection.
    pub(crate) const SERVER: Field = EPOCH.then("server", 10);
    /// The crash grace in milliseconds.
    pub(crate) const GRACE: Field = SERVER.then("grace", 7);
    /// The version of the layout.
    pub(crate) const VERSION: Field = GRACE.then("version", 3);
    /// Words, each after a space: weight, capacity, lease in ms, since, pid, host, program, label.
    /// A last word `+N` is there only if the grant reserves N tokens below its own.
    pub(crate) const WORDS: Field = VERSION.then("words", 0);
    /// All of them, in order.
    pub(crate) const FIELDS: &[Field] = &[
        TOKEN, MODE, CLAIM, NONCE, CLIENT, EPOCH, SERVER, GRACE, VERSION, WORDS,
    ];
}

/// A claim in `key:claims`.
pub(crate) mod entry {
    use super::Field;

    /// The end of the lease, in microseconds of the server.
    pub(crate) const DEADLINE: Field = Field::first("deadline", 16);
    /// The record.
    pub(crate) const RECORD: Field = DEADLINE.then("record", 0);
    /// All of them, in order.
    pub(crate) const FIELDS: &[Field] = &[DEADLINE, RECORD];
}

/// The end of the value of `key` in mode `W`.
pub(crate) mod tail {
    use super::Field;

    /// A line feed.
    pub(crate) const START: Field = Field::first("start", 1);
    /// The number of waiters.
    pub(crate) const WAITING: Field = START.then("waiting", 8);
    /// The score of the last waiter in `key:queue`.
    pub(crate) const NEXT_SEQ: Field = WAITING.then("next_seq", 12);
    /// A token that the next one must exceed.
    pub(crate) const MIN_TOKEN: Field = NEXT_SEQ.then("min_token", 16);
    /// When the keys' expiry was last extended, in milliseconds.
    pub(crate) const REFRESHED: Field = MIN_TOKEN.then("refreshed", 13);
    /// The waiter that was notified as next.
    pub(crate) const NOTIFIED: Field = REFRESHED.then("notified", 22);
    /// All of them, in order.
    pub(crate) const FIELDS: &[Field] = &[START, WAITING, NEXT_SEQ, MIN_TOKEN, REFRESHED, NOTIFIED];
}

/// The settings of a request to enter.
pub(crate) mod request {
    use super::Field;

    /// `Q` queue, `R` refuse to wait, `F` refresh, `K` keep, `L` poll.
    pub(crate) const MODE: Field = Field::first("mode", 1);
    /// The highest token that the client has received.
    pub(crate) const HINT: Field = MODE.then("hint", 16);
    /// A nonce that was never used.
    pub(crate) const NONCE: Field = HINT.then("nonce", 11);
    /// The absences that have lasted for their grace.
    pub(crate) const EXPIRED: Field = NONCE.then("expired", 0);
    /// All of them, in order.
    pub(crate) const FIELDS: &[Field] = &[MODE, HINT, NONCE, EXPIRED];
}

/// The reply to a request to enter.
pub(crate) mod reply {
    use super::Field;

    /// The token of a holder; for a waiter and a refused claim, how many claims are ahead.
    pub(crate) const NUMBER: Field = Field::first("number", 16);
    /// `H` held, `N` next, `Q` queued, `G` gone.
    pub(crate) const STANDING: Field = NUMBER.then("standing", 1);
    /// The claim's id. A reply to a holder ends here.
    pub(crate) const CLAIM: Field = STANDING.then("claim", 22);
    /// The last token of the name.
    pub(crate) const LAST_TOKEN: Field = CLAIM.then("last_token", 16);
    /// The position among the waiters, from 1; 0 if the claim does not wait.
    pub(crate) const POSITION: Field = LAST_TOKEN.then("position", 8);
    /// Milliseconds until a lease ends; the rest is only in some replies.
    pub(crate) const EXPIRY: Field = POSITION.then("expiry", 10);
    /// The absent holders.
    pub(crate) const ABSENCES: Field = EXPIRY.then("absences", 0);
    /// All of them, in order.
    pub(crate) const FIELDS: &[Field] = &[
        NUMBER, STANDING, CLAIM, LAST_TOKEN, POSITION, EXPIRY, ABSENCES,
    ];
}

/// An absent holder in a reply to enter; without its grace, an expired one in a request.
pub(crate) mod absence {
    use super::Field;

    /// The holder's id.
    pub(crate) const CLAIM: Field = Field::first("claim", 22);
    /// The nonce of this absence.
    pub(crate) const NONCE: Field = CLAIM.then("nonce", 11);
    /// The holder's grace in milliseconds.
    pub(crate) const GRACE: Field = NONCE.then("grace", 7);
    /// All of them, in order.
    pub(crate) const FIELDS: &[Field] = &[CLAIM, NONCE, GRACE];
}

/// A notification of a grant. The others, `N` next and `G` gone, have the claim after the kind.
pub(crate) mod grant {
    use super::Field;

    /// `H`.
    pub(crate) const KIND: Field = Field::first("kind", 1);
    /// The token.
    pub(crate) const TOKEN: Field = KIND.then("token", 16);
    /// The claim's id.
    pub(crate) const CLAIM: Field = TOKEN.then("claim", 22);
    /// The lock's key.
    pub(crate) const KEY: Field = CLAIM.then("key", 0);
    /// All of them, in order.
    pub(crate) const FIELDS: &[Field] = &[KIND, TOKEN, CLAIM, KEY];
}

/// A request to leave for a client whose process has ended.
pub(crate) mod ended {
    use super::Field;

    /// `D`.
    pub(crate) const KIND: Field = Field::first("kind", 1);
    /// The claim's id.
    pub(crate) const CLAIM: Field = KIND.then("claim", 22);
    /// The token of its grant.
    pub(crate) const TOKEN: Field = CLAIM.then("token", 16);
    /// The fields from the client to the grace of its record.
    pub(crate) const LINK: Field = TOKEN.then("link", 36);
    /// Words about the client that has seen it, each after a space: since, pid, host, program,
    /// label.
    pub(crate) const SEEN_BY: Field = LINK.then("seen_by", 0);
    /// All of them, in order.
    pub(crate) const FIELDS: &[Field] = &[KIND, CLAIM, TOKEN, LINK, SEEN_BY];
}

/// The value of `key:ended`: the last hold that its client did not release.
pub(crate) mod hold_end {
    use super::Field;

    /// The token of the hold.
    pub(crate) const TOKEN: Field = Field::first("token", 16);
    /// `P` its process has ended, `W` its watchdog has released it, `C` its connection was missing
    /// for its grace, `L` its lease has ended.
    pub(crate) const REASON: Field = TOKEN.then("reason", 1);
    /// The last token after the step that has ended the hold.
    pub(crate) const FOLLOWED_BY: Field = REASON.then("followed_by", 16);
    /// Words about the client that has seen the end of a process.
    pub(crate) const SEEN_BY: Field = FOLLOWED_BY.then("seen_by", 0);
    /// All of them, in order.
    pub(crate) const FIELDS: &[Field] = &[TOKEN, REASON, FOLLOWED_BY, SEEN_BY];
}

/// The reply to a request to leave.
pub(crate) mod leave_reply {
    use super::Field;

    /// `1` if the claim was there.
    pub(crate) const WAS_THERE: Field = Field::first("was_there", 1);
    /// The claim's id.
    pub(crate) const CLAIM: Field = WAS_THERE.then("claim", 22);
    /// All of them, in order.
    pub(crate) const FIELDS: &[Field] = &[WAS_THERE, CLAIM];
}

/// Fields that scripts and documents name together.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Its name in scripts and documents.
    pub(crate) name: &'static str,
    /// Its fields, in order.
    pub(crate) fields: &'static [Field],
    base: Base,
}

/// Where the fields of a layout begin in the text that a script reads.
#[derive(Clone, Copy, Debug)]
enum Base {
    Start,
    After(usize),
    /// The text begins within the layout.
    At(usize),
    /// The layout ends where the text ends.
    End,
}

/// All layouts.
pub(crate) const LAYOUTS: &[Layout] = &[
    Layout::new("record", record::FIELDS, Base::Start),
    Layout::new("entry", entry::FIELDS, Base::Start),
    // The record within an entry.
    Layout::new("stored", record::FIELDS, Base::After(entry::RECORD.start)),
    // The part of a record that a renewal compares.
    Layout::new("liveness", record::FIELDS, Base::At(record::NONCE.start)),
    Layout::new("tail", tail::FIELDS, Base::End),
    Layout::new("request", request::FIELDS, Base::Start),
    Layout::new("reply", reply::FIELDS, Base::Start),
    Layout::new("absence", absence::FIELDS, Base::Start),
    Layout::new("grant", grant::FIELDS, Base::Start),
    Layout::new("ended", ended::FIELDS, Base::Start),
    Layout::new("hold_end", hold_end::FIELDS, Base::Start),
    Layout::new("leave_reply", leave_reply::FIELDS, Base::Start),
];

impl Layout {
    const fn new(name: &'static str, fields: &'static [Field], base: Base) -> Self {
        Self { name, fields, base }
    }

    /// Returns the number of bytes of all fields, without a last field of open length.
    fn len(&self) -> usize {
        self.fields.last().map_or(0, |field| field.end())
    }

    fn field(&self, name: &str) -> Option<Field> {
        let (first, last) = name.split_once("..").unwrap_or((name, name));
        let find = |name| self.fields.iter().find(|field| field.name == name);
        Some(find(first)?.to(*find(last)?))
    }

    /// Returns the position of the byte at `offset`, as Lua counts: from 1, or from the end.
    fn lua_position(&self, offset: usize) -> String {
        match self.base {
            Base::Start => (offset + 1).to_string(),
            Base::After(before) => (before + offset + 1).to_string(),
            Base::At(begin) => (offset - begin + 1).to_string(),
            Base::End => format!("-{}", self.len() - offset),
        }
    }
}

/// Replaces the names of fields in a script with positions.
///
/// | name | replacement | for |
/// |---|---|---|
/// | `@record.claim@` | `18, 39` | `string.sub`; only the first position if the field is open |
/// | `@record.client..grace@` | `51, 86` | several fields |
/// | `@record.version:first@` | `87` | the first position |
/// | `@record.claim:last@` | `39` | the last position |
/// | `@record.nonce:offset@` | `'39'` | `SETRANGE`, which counts from 0 |
/// | `@record.mode..grace:range@` | `'16', '85'` | `GETRANGE` |
/// | `@record.claim:len@` | `22` | the length |
/// | `@tail:len@` | `72` | the length of a layout |
pub(super) fn expand(template: &str) -> String {
    let mut text = String::with_capacity(template.len());
    for (number, part) in template.split('@').enumerate() {
        let is_name = number % 2 == 1;
        if is_name {
            text.push_str(&replacement(part).expect("all_scripts_expand checks every name"));
        } else {
            text.push_str(part);
        }
    }
    text
}

fn replacement(name: &str) -> Option<String> {
    let (path, form) = name.split_once(':').unwrap_or((name, "pair"));
    let (layout, field) = path.split_once('.').unwrap_or((path, ""));
    let layout = LAYOUTS.iter().find(|known| known.name == layout)?;
    if field.is_empty() && form == "len" {
        return Some(layout.len().to_string());
    }

    let field = layout.field(field)?;
    let first = layout.lua_position(field.start);
    let last = || layout.lua_position(field.end() - 1);
    match form {
        "pair" if field.len == 0 => Some(first),
        "pair" => Some(format!("{first}, {}", last())),
        "first" => Some(first),
        "last" => Some(last()),
        "len" => Some(field.len.to_string()),
        "offset" => Some(format!("'{}'", field.start)),
        "range" => Some(format!("'{}', '{}'", field.start, field.end() - 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_names_become_the_positions_of_lua() {
        for (name, expected) in [
            ("record.claim", "18, 39"),
            ("record.client..grace", "51, 86"),
            ("record.version:first", "87"),
            ("record.words:first", "90"),
            ("record.claim:last", "39"),
            ("record.nonce:offset", "'39'"),
            ("record.mode..grace:range", "'16', '85'"),
            ("stored.server", "86, 95"),
            ("liveness.epoch", "23, 30"),
            ("record.claim:len", "22"),
            ("tail.waiting", "-71, -64"),
            ("tail.notified", "-22, -1"),
            ("tail:len", "72"),
            ("request.expired", "29"),
        ] {
            assert_eq!(replacement(name).as_deref(), Some(expected), "{name}");
        }
        assert_eq!(replacement("record.other"), None);
        assert_eq!(expand("sub(text, @entry.deadline@)"), "sub(text, 1, 16)");
    }

    #[test]
    fn layout_page_has_the_table_of_fields() {
        const PAGE: &str = include_str!("../../../../docs/protocols/redis-layout.md");
        for layout in LAYOUTS {
            // Two layouts are parts of the record, as the scripts read it.
            if ["stored", "liveness"].contains(&layout.name) {
                continue;
            }
            let mark = format!("<!-- layout: {} -->", layout.name);
            let (_, section) = PAGE.split_once(&mark).expect(layout.name);
            let rows: Vec<&str> = section
                .lines()
                .skip_while(|line| !line.starts_with("| `"))
                .take_while(|line| line.starts_with("| `"))
                .collect();

            assert_eq!(rows.len(), layout.fields.len(), "{}", layout.name);
            for (row, field) in rows.iter().zip(layout.fields) {
                let bytes = match field.len {
                    0 => String::new(),
                    len => format!("{len} "),
                };
                let expected = format!("| `{}` | {} | {bytes}|", field.name, field.start);
                assert!(row.starts_with(&expected), "{row} is not {expected}");
            }
        }
    }
}
