//! Resources that a lock protects, and what was done to them although it did.
//!
//! A victim is one file, its *journal*: each operation that was accepted is one line, in the order in which they happened.
//! What the resource holds, and the mark it goes by, are read from there; so whatever a checker says of a journal it says of the
//! resource. Any number of processes work on one.

mod check;

use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail};
use serde::{Deserialize, Serialize};

pub use check::{duplicates, lost_updates, regress};

/// What a resource accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FencingRule {
    /// Everything.
    Unfenced,
    /// Writes whose token is not below that of an earlier write. What is read shows it no token.
    Checked,
    /// What has a token above that of any earlier operation, a read included, or the same token of the same holder: the first
    /// under a new token seals it.
    Sealed,
}

/// One operation that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Whose: the number of a holder.
    pub worker: u32,
    /// Under which token; 0 where the lock has none.
    pub token: u64,
    /// What was done.
    pub kind: OpKind,
}

/// What can be done to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Found this number.
    Read(u64),
    /// Put this number in its place.
    Wrote(u64),
    /// Added an entry of this number.
    Appended(u64),
}

/// A resource in a file.
#[derive(Clone, Debug)]
pub struct Resource {
    file: PathBuf,
    rule: FencingRule,
}

impl Resource {
    /// The one in this file, which is made when something is first done to it.
    #[must_use]
    pub fn new(file: &Path, rule: FencingRule) -> Self {
        Self {
            file: file.to_owned(),
            rule,
        }
    }

    /// The number it holds, 0 at first; `None` if it refuses.
    ///
    /// # Errors
    /// As the system says.
    pub fn read(&self, worker: u32, token: u64) -> Result<Option<u64>> {
        let found = self.try_do(|ops| Op {
            worker,
            token,
            kind: OpKind::Read(number(ops)),
        })?;
        Ok(found.map(|op| {
            if let OpKind::Read(number) = op.kind {
                number
            } else {
                0
            }
        }))
    }

    /// Puts a number in place; whether it was accepted.
    ///
    /// # Errors
    /// As the system says.
    pub fn write(&self, worker: u32, token: u64, number: u64) -> Result<bool> {
        Ok(self
            .try_do(|_| Op {
                worker,
                token,
                kind: OpKind::Wrote(number),
            })?
            .is_some())
    }

    /// Adds an entry; whether it was accepted.
    ///
    /// # Errors
    /// As the system says.
    pub fn append(&self, worker: u32, token: u64, number: u64) -> Result<bool> {
        Ok(self
            .try_do(|_| Op {
                worker,
                token,
                kind: OpKind::Appended(number),
            })?
            .is_some())
    }

    /// Everything that was accepted, in order.
    ///
    /// # Errors
    /// If its file is none of ours.
    pub fn ops(&self) -> Result<Vec<Op>> {
        if !self.file.exists() {
            return Ok(Vec::new());
        }
        read(&File::open(&self.file)?)
    }

    /// In one step: nobody else comes between looking and doing.
    fn try_do(&self, make: impl FnOnce(&[Op]) -> Op) -> Result<Option<Op>> {
        let mut file = File::options()
            .create(true)
            .read(true)
            .append(true)
            .open(&self.file)?;
        file.lock()?;
        let ops = read(&file)?;
        let op = make(&ops);
        if !accepts(self.rule, &ops, op) {
            return Ok(None);
        }
        file.write_all(format!("{op}\n").as_bytes())?;
        Ok(Some(op))
    }
}

/// The rules, each in a line.
#[must_use]
pub fn accepts(rule: FencingRule, ops: &[Op], op: Op) -> bool {
    let is_read = |op: &Op| matches!(op.kind, OpKind::Read(_));
    match rule {
        FencingRule::Unfenced => true,
        FencingRule::Checked => {
            is_read(&op)
                || ops
                    .iter()
                    .all(|earlier| is_read(earlier) || earlier.token <= op.token)
        }
        FencingRule::Sealed => ops.iter().all(|earlier| {
            let is_same_grant = earlier.token == op.token && earlier.worker == op.worker;
            earlier.token < op.token || is_same_grant
        }),
    }
}

fn number(ops: &[Op]) -> u64 {
    let wrote = |op: &Op| {
        if let OpKind::Wrote(number) = op.kind {
            Some(number)
        } else {
            None
        }
    };
    ops.iter().rev().find_map(wrote).unwrap_or(0)
}

/// What was killed while it wrote has left no whole line.
fn read(mut file: &File) -> Result<Vec<Op>> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    text.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
        .map(str::parse)
        .collect()
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, number) = match self.kind {
            OpKind::Read(number) => ("read", number),
            OpKind::Wrote(number) => ("wrote", number),
            OpKind::Appended(number) => ("appended", number),
        };
        write!(f, "{} {} {what} {number}", self.worker, self.token)
    }
}

impl FromStr for Op {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [worker, token, what, number] = words[..] else {
            bail!("not an operation: {line:?}")
        };
        let number = number
            .parse()
            .with_context(|| format!("not an operation: {line:?}"))?;
        let kind = match what {
            "read" => OpKind::Read(number),
            "wrote" => OpKind::Wrote(number),
            "appended" => OpKind::Appended(number),
            other => bail!("nothing is called {other:?}"),
        };
        Ok(Op {
            worker: worker.parse()?,
            token: token.parse()?,
            kind,
        })
    }
}

/// An empty folder with one victim of each kind.
#[derive(Clone, Debug)]
pub struct Resources {
    /// A counter that everybody may read and write.
    pub counter: Resource,
    /// A register that is sealed by the first who reads it.
    pub register: Resource,
    /// A log that only grows.
    pub log: Resource,
}

impl Resources {
    /// Those in a folder, made if missing.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn of(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let killed = |name: &str, rule| Resource::new(&folder.join(name), rule);
        Ok(Self {
            counter: killed("counter", FencingRule::Unfenced),
            register: killed("register", FencingRule::Sealed),
            log: killed("log", FencingRule::Sealed),
        })
    }
}
