//! The limit on files: the system calls themselves.

use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::inotify;

use super::{Peer, nanos};
use crate::workload::Workload;

/// A peer that locks files of a folder with flock(2), and sends messages by writing to them.
pub(super) struct Files {
    folder: PathBuf,
    writes: Option<OwnedFd>,
}

impl Peer for Files {
    fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>> {
        Ok(Some(match task {
            Workload::Pairs { name, count } => self.pairs(name, *count)?,
            Workload::Subscribe => self.subscribe()?,
            Workload::Receive { count } => self.receive(*count)?,
            Workload::Publish { count, gap_micros } => {
                self.publish(*count, Duration::from_micros(*gap_micros))?
            }
            Workload::Names { .. } | Workload::Contend { .. } => return Ok(None),
        }))
    }
}

impl Files {
    pub(super) fn in_folder(folder: &str) -> Self {
        Self {
            folder: folder.into(),
            writes: None,
        }
    }

    /// Opens a file, locks it, and closes it, which unlocks it.
    fn pairs(&self, name: &str, count: usize) -> Result<Vec<u64>> {
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            self.open(name)?.lock()?;
            took.push(nanos(begun.elapsed()));
        }
        Ok(took)
    }

    fn subscribe(&mut self) -> Result<Vec<u64>> {
        if self.writes.is_none() {
            let writes = inotify::init(inotify::CreateFlags::CLOEXEC)?;
            inotify::add_watch(&writes, &self.folder, inotify::WatchFlags::MODIFY)?;
            self.writes = Some(writes);
        }
        Ok(Vec::new())
    }

    fn receive(&self, count: usize) -> Result<Vec<u64>> {
        let writes = self.writes.as_ref().context("the peer is not subscribed")?;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(writes, &mut buffer);
        let mut came = Vec::with_capacity(count);
        for _ in 0..count {
            events.next()?;
            came.push(lab::now());
        }
        Ok(came)
    }

    /// Writes to two files in turn, because the kernel merges equal events.
    fn publish(&self, count: usize, gap: Duration) -> Result<Vec<u64>> {
        let mut files = [self.open("even")?, self.open("odd")?];
        let mut sent = Vec::with_capacity(count);
        for number in 0..count {
            sent.push(lab::now());
            files[number % 2].write_all(b"x")?;
            sleep(gap);
        }
        Ok(sent)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.folder.join(name))
    }
}
