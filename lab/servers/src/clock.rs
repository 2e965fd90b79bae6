//! A separate wall clock for a program. A test can set this clock and make it run faster or slower.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::child::Program;

const SOURCE: &str = include_str!("clock.c");

/// A library that replaces the C library's wall clock, and the file that sets the clock.
///
/// A program that is started with its [environment](Self::environment) uses this clock. A program
/// that calls the kernel without the C library still reads the machine's clock.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

/// One setting, with the layout of `clock.c`.
///
/// The clock showed `reading` when the machine's clock showed `since`. From then on the clock gains
/// `gain` millionths of the time that passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Setting {
    since: i64,
    reading: i64,
    gain: i64,
}

/// The number of settings that fit into the file, one after another.
const SETTINGS: u64 = 128;
/// The size of one setting in bytes.
const SETTING: u64 = 32;
/// The offset of the first setting in bytes.
const HEAD: u64 = 8;

const SECOND: i64 = 1_000_000_000;

impl Clock {
    /// Makes a clock that shows the same time as the machine's clock.
    pub(crate) fn make(folder: &Path) -> Self {
        Self::several(folder, 1)
            .pop()
            .expect("the list has one clock")
    }

    /// Makes `count` clocks in a folder. Each shows the same time as the machine's clock.
    #[must_use]
    pub fn several(folder: &Path, count: usize) -> Vec<Self> {
        let library = compile(folder);
        let one = |number| {
            let file = folder.join(format!("clock-{number}"));
            let made =
                File::create(&file).and_then(|made| made.set_len(spec(0) + SETTINGS * SETTING));
            made.expect("a temporary folder is writable");
            Self {
                library: library.clone(),
                file,
            }
        };
        (0..count).map(one).collect()
    }

    /// Sets the clock `ahead` seconds ahead of the machine's clock, or behind it if negative. From
    /// then on the clock runs at the speed of the machine's clock.
    pub fn set(&self, ahead: i64) {
        let now = machine();
        self.write(Setting {
            since: now,
            reading: now + ahead * SECOND,
            gain: 0,
        });
    }

    /// Moves the clock forward by `by` seconds from its current time, or back if negative. The
    /// clock keeps its speed.
    pub fn step(&self, by: i64) {
        let now = machine();
        let before = self.read();
        self.write(Setting {
            since: now,
            reading: before.at(now) + by * SECOND,
            gain: before.gain,
        });
    }

    /// Makes the clock gain `millionths` of the time that passes from now on, or lose them if
    /// negative.
    pub fn gain(&self, millionths: i64) {
        let now = machine();
        self.write(Setting {
            since: now,
            reading: self.read().at(now),
            gain: millionths,
        });
    }

    /// The number of readings of the clock since the last setting.
    #[must_use]
    pub fn readings(&self) -> u64 {
        self.number(spec(self.number(0)) + 24)
    }

    /// The environment variables for a program that uses this clock.
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
            .expect("the file was made with the clock");
        file.write_all_at(&bytes, spec(next))
            .expect("a temporary folder can be written");
        file.write_all_at(&next.to_ne_bytes(), 0)
            .expect("a temporary folder can be written");
    }

    fn number(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        let file = File::open(&self.file).expect("the file was made with the clock");
        file.read_exact_at(&mut bytes, at)
            .expect("the file has its full length");
        u64::from_ne_bytes(bytes)
    }
}

impl Setting {
    /// The reading of the clock when the machine's clock shows `now`.
    fn at(self, now: i64) -> i64 {
        let passed = now - self.since;
        let gained = i128::from(passed) * i128::from(self.gain) / 1_000_000;
        self.reading + passed + i64::try_from(gained).expect("a gain of some hours fits")
    }
}

fn spec(number: u64) -> u64 {
    HEAD + number % SETTINGS * SETTING
}

/// The machine's wall clock in nanoseconds since 1970.
fn machine() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the machine's clock is later than 1970");
    i64::try_from(now.as_nanos()).expect("the machine's clock is earlier than 2262")
}

fn compile(folder: &Path) -> PathBuf {
    // Rust links with `cc`, so most machines have it. The check reports a machine without it.
    let compiler = Program::installed("cc", "gcc");
    compiler.must_be_there();

    let source = folder.join("clock.c");
    let library = folder.join("clock.so");
    fs::write(&source, SOURCE).expect("a temporary folder is writable");

    let mut compile = Command::new("cc");
    compile
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .stdin(Stdio::null());

    let done = compile.output().expect("cc can be started");
    assert!(
        done.status.success(),
        "cc did not compile the clock: {}",
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
