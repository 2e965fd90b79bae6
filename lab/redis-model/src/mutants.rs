//! Mutants of scripts: the text of a script with one small change, which some test should notice.
//!
//! A server of this model changes a text when it compiles it, so that a mutant needs no build. Two
//! variables of the environment control it:
//!
//! - `LAB_SCRIPT_MUTANTS` is a folder. For each text, a server writes the list of its mutants there,
//!   a line each: an id, and what the change is.
//! - `LAB_SCRIPT_MUTANT` is the id of the mutant that runs.
//!
//! An id depends on the changed statement and the lines around it. So a statement in a part that
//! several scripts share has one id, and the change is made in all of them. `cargo xtask scripts`
//! runs all mutants.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

use crate::script::sha1hex;

/// A change of a text.
struct Mutant {
    id: String,
    range: Range<usize>,
    new: String,
}

/// Returns the text that a server compiles in place of this one.
pub(crate) fn text_to_run(bytes: &[u8]) -> Cow<'_, [u8]> {
    static ACTIVE: OnceLock<Option<String>> = OnceLock::new();
    let Ok(text) = str::from_utf8(bytes) else {
        return Cow::Borrowed(bytes);
    };
    if let Some(folder) = std::env::var_os("LAB_SCRIPT_MUTANTS") {
        let lines: Vec<String> = mutants(text)
            .iter()
            .map(|mutant| format!("{}\t{}", mutant.id, mutant.describe(text)))
            .collect();
        let path = std::path::Path::new(&folder).join(sha1hex(bytes));
        std::fs::write(path, lines.join("\n")).expect("the folder of lists can be written");
    }
    let Some(active) = ACTIVE.get_or_init(|| std::env::var("LAB_SCRIPT_MUTANT").ok()) else {
        return Cow::Borrowed(bytes);
    };

    let mut changed = text.to_owned();
    let sites = mutants(text).into_iter();
    for Mutant { range, new, .. } in sites.rev().filter(|mutant| mutant.id == *active) {
        changed.replace_range(range, &new);
    }
    Cow::Owned(changed.into_bytes())
}

impl Mutant {
    fn describe(&self, text: &str) -> String {
        let begin = text[..self.range.start].rfind('\n').map_or(0, |at| at + 1);
        let end = text[self.range.end..].find('\n');
        let end = end.map_or(text.len(), |at| self.range.end + at);
        let (before, after) = (&text[begin..self.range.start], &text[self.range.end..end]);
        let old = &text[self.range.clone()];
        let line = format!("{before}⟦{old} → {}⟧{after}", self.new);
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A name, a number, a text, or a keyword that is a value.
    Value,
    Keyword,
    /// An operator with two operands, which binds the more tightly the larger the number is.
    Operator(u8),
    Open,
    Close,
    Other,
}

struct Token<'a> {
    text: &'a str,
    start: usize,
    kind: Kind,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Whether an operand may end here.
    fn ends_operand(&self) -> bool {
        matches!(self.kind, Kind::Value | Kind::Close) || self.text == "end"
    }
}

/// Comparisons, and what a mutant compares in their place.
const EXCHANGED: [(&str, &str); 6] = [
    ("<", "<="),
    ("<=", "<"),
    (">", ">="),
    (">=", ">"),
    ("==", "~="),
    ("~=", "=="),
];

fn mutants(text: &str) -> Vec<Mutant> {
    let tokens = tokens(text);
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();

    for (at, token) in tokens.iter().enumerate() {
        let whole = token.start..token.end();
        if begins_statement(&tokens, at) && token.kind == Kind::Value {
            changes.push((token.start..statement_end(&tokens, at), String::new()));
        }
        if matches!(token.text, "if" | "elseif" | "while") {
            let mut rest = tokens[at..].iter();
            let then = rest.position(|token| matches!(token.text, "then" | "do"));
            let then = at + then.expect("a condition ends");
            let range = tokens[at + 1].start..tokens[then - 1].end();
            let negated = format!("not ({})", &text[range.clone()]);
            changes.push((range, negated));
        }
        if let Kind::Operator(strength) = token.kind {
            let left = operand_begin(&tokens, at, strength)..token.end();
            let right = token.start..operand_end(&tokens, at + 1, strength);
            if matches!(token.text, "and" | "or" | "+" | "-") {
                changes.push((right, String::new()));
                changes.push((left, String::new()));
            }
            let mut pairs = EXCHANGED.iter();
            if let Some((_, other)) = pairs.find(|(operator, _)| *operator == token.text) {
                changes.push((whole.clone(), (*other).to_owned()));
            }
        }
        if matches!(token.text, "math.max" | "math.min") {
            let begin = tokens[at + 1].end();
            let comma = operand_end(&tokens, at + 2, 0);
            let close = operand_end(&tokens, at, 7);
            for one in [begin..comma, comma + 1..close - 1] {
                changes.push((token.start..close, format!("({})", text[one].trim())));
            }
        }
        let digits = token.text.trim_matches('\'');
        if let (Ok(number), false) = (digits.parse::<u64>(), is_position(&tokens, at)) {
            let is_small = number < 1000;
            let other = if is_small { number + 1 } else { number / 1000 };
            changes.push((whole, token.text.replace(digits, &other.to_string())));
        }
    }

    let with_id = |(range, new): (Range<usize>, String)| {
        let context = context(text, &range);
        let id = sha1hex(format!("{context}\n{new}").as_bytes())[..10].to_owned();
        Mutant { id, range, new }
    };
    let mut mutants: Vec<Mutant> = changes.into_iter().map(with_id).collect();
    mutants.sort_by_key(|mutant| mutant.range.start);
    mutants
}

/// The lines of a change and one on each side, with the place of the change in them.
fn context(text: &str, range: &Range<usize>) -> String {
    let line_before = |at: usize| text[..at].rfind('\n').unwrap_or(0);
    let line_after = |at: usize| text[at..].find('\n').map_or(text.len(), |next| at + next);
    let begin = line_before(line_before(range.start));
    let end = line_after((line_after(range.end) + 1).min(text.len()));
    format!(
        "{}⟦{}⟧{}",
        &text[begin..range.start],
        &text[range.clone()],
        &text[range.end..end]
    )
}

/// Whether a number is the position of a field, which the layout of the records decides.
fn is_position(tokens: &[Token<'_>], at: usize) -> bool {
    let mut depth = 0;
    for (at, token) in tokens[..at].iter().enumerate().rev() {
        match token.kind {
            Kind::Close => depth += 1,
            Kind::Open if depth > 0 => depth -= 1,
            Kind::Open => {
                let caller = at.checked_sub(1).map_or("", |at| tokens[at].text);
                return matches!(caller, "sub" | "match" | "string.sub" | "string.match");
            }
            _ => {}
        }
    }
    false
}

/// Whether a token can be the first one of a statement.
fn begins_statement(tokens: &[Token<'_>], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|at| &tokens[at]) else {
        return true;
    };
    let follows_block = matches!(before.text, "then" | "do" | "else" | "repeat" | ";");
    follows_block || (before.ends_operand() && tokens[at].kind == Kind::Value)
}

/// The end of the statement that begins at a token.
fn statement_end(tokens: &[Token<'_>], from: usize) -> usize {
    end(tokens, from, |at, token| match token.kind {
        Kind::Keyword => token.text != "not",
        Kind::Value => begins_statement(tokens, at),
        _ => false,
    })
}

/// The end of the operand that begins at a token, and whose operators bind more tightly than
/// `strength`.
fn operand_end(tokens: &[Token<'_>], from: usize, strength: u8) -> usize {
    end(tokens, from, |at, token| match token.kind {
        Kind::Operator(other) => other <= strength,
        Kind::Keyword => token.text != "not",
        Kind::Value => begins_statement(tokens, at),
        _ => token.text == ",",
    })
}

/// The end of the token before the first one outside of brackets that `ends` a part.
fn end(tokens: &[Token<'_>], from: usize, ends: impl Fn(usize, &Token<'_>) -> bool) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        let is_end = token.kind == Kind::Close || (at > from && ends(at, token));
        match token.kind {
            _ if is_end && depth == 0 => return tokens[at - 1].end(),
            Kind::Open => depth += 1,
            Kind::Close => depth -= 1,
            _ => {}
        }
    }
    tokens.last().map_or(0, Token::end)
}

/// The beginning of the left operand of the operator at a token.
fn operand_begin(tokens: &[Token<'_>], operator: usize, strength: u8) -> usize {
    let mut depth = 0;
    for at in (0..operator).rev() {
        let token = &tokens[at];
        let ends = match token.kind {
            Kind::Open => depth == 0,
            Kind::Operator(other) => other < strength,
            Kind::Keyword => token.text != "not",
            Kind::Other => matches!(token.text, "," | "="),
            Kind::Value | Kind::Close => false,
        };
        match token.kind {
            _ if ends && depth == 0 => return tokens[at + 1].start,
            Kind::Close => depth += 1,
            Kind::Open => depth -= 1,
            _ => {}
        }
    }
    0
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens: Vec<Token<'_>> = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let until = |end: &dyn Fn(char) -> bool| rest.find(end).unwrap_or(rest.len());
        let is_comment = rest.starts_with("--");
        let len = match first {
            _ if is_comment => until(&|c| c == '\n'),
            '\'' => 2 + rest[1..].find('\'').expect("a text ends in its line"),
            // `math.max` is one token, and `a..b` is three.
            c if is_word(c) => {
                let word = until(&|c| !is_word(c) && c != '.');
                rest[..word].find("..").unwrap_or(word)
            }
            _ if TWO.iter().any(|two| rest.starts_with(two)) => 2,
            c => c.len_utf8(),
        };

        if !first.is_whitespace() && !is_comment {
            let after_operand = tokens.last().is_some_and(Token::ends_operand);
            let text = &rest[..len];
            let kind = kind(text, after_operand);
            tokens.push(Token {
                text,
                start: at,
                kind,
            });
        }
        at += len;
    }
    tokens
}

/// The operators of two characters.
const TWO: [&str; 5] = ["==", "~=", "<=", ">=", ".."];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn kind(word: &str, after_operand: bool) -> Kind {
    match word {
        "or" => Kind::Operator(1),
        "and" => Kind::Operator(2),
        "<" | "<=" | ">" | ">=" | "==" | "~=" => Kind::Operator(3),
        ".." => Kind::Operator(4),
        "+" | "-" if after_operand => Kind::Operator(5),
        "*" | "/" | "%" => Kind::Operator(6),
        "(" | "[" | "{" => Kind::Open,
        ")" | "]" | "}" => Kind::Close,
        "not" | "if" | "elseif" | "else" | "then" | "while" | "do" | "for" | "in" | "repeat"
        | "until" | "return" | "local" | "function" | "end" | "break" => Kind::Keyword,
        _ if word.starts_with(|c| is_word(c) || c == '\'') => Kind::Value,
        _ => Kind::Other,
    }
}
