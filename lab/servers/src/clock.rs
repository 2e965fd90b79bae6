//! A wall clock of its own for a server, which a test can set.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::child::Program;

const SOURCE: &str = include_str!("clock.c");

/// A library that takes the place of the C library's clock, and the file that sets it.
#[derive(Debug)]
pub(crate) struct Clock {
    library: PathBuf,
    ahead: PathBuf,
}

impl Clock {
    /// Makes one that agrees with the machine's.
    pub(crate) fn make(folder: &Path) -> Self {
        // Rust links with it, so it is there; the check says so where it is not.
        let compiler = Program::installed("cc", "gcc");
        compiler.must_be_there();
        let (source, clock) =
            (folder.join("clock.c"), Self { library: folder.join("clock.so"), ahead: folder.join("clock") });
        fs::write(&source, SOURCE).expect("a temporary folder can be written");
        fs::write(&clock.ahead, [0; 8]).expect("a temporary folder can be written");
        let mut compile = Command::new("cc");
        compile.args(["-O2", "-shared", "-fPIC", "-o"]).args([&clock.library, &source]).stdin(Stdio::null());
        let done = compile.output().expect("cc can be started");
        assert!(done.status.success(), "cc makes no clock: {}", String::from_utf8_lossy(&done.stderr));
        clock
    }

    /// Sets it ahead of the machine's by so many seconds, or behind.
    pub(crate) fn set(&self, ahead: i64) {
        let file = File::options().write(true).open(&self.ahead).expect("it was made");
        file.write_all_at(&ahead.to_ne_bytes(), 0).expect("a temporary folder can be written");
    }

    /// What a program that goes by it is started with.
    pub(crate) fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("LAB_SERVERS_CLOCK", &self.ahead)]
    }
}
