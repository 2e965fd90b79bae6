//! The kept inputs of a target, in a file that people can read.
//!
//! A line is a name, a colon, a space and an input. In an input, `\r`, `\n`, `\\` and `\xNN` are
//! bytes as in Rust, and `\0{N}` is a run of N zero bytes.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// The kept inputs of one target.
#[derive(Debug, Default)]
pub struct Corpus {
    inputs: Vec<(String, Vec<u8>)>,
}

impl Corpus {
    /// Reads the file of a target.
    ///
    /// # Errors
    /// If the file is missing or malformed.
    pub fn read(target: &str) -> Result<Self> {
        let path = folder().join(format!("{target}.txt"));
        let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;

        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let inputs = lines.map(|line| {
            let (name, input) = line.split_once(": ").context("a line has no name")?;
            let input = decode(input).with_context(|| format!("{name} is malformed"))?;
            Ok((name.to_owned(), input))
        });
        Ok(Self {
            inputs: inputs.collect::<Result<_>>()?,
        })
    }

    /// Returns the names and the inputs.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let inputs = self.inputs.iter();
        inputs.map(|(name, input)| (name.as_str(), input.as_slice()))
    }

    /// Returns an input.
    pub(crate) fn draw(&self, rng: &mut fastrand::Rng) -> &[u8] {
        let drawn = rng.choice(&self.inputs);
        drawn.map_or(&[], |(_, input)| input)
    }
}

/// Returns the line of an input, for the file of its target.
pub(crate) fn line(name: &str, input: &[u8]) -> String {
    format!("{name}: {}", encode(input))
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn encode(input: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = input;
    while let Some((first, tail)) = rest.split_first() {
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        if zeros > 1 {
            let run = format!("\\0{{{zeros}}}");
            text.push_str(&run);
            rest = &rest[zeros..];
            continue;
        }
        text.push_str(&encoded(*first));
        rest = tail;
    }
    text
}

fn encoded(byte: u8) -> String {
    match byte {
        b'\r' => "\\r".to_owned(),
        b'\n' => "\\n".to_owned(),
        b'\\' => "\\\\".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut input = Vec::new();
    let mut rest = text;
    while let Some(escape) = rest.find('\\') {
        input.extend(rest[..escape].bytes());
        rest = &rest[escape + 1..];
        let (kind, tail) = rest.split_at_checked(1)?;
        rest = tail;

        match kind {
            "r" => input.push(b'\r'),
            "n" => input.push(b'\n'),
            "\\" => input.push(b'\\'),
            "x" => {
                let (digits, tail) = rest.split_at_checked(2)?;
                input.push(u8::from_str_radix(digits, 16).ok()?);
                rest = tail;
            }
            "0" => {
                let (count, tail) = rest.strip_prefix('{')?.split_once('}')?;
                input.resize(input.len() + count.parse::<usize>().ok()?, 0);
                rest = tail;
            }
            _ => return None,
        }
    }
    input.extend(rest.bytes());
    Some(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_round_trips() {
        let all: Vec<u8> = (0..=255).chain([0; 40]).chain(*b"\\0{9}").collect();

        assert_eq!(decode(&encode(&all)), Some(all));
        assert_eq!(encode(b"a\0\0\r\n\xff"), r"a\0{2}\r\n\xff");
        assert_eq!(decode(r"\q"), None);
    }
}
