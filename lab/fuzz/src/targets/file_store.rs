//! The files of a folder, as another user of the folder or a broken disk may leave them.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use leasehold::store::ClaimId;
use leasehold::stores::File;
use leasehold::{FencingToken, Locks, Token, fence};
use tempfile::TempDir;
use tokio::runtime::Builder;

/// A disk is too slow for thousands of inputs.
const IN_MEMORY: &str = "/dev/shm";

/// The files whose content an input can be. An input begins with the file's name and a line feed.
const FILES: &[&str] = &[
    "job.queue",
    ".counter",
    "job.lock",
    ".members/0123456789abcdef0123456789abcdef",
    "data.fence/token",
];

/// The parts of a counter, as `stores/file/counter.rs` describes them.
const BLOCKS: [usize; 2] = [0, 512];
const BOOT: Range<usize> = 24..40;
const COUNTER_CRC: usize = 60;
/// The entries of claims, as `stores/file/entry.rs` describes them.
const ENTRIES: usize = 1024;
const ENTRY: usize = 256;
const ENTRY_CRC: usize = 252;

/// Opens a store in a folder with this file, and uses the lock and the resource that it is about.
pub(super) fn run(input: &[u8]) {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime is built");
    let folder = TempDir::new_in(IN_MEMORY).expect("a folder is made");
    write_file(folder.path(), input);

    runtime.block_on(async {
        // Every part may refuse what it finds, and none may panic.
        let _ = use_locks(folder.path()).await;
        let _ = use_resource(folder.path());
    });
}

/// Makes the checksums of the file in an input right, and its boot this one.
pub(super) fn repair(input: &mut Vec<u8>, rng: &mut Rng) {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let mut image = input.split_off(end + 1);

    repair_image(&mut image, rng);
    input.append(&mut image);
}

/// Makes the checksums of an image right, and its boot this one.
pub(super) fn repair_image(image: &mut [u8], rng: &mut Rng) {
    if rng.u8(..8) == 0 {
        return;
    }
    for block in BLOCKS {
        if let Some(bytes) = image.get_mut(block..block + COUNTER_CRC + 4) {
            bytes[BOOT].copy_from_slice(&*THIS_BOOT);
            write_crc(bytes, COUNTER_CRC);
        }
    }

    let entries = image.get_mut(ENTRIES..).unwrap_or_default();
    for bytes in entries.chunks_exact_mut(ENTRY) {
        write_crc(bytes, ENTRY_CRC);
    }
}

fn write_crc(bytes: &mut [u8], at: usize) {
    let crc = crc32fast::hash(&bytes[..at]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

static THIS_BOOT: LazyLock<[u8; 16]> = LazyLock::new(|| {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux has boot ids");
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).expect("a boot id is hexadecimal");
    number.to_be_bytes()
});

fn write_file(folder: &Path, input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n');
    let (name, content) = input.split_at(end.unwrap_or(0));
    let known = FILES.iter().find(|known| known.as_bytes() == name);
    let path = folder.join(known.unwrap_or(&FILES[0]));

    let parent = path.parent().expect("the file is in the folder");
    fs::create_dir_all(parent).expect("the folder is made");
    let mut content = content.get(1..).unwrap_or_default().to_vec();
    replace_kept_boot(&mut content);
    fs::write(path, content).expect("the file is written");
}

/// A kept counter has a boot of sevens, which is replaced by this boot.
fn replace_kept_boot(image: &mut [u8]) {
    for block in BLOCKS {
        let Some(bytes) = image.get_mut(block..block + COUNTER_CRC + 4) else {
            continue;
        };
        if bytes[BOOT] == [7; 16] {
            bytes[BOOT].copy_from_slice(&*THIS_BOOT);
            write_crc(bytes, COUNTER_CRC);
        }
    }
}

async fn use_locks(folder: &Path) -> Result<()> {
    let store = File::builder(folder).local(true).open()?;
    let locks = Locks::from_store(store, "file:")?;
    let brief = Duration::from_millis(5);

    let _names = locks.list("", 100).await;
    let _shown = locks.inspect("job").await.map(|state| format!("{state:?}"));
    for name in ["job", "other"] {
        if let Ok(Some(guard)) = locks.mutex(name).try_acquire_for(brief).await {
            let _shown = locks.inspect(name).await;
            guard.release().await?;
        }
    }
    let _removed = locks.remove_unused().await;
    Ok(())
}

fn use_resource(folder: &Path) -> Result<()> {
    let file = fence::File::open_stated_local(folder, "data")?;
    let _mark = file.highest_token();
    let token = Token::new(u64::MAX / 2).expect("it is above zero");
    file.seal(FencingToken::new(token, ClaimId::from_bytes([7; 16])))?;
    Ok(())
}
