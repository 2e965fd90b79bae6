//! What an input may cost: time, memory, and no panic in any thread.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Once};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use peak_alloc::PeakAlloc;

use crate::targets::Target;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// An input that takes longer is taken for an endless loop.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Every allocation is counted, so this includes what the checks themselves need.
const MEMORY_BASE: usize = 1024 * 1024;
/// Parsers copy what they read, some of them several times.
const MEMORY_PER_BYTE: usize = 256;

/// The first panic of an input, in any thread.
static PANIC: Mutex<Option<String>> = Mutex::new(None);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// When the running input began, in milliseconds; 0 between inputs.
static BEGAN: AtomicU64 = AtomicU64::new(0);

/// The store catches panics of this file, which the client library of ZooKeeper has. FOUND.md has
/// them as F-165.
const CAUGHT: &str = "zookeeper-client-0.11.2/src/util.rs";

/// The seed of the running input, in decimal. If the process aborts, only the file is left.
static SEED: LazyLock<File> = LazyLock::new(|| {
    File::create(seed_file()).expect("the folder of temporary files can be written")
});

/// Notes the seed of the inputs that run next.
pub(crate) fn note_seed(seed: u64) {
    let text = format!("{seed:020}");
    let noted = SEED.write_all_at(text.as_bytes(), 0);
    noted.expect("the file is open");
}

/// Runs a target with an input. Returns what the input did wrong.
pub(crate) fn violation(target: &Target, input: &[u8]) -> Option<String> {
    static ONCE: Once = Once::new();
    ONCE.call_once(watch);
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();

    BEGAN.store(now().max(1), Ordering::Relaxed);
    let ended = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    BEGAN.store(0, Ordering::Relaxed);

    let used = MEMORY.peak_usage().saturating_sub(before);
    let allowed = MEMORY_BASE + target.memory + MEMORY_PER_BYTE * input.len();
    if let Some(panic) = PANIC.lock().take() {
        return Some(panic);
    }
    if ended.is_err() {
        return Some(format!("nothing catches a panic in {CAUGHT}"));
    }
    (used > allowed).then(|| format!("it allocates {used} bytes for {} bytes", input.len()))
}

/// Returns the file with the seed of the input that runs.
pub(crate) fn seed_file() -> PathBuf {
    std::env::temp_dir().join(format!("leasehold-fuzz-{}", process::id()))
}

/// Records panics, and ends the process at an input that does not return.
fn watch() {
    panic::set_hook(Box::new(|panic| {
        let location = panic.location();
        if location.is_some_and(|location| location.file().ends_with(CAUGHT)) {
            return;
        }
        PANIC.lock().get_or_insert_with(|| panic.to_string());
    }));

    thread::spawn(|| {
        loop {
            thread::sleep(Duration::from_secs(1));
            let began = BEGAN.load(Ordering::Relaxed);
            let limit = u64::try_from(TIME_MAX.as_millis()).unwrap_or(u64::MAX);
            if began > 0 && now().saturating_sub(began) > limit {
                let seed = seed_file();
                eprintln!(
                    "an input does not return; its seed is in {}",
                    seed.display()
                );
                process::exit(1);
            }
        }
    });
}

fn now() -> u64 {
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}
