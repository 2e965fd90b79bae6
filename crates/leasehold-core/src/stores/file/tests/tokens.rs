//! Tokens over torn writes, reboots and a deleted folder.

use super::*;

/// Shows G-04.
#[tokio::test]
async fn tokens_increase_over_torn_write_and_reboot() {
    const FEW: u64 = FIRST_RANGE;
    const MANY: u64 = FIRST_RANGE + RANGE;
    const GRANTS: [u64; 8] = [1, 2, 3, FEW - 1, FEW, FEW + 1, MANY, MANY + 1];

    for block in [0, BLOCK] {
        for grants in GRANTS {
            for boot in [THIS, NEXT] {
                let test_folder = TestFolder::new();
                let locks = test_folder.boot(THIS);
                let mut last = 0;
                for _ in 0..grants {
                    last = grant(&locks).await;
                }
                drop(locks);
                test_folder.overwrite(block + 20, &[0xAB; 7]);
                test_folder.overwrite_counter(block + 20, &[0xAB; 7]);
                let locks = test_folder.boot(boot);
                let next = grant(&locks).await;
                assert!(
                    next > last,
                    "{next} after {last}: block at {block}, {grants} grants"
                );
                assert!(grant(&locks).await > next);
            }
        }
    }
}

/// The tests above choose the boot; a store takes the one of the kernel.
///
/// Shows G-04.
#[test]
fn boot_is_the_one_that_the_kernel_names() {
    let boot = crate::stores::file::counter::this_boot().expect("/proc is complete");
    let named = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("readable");
    let named = uuid::Uuid::parse_str(named.trim()).expect("a UUID");
    assert_eq!(boot, named.into_bytes());
}

/// Shows G-04.
#[tokio::test]
async fn tokens_increase_over_reboots_and_a_deleted_folder() {
    let test_folder = TestFolder::new();
    let mut last = 0;
    for boot in 0..5 {
        let next = grant(&test_folder.boot([boot; 16])).await;
        assert!(next > last);
        last = next;
    }
    fs::remove_dir_all(test_folder.folder.path()).expect("it can be deleted");

    // Each boot skips the reserved tokens, so the last token may be some milliseconds ahead of the
    // clock.
    while wall_clock_micros() <= last {
        tokio::task::yield_now().await;
    }
    assert!(
        grant(&test_folder.boot(THIS)).await > last,
        "a new counter begins at the clock"
    );
}

/// A process was killed while it reserved tokens, or the sync failed, before the reservation was on
/// the disk. The next process does not use the reservation.
///
/// Shows G-04.
#[test]
fn unsynced_reservation_is_not_used() {
    let file = tempfile::tempfile().expect("a temporary file");
    let mut counter = counter::TokenCounter::fresh(THIS);
    counter.reserve(&file).expect("written");
    assert!(!counter.is_spent());
    let last = counter.last_token;
    counter.set_reserved(&file).expect("written");
    let mut bytes = vec![0; COUNTER_LEN];
    file.read_at(&mut bytes, 0).expect("read");
    let counter::CounterState::Intact(found) = counter::TokenCounter::read(&bytes) else {
        panic!("both blocks are sound")
    };

    assert!(found.is_spent() && found.last_token >= last, "{found:?}");

    // The kernel writes to this file, and cannot sync it.
    let unsynced = fs::File::options().write(true).open("/dev/null");
    let mut counter = counter::TokenCounter::fresh(THIS);
    let reserved = counter.reserve(&unsynced.expect("opened"));
    reserved.expect_err("the sync failed");
    assert!(counter.is_spent(), "{counter:?}");
}

/// The files of a name were deleted by hand. The counter of the folder is above its tokens.
#[tokio::test]
async fn tokens_increase_over_deleted_files_of_a_name() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    let mut last = 0;
    for grants in [1, FIRST_RANGE, FIRST_RANGE + 1] {
        for _ in 0..grants {
            let next = grant(&locks).await;
            assert!(next > last, "{next} after {last}");
            last = next;
        }
        fs::remove_file(test_folder.queue()).expect("removed");
    }
}

pub(super) fn wall_clock_micros() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the wall clock is set");
    u64::try_from(since_epoch.as_micros()).expect("it fits for 500,000 years")
}
