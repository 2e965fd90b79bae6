//! Resources that a lock protects, and violations of that protection.
//!
//! A resource is one file, its *journal*: each accepted operation is one line, in the order of
//! acceptance. The content of the resource and its highest token are read from the journal, so a
//! property of the journal is a property of the resource. Several processes can use one resource.

mod check;

use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail};
use serde::{Deserialize, Serialize};

pub use check::{duplicates, lost_updates, regress};

/// Which operations a resource accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FencingRule {
    /// Every operation.
    Unfenced,
    /// Every read, and every write whose token is not below that of an earlier write.
    Checked,
    /// An operation, also a read, with a token above all earlier ones, or with the same token and
    /// the same holder. The first operation with a new token seals the resource.
    Sealed,
}

/// One accepted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The number of the holder.
    pub worker: u32,
    /// The token; 0 where the lock has none.
    pub token: u64,
    /// The kind of operation.
    pub kind: OpKind,
}

/// The operations on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Read this number.
    Read(u64),
    /// Replaced the number by this one.
    Wrote(u64),
    /// Appended an entry with this number.
    Appended(u64),
}

/// A resource in a file.
#[derive(Clone, Debug)]
pub struct Resource {
    file: PathBuf,
    rule: FencingRule,
}

impl Resource {
    /// The resource in this file, which is created by the first operation.
    #[must_use]
    pub fn new(file: &Path, rule: FencingRule) -> Self {
        Self {
            file: file.to_owned(),
            rule,
        }
    }

    /// Reads the number, 0 at first; returns `None` if the resource rejects the operation.
    ///
    /// # Errors
    /// If the file cannot be read or written.
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

    /// Changes the resource, and returns whether the resource accepted it.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn change(&self, worker: u32, token: u64, kind: OpKind) -> Result<bool> {
        let op = Op {
            worker,
            token,
            kind,
        };
        Ok(self.try_do(|_| op)?.is_some())
    }

    /// All accepted operations, in order.
    ///
    /// # Errors
    /// If the file is not a journal.
    pub fn ops(&self) -> Result<Vec<Op>> {
        if !self.file.exists() {
            return Ok(Vec::new());
        }
        read(&File::open(&self.file)?)
    }

    /// Checks and appends one operation, atomically.
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

/// Whether a rule accepts an operation after these.
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

/// Skips the last line if a process was killed while it wrote it.
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
            other => bail!("the operation {other:?} does not exist"),
        };

        Ok(Op {
            worker: worker.parse()?,
            token: token.parse()?,
            kind,
        })
    }
}

/// A folder with one resource of each kind.
#[derive(Clone, Debug)]
pub struct Resources {
    /// A counter that every client may read and write.
    pub counter: Resource,
    /// A register that its first reader seals.
    pub register: Resource,
    /// A log to which entries are appended.
    pub log: Resource,
}

impl Resources {
    /// The resources in a folder, which is created if it is missing.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn of(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let resource = |name: &str, rule| Resource::new(&folder.join(name), rule);
        Ok(Self {
            counter: resource("counter", FencingRule::Unfenced),
            register: resource("register", FencingRule::Sealed),
            log: resource("log", FencingRule::Sealed),
        })
    }
}
