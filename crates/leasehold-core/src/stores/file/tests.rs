//! Torn writes, other boots, and interference by other programs, which only unit tests can make.

mod cleaners;
mod folders;
mod format;
mod housekeeping;
mod kept_files;
mod records;
mod threads;
mod tokens;
mod waiting;

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;

use self::tokens::wall_clock_micros;
use super::counter::{COUNTER_LEN, FIRST_RANGE, RANGE};
use super::entry::ENTRY_LEN;
use super::process::{ProcessId, Wakeups};
use super::*;
use crate::local_fs::Locality;
use crate::store::{claimant_here, draw_claim_id};
use crate::{ClaimId, ClaimantInfo, Locks, Share, Token};

const BLOCK: u64 = COUNTER_LEN as u64 / 2;
const THIS: Boot = [1; 16];
const NEXT: Boot = [2; 16];

struct TestFolder {
    folder: tempfile::TempDir,
}

impl TestFolder {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    fn boot(&self, boot: Boot) -> Locks {
        let store = File::of_boot(self.folder.path(), boot).expect("the folder opens");
        Locks::from_arc(Arc::new(store), "file:").expect("the background thread runs")
    }

    fn store(&self) -> File {
        File::of_boot(self.folder.path(), THIS).expect("the folder opens")
    }

    fn opened(&self) -> Arc<Folder> {
        let folder = Folder::open(self.folder.path(), Locality::Known, None);
        Arc::new(folder.expect("the folder opens"))
    }

    fn queue(&self) -> PathBuf {
        self.folder.path().join("a.queue")
    }

    fn counter(&self) -> PathBuf {
        self.folder.path().join(".counter")
    }

    fn overwrite(&self, at: u64, bytes: &[u8]) {
        overwrite(&self.queue(), at, bytes);
    }

    fn overwrite_counter(&self, at: u64, bytes: &[u8]) {
        overwrite(&self.counter(), at, bytes);
    }
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(path)
        .expect("the file exists");
    file.write_all_at(bytes, at).expect("it can be written");
}

async fn grant(locks: &Locks) -> u64 {
    let guard = locks
        .mutex("a")
        .try_acquire()
        .await
        .expect("the store replies")
        .expect("the lock is free");
    let token = guard.token().get();
    guard.release().await.expect("released");
    token
}

fn claim() -> Claim {
    Claim {
        name: Name::parse("a").expect("a good name"),
        id: draw_claim_id(),
        share: Share::MUTEX,
        lease: Duration::from_secs(30),
        auto_renew: true,
        reserved: 0,
        by_watchdog: false,
        info: claimant_here("label").expect("a good label").into(),
    }
}
