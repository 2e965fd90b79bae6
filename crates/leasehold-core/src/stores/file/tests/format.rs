//! Queue files that are torn, truncated, foreign or of another boot.

use super::*;

/// Shows G-23.
#[tokio::test]
async fn torn_counter_is_refused_and_kept() {
    let test_folder = TestFolder::new();
    grant(&test_folder.boot(THIS)).await;
    test_folder.overwrite(20, &[0xAB; 7]);
    test_folder.overwrite(BLOCK + 20, &[0xAB; 7]);
    let torn = fs::read(test_folder.queue()).expect("read");
    for boot in [THIS, NEXT] {
        let error = test_folder
            .boot(boot)
            .mutex("a")
            .acquire()
            .await
            .expect_err("refused");
        assert!(
            error.is_damaged() && error.to_string().contains("remove"),
            "{error}"
        );
    }

    assert_eq!(fs::read(test_folder.queue()).expect("read"), torn);
}

/// Shows G-23.
#[tokio::test]
async fn foreign_file_is_refused_and_kept() {
    let test_folder = TestFolder::new();
    for foreign in ["#!/bin/sh\n".to_owned(), "x".repeat(5000), " ".to_owned()] {
        fs::write(test_folder.queue(), &foreign).expect("written");
        let error = test_folder
            .boot(THIS)
            .mutex("a")
            .acquire()
            .await
            .expect_err("refused");
        assert!(
            error.is_damaged() && error.to_string().contains("not a queue file"),
            "{error}"
        );
        assert_eq!(
            fs::read_to_string(test_folder.queue()).expect("read"),
            foreign
        );
    }
}

#[tokio::test]
async fn newer_format_version_is_refused() {
    let test_folder = TestFolder::new();
    grant(&test_folder.boot(THIS)).await;
    let mut bytes = fs::read(test_folder.queue()).expect("read")[..64].to_vec();
    bytes[8] = 9;
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    test_folder.overwrite(0, &bytes);
    let error = test_folder
        .boot(THIS)
        .mutex("a")
        .acquire()
        .await
        .expect_err("refused");

    assert!(
        error.is_unsupported() && error.to_string().contains("version 9"),
        "{error}"
    );
}

/// Counting on from such a number would end at the last one.
#[tokio::test]
async fn impossible_number_with_a_sound_checksum_is_refused() {
    const GENERATION: usize = 16;
    const LAST_TOKEN: usize = 40;
    const RESERVED: usize = 48;
    let impossible = [u64::MAX, u64::MAX - 1, (1 << 62) + 1];

    for (at, number) in [GENERATION, LAST_TOKEN, RESERVED]
        .into_iter()
        .flat_map(|at| impossible.map(|number| (at, number)))
    {
        let test_folder = TestFolder::new();
        grant(&test_folder.boot(THIS)).await;
        for file in [test_folder.queue(), test_folder.counter()] {
            for block in [0, BLOCK] {
                overwrite_number(&file, block, 60, at, number);
            }
        }
        assert_refused(&test_folder).await;
    }

    for number in impossible.into_iter().chain([0]) {
        let test_folder = TestFolder::new();
        let locks = test_folder.boot(THIS);
        let _guard = locks.mutex("a").acquire().await.expect("granted");
        overwrite_number(&test_folder.queue(), COUNTER_LEN as u64, 252, 0, number);
        assert_refused(&test_folder).await;
    }
}

/// Replaces a number in a block whose checksum is at `crc_at`.
fn overwrite_number(file: &Path, block: u64, crc_at: usize, at: usize, number: u64) {
    let start = usize::try_from(block).expect("a position in a file");
    let mut bytes = fs::read(file).expect("read")[start..start + crc_at].to_vec();
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    let crc = crc32fast::hash(&bytes);
    bytes.extend(crc.to_le_bytes());

    overwrite(file, block, &bytes);
}

async fn assert_refused(test_folder: &TestFolder) {
    let locks = test_folder.boot(THIS);
    let error = locks.mutex("a").try_acquire().await.expect_err("refused");
    assert!(error.is_damaged(), "{error}");
}

/// Shows G-23.
#[tokio::test]
async fn torn_entry_is_refused() {
    for (at, bytes) in [(0, [0; 8]), (100, [0xAB; 8])] {
        let test_folder = TestFolder::new();
        let locks = test_folder.boot(THIS);
        let _guard = locks.mutex("a").acquire().await.expect("granted");
        test_folder.overwrite(COUNTER_LEN as u64 + at, &bytes);
        assert_refused(&test_folder).await;
    }
}

/// A full disk or a lost page may leave a file of any length.
#[tokio::test]
async fn truncated_file_is_read_or_refused() {
    let whole = {
        let test_folder = TestFolder::new();
        grant(&test_folder.boot(THIS)).await;
        fs::read(test_folder.queue()).expect("read")
    };

    for len in (0..whole.len())
        .step_by(37)
        .chain([COUNTER_LEN, COUNTER_LEN + ENTRY_LEN])
    {
        let test_folder = TestFolder::new();
        fs::write(test_folder.queue(), &whole[..len.min(whole.len())]).expect("written");
        match test_folder.boot(NEXT).mutex("a").acquire().await {
            Ok(guard) => assert!(guard.token().get() > RANGE),
            Err(error) => assert!(error.is_damaged(), "{len}: {error}"),
        }
    }
}

/// A queue file that was truncated within an entry is not read as free.
#[tokio::test]
async fn truncated_entry_is_refused() {
    let test_folder = TestFolder::new();
    let ours = test_folder.boot(THIS);
    let theirs = test_folder.boot(THIS);
    let _guard = ours
        .semaphore("a", 2)
        .permits(2)
        .acquire()
        .await
        .expect("granted");

    let queue = fs::OpenOptions::new()
        .write(true)
        .open(test_folder.queue())
        .expect("there is a queue file");

    queue
        .set_len((COUNTER_LEN + ENTRY_LEN) as u64 - 1)
        .expect("truncated");

    let error = theirs
        .semaphore("a", 2)
        .try_acquire()
        .await
        .expect_err("refused");

    assert!(error.is_damaged(), "{error}");
}

/// Another user of the folder made a sparse file that begins like a queue.
#[tokio::test]
async fn queue_file_larger_than_any_queue_is_refused() {
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    grant(&locks).await;
    fs::OpenOptions::new()
        .write(true)
        .open(test_folder.queue())
        .expect("there is a queue file")
        .set_len(1 << 42)
        .expect("made longer");

    let error = locks.mutex("a").acquire().await.expect_err("refused");
    assert!(error.is_damaged(), "{error}");
}

/// A file of another program may be larger than the memory.
#[tokio::test]
async fn huge_foreign_file_is_refused() {
    let test_folder = TestFolder::new();
    fs::write(test_folder.queue(), "#!/bin/sh").expect("written");
    fs::OpenOptions::new()
        .write(true)
        .open(test_folder.queue())
        .expect("opened")
        .set_len(1 << 40)
        .expect("made longer");

    let error = test_folder
        .boot(THIS)
        .mutex("a")
        .acquire()
        .await
        .expect_err("refused");

    assert!(error.is_damaged(), "{error}");
}

/// Zeros are the counter of a queue without a grant, and such a queue may be long.
///
/// Shows G-23.
#[tokio::test]
async fn long_file_that_begins_with_zeros_is_not_read_as_free() {
    let test_folder = TestFolder::new();
    let mut bytes = vec![0; COUNTER_LEN];
    bytes.resize(1 << 17, b'x');
    fs::write(test_folder.queue(), bytes).expect("written");

    let locks = test_folder.boot(THIS);
    let error = locks.mutex("a").acquire().await.expect_err("refused");
    assert!(error.is_damaged(), "{error}");
}

/// A stopped process may be about to append an entry.
#[tokio::test]
async fn inspection_without_the_lock_does_not_shorten_the_file() {
    const LEN: u64 = 1 << 17;
    let test_folder = TestFolder::new();
    let locks = test_folder.boot(THIS);
    grant(&locks).await;
    let stopped = fs::OpenOptions::new()
        .write(true)
        .open(test_folder.queue())
        .expect("there is a queue file");
    stopped.lock().expect("the lock is free");
    stopped.set_len(LEN).expect("made longer");

    let seen = locks.inspect("a").await.expect("inspected");
    assert!(seen.entries.is_empty());
    assert_eq!(stopped.metadata().expect("inspected").len(), LEN);
}

/// Power loss tears entries, and their processes end with it.
#[tokio::test]
async fn torn_entry_of_another_boot_is_cleared() {
    let test_folder = TestFolder::new();
    grant(&test_folder.boot(THIS)).await;
    test_folder.overwrite(COUNTER_LEN as u64, &[1; ENTRY_LEN]);
    test_folder.overwrite((COUNTER_LEN + ENTRY_LEN) as u64, &[1; 100]);

    assert!(
        test_folder
            .boot(THIS)
            .mutex("a")
            .try_acquire()
            .await
            .expect_err("the owner of the entry is unknown")
            .is_damaged()
    );
    for _ in 0..3 {
        grant(&test_folder.boot(NEXT)).await;
    }
}

#[tokio::test]
async fn entries_of_another_boot_belong_to_their_process() {
    let test_folder = TestFolder::new();
    let before = test_folder.store();
    let claim = claim();
    before
        .enter(&claim, OnContention::Queue)
        .await
        .expect("entered")
        .standing
        .token()
        .expect("the lock was free");

    let after = test_folder.boot(NEXT);
    assert!(
        after
            .mutex("a")
            .try_acquire()
            .await
            .expect("the store replies")
            .is_err(),
        "some containers have a boot id of their own"
    );

    drop(before);
    assert!(
        after
            .inspect("a")
            .await
            .expect("inspected")
            .entries
            .is_empty()
    );

    grant(&after).await;
    let queue = after.inspect("a").await.expect("inspected");
    assert!(queue.entries.is_empty() && queue.last_token.is_some());
}

proptest! {
    #[test]
    fn stored_claim_round_trips(
        slot in 0usize..9,
        sequence in 1u64..1 << 62,
        host in "\\PC{0,16}",
        label in "\\PC{0,16}",
        token in 1u64..,
    ) {
        let info = ClaimantInfo { host: host.into(), label, ..ClaimantInfo::clone(&claim().info) };
        let claim = Claim { info: info.clone().into(), ..claim() };
        let process = ProcessId::from_bytes([7; 16]);
        let mut stored = entry::StoredClaim::new(&claim, process, slot, sequence);
        prop_assert_eq!(stored.token(), None);
        stored.grant(Token::new(token).expect("above zero"));

        let read = entry::StoredClaim::read(&stored.to_bytes(), slot)
            .expect("the entry is sound")
            .expect("the slot is in use");
        prop_assert_eq!(read.id(), claim.id);
        prop_assert_eq!(read.process(), process);
        prop_assert_eq!(read.share(), claim.share);
        prop_assert_eq!(read.sequence(), sequence);
        prop_assert_eq!(read.token().map(Token::get), Some(token));
        prop_assert_eq!(read.info().host, info.host);
        prop_assert_eq!(read.info().label, info.label);
        prop_assert_eq!(read.info().pid, info.pid);

        let mut torn = stored.to_bytes();
        torn[100] ^= 1;
        prop_assert!(entry::StoredClaim::read(&torn, slot).is_err());
    }

    /// Shows G-04.
    #[test]
    fn one_torn_block_never_lowers_the_counter(
        grants in 0u64..2100,
        block in 0u64..2,
        at in 0u64..64,
        bits in 1u8..,
    ) {
        let file = tempfile::tempfile().expect("a temporary file");
        let mut counter = counter::TokenCounter::fresh(THIS);
        counter.reserve(&file).expect("written");
        for _ in 0..grants {
            if counter.is_spent() {
                counter.reserve(&file).expect("written");
            }
            counter.take(1, &file).expect("written");
        }
        let last = counter.last_token;

        let mut byte = [0];
        file.read_exact_at(&mut byte, block * BLOCK + at).expect("read");
        file.write_all_at(&[byte[0] ^ bits], block * BLOCK + at).expect("written");

        let mut bytes = vec![0; COUNTER_LEN];
        file.read_at(&mut bytes, 0).expect("read");
        match counter::TokenCounter::read(&bytes) {
            counter::CounterState::OneBlockLost(counter) => {
                prop_assert!(counter.restarted().last_token >= last);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
