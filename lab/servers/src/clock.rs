//! A wall clock of its own for a program, which a test can set, and let run faster or slower.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::child::Program;

const SOURCE: &str = include_str!("clock.c");

/// A library that takes the place of the C library's wall clock, and the file that sets it: with its
/// [environment](Self::environment) a program goes by it. One that asks the kernel without the C library does not.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

/// As in `clock.c`: at `since` of the machine's clock it told `reading`, and gains so many millionths from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Setting {
    since: i64,
    reading: i64,
    gain: i64,
}

/// How many settings the file has room for, each after the other, and in bytes what one takes and where they begin.
const SETTINGS: u64 = 128;
const SETTING: u64 = 32;
const HEAD: u64 = 8;

const SECOND: i64 = 1_000_000_000;

impl Clock {
    /// Makes one that agrees with the machine's.
    pub(crate) fn make(folder: &Path) -> Self {
        Self::several(folder, 1).pop().expect("one was asked for")
    }

    /// Makes some that agree with the machine's, in a folder.
    #[must_use]
    pub fn several(folder: &Path, count: usize) -> Vec<Self> {
        let library = compile(folder);
        let one = |number| {
            let file = folder.join(format!("clock-{number}"));
            let made =
                File::create(&file).and_then(|made| made.set_len(spec(0) + SETTINGS * SETTING));
            made.expect("a temporary folder can be written");
            Self {
                library: library.clone(),
                file,
            }
        };
        (0..count).map(one).collect()
    }

    /// Sets it ahead of the machine's by so many seconds, or behind. It runs as the machine's from there.
    pub fn set(&self, ahead: i64) {
        let now = machine();
        self.write(Setting {
            since: now,
            reading: now + ahead * SECOND,
            gain: 0,
        });
    }

    /// Sets it ahead by so many seconds, or back, from where it is. It runs as before.
    pub fn step(&self, by: i64) {
        let (now, before) = (machine(), self.read());
        self.write(Setting {
            since: now,
            reading: before.at(now) + by * SECOND,
            gain: before.gain,
        });
    }

    /// Lets it gain so many millionths of the time that passes from now on, or lose them.
    pub fn gain(&self, millionths: i64) {
        let now = machine();
        self.write(Setting {
            since: now,
            reading: self.read().at(now),
            gain: millionths,
        });
    }

    /// How often it has been read since it was set last.
    #[must_use]
    pub fn readings(&self) -> u64 {
        self.number(spec(self.number(0)) + 24)
    }

    /// What a program that goes by it is started with.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, &Path); 2] {
        [
            ("LD_PRELOAD", &self.library),
            ("LAB_SERVERS_CLOCK", &self.file),
        ]
    }

    fn read(&self) -> Setting {
        let at = spec(self.number(0));
        let [since, reading, gain] = [0, 8, 16].map(|more| self.number(at + more).cast_signed());
        Setting {
            since,
            reading,
            gain,
        }
    }

    fn write(&self, setting: Setting) {
        let next = self.number(0) + 1;
        let Setting {
            since,
            reading,
            gain,
        } = setting;
        let bytes: Vec<u8> = [since, reading, gain, 0]
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        let file = File::options()
            .write(true)
            .open(&self.file)
            .expect("it was made");
        file.write_all_at(&bytes, spec(next))
            .expect("a temporary folder can be written");
        file.write_all_at(&next.to_ne_bytes(), 0)
            .expect("a temporary folder can be written");
    }

    fn number(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        let file = File::open(&self.file).expect("it was made");
        file.read_exact_at(&mut bytes, at)
            .expect("it is as long as it was made");
        u64::from_ne_bytes(bytes)
    }
}

impl Setting {
    /// What it tells when the machine's clock tells `now`.
    fn at(self, now: i64) -> i64 {
        let passed = now - self.since;
        let gained = i128::from(passed) * i128::from(self.gain) / 1_000_000;
        self.reading + passed + i64::try_from(gained).expect("some hours")
    }
}

fn spec(number: u64) -> u64 {
    HEAD + number % SETTINGS * SETTING
}

/// Nanoseconds of the machine's wall clock.
fn machine() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("it is later than 1970");
    i64::try_from(now.as_nanos()).expect("it is earlier than 2262")
}

fn compile(folder: &Path) -> PathBuf {
    // Rust links with it, so it is there; the check says so where it is not.
    let compiler = Program::installed("cc", "gcc");
    compiler.must_be_there();
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    fs::write(&source, SOURCE).expect("a temporary folder can be written");
    let mut compile = Command::new("cc");
    compile
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .stdin(Stdio::null());
    let done = compile.output().expect("cc can be started");
    assert!(
        done.status.success(),
        "cc makes no clock: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    library
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_continues_from_its_setting() {
        let setting = Setting {
            since: 100,
            reading: 50,
            gain: 1_000_000,
        };
        assert_eq!((setting.at(100), setting.at(130)), (50, 110));
        assert_eq!(
            Setting {
                gain: -500_000,
                ..setting
            }
            .at(130),
            65
        );
        assert_eq!(Setting::default().at(130), 130);
    }
}
