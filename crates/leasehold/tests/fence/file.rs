//! Files that reject late writers.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::thread;

use leasehold::fence::File;
use leasehold::store::draw_claim_id;
use leasehold::{ClaimId, FencingToken, Token};
use proptest::prelude::*;

use super::{CLAIM, OTHER_CLAIM};

/// A token of the claim `CLAIM`.
fn token(number: u64) -> FencingToken {
    token_of(CLAIM, number)
}

fn token_of(claim: &str, number: u64) -> FencingToken {
    FencingToken::new(
        Token::new(number).expect("above zero"),
        claim.parse().expect("a claim id"),
    )
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Shows G-19, S5.
#[test]
fn file_fence_refuses_stale_tokens() {
    let folder = folder();
    let file = File::open(folder.path(), "a").expect("opened");
    assert_eq!(
        (
            file.highest_token().expect("read"),
            file.seal(token(7)).expect("sealed")
        ),
        (None, None)
    );
    file.write(token(7), b"seven").expect("written");
    // A second `File` for the same path, as another process would open it.
    let other = File::open(folder.path(), "a").expect("opened");
    assert_eq!(
        other.seal(token(9)).expect("sealed").as_deref(),
        Some(&b"seven"[..])
    );
    let refused = file.write(token(7), b"late").expect_err("late");
    assert!(
        refused.is_lost() && refused.to_string().contains("token 9"),
        "{refused}"
    );
    assert!(file.seal(token(8)).expect_err("late").is_lost());
    other.write(token(u64::MAX), b"last").expect("written");
    assert_eq!(fs::read(folder.path().join("a")).expect("there"), b"last");
    assert_eq!(
        file.highest_token().expect("read"),
        Some(token(u64::MAX).token())
    );
}

/// Shows G-19.
#[test]
fn file_equal_token_of_another_claim_is_rejected() {
    let folder = folder();
    let file = File::open(folder.path(), "a").expect("opened");
    let ours = token(7);
    let theirs = token_of(OTHER_CLAIM, 7);
    file.seal(ours).expect("sealed");

    let other = File::open(folder.path(), "a").expect("opened");
    for rejected in [other.seal(theirs).map(drop), other.write(theirs, b"theirs")] {
        let error = rejected.expect_err("two claims have one token");
        assert!(
            error.is_lost() && error.to_string().contains("another claim"),
            "{error}"
        );
    }

    file.write(ours, b"ours").expect("written");
    assert_eq!(fs::read(folder.path().join("a")).expect("there"), b"ours");
    other
        .write(token_of(OTHER_CLAIM, 8), b"theirs")
        .expect("a larger token");
    assert!(
        file.write(token(8), b"ours")
            .expect_err("two claims have one token")
            .is_lost()
    );
}

/// A mark of the version without claim ids.
#[test]
fn file_mark_without_claim_is_raised_by_a_larger_token_only() {
    let folder = folder();
    let file = File::open(folder.path(), "a").expect("opened");
    let highest = folder.path().join("a.fence/mark");
    fs::write(&highest, "7\n").expect("written");
    assert_eq!(file.highest_token().expect("read"), Some(token(7).token()));
    for number in [6, 7] {
        assert!(
            file.write(token(number), b"late")
                .expect_err("not larger")
                .is_lost()
        );
    }
    assert_eq!(fs::read_to_string(&highest).expect("there"), "7\n");

    file.write(token(8), b"eight").expect("written");
    assert_eq!(
        fs::read_to_string(&highest).expect("there"),
        format!("v2 8 {CLAIM}\n")
    );
}

#[test]
fn claim_id_survives_its_text_and_nothing_else_is_one() {
    let id = draw_claim_id();
    assert_eq!(id.to_string().parse::<ClaimId>().expect("parsed"), id);
    assert_eq!(
        id.to_string()
            .to_uppercase()
            .parse::<ClaimId>()
            .expect("parsed"),
        id
    );
    let shorter = &CLAIM[1..];
    for text in [
        "",
        shorter,
        &format!("+{shorter}"),
        &format!("{CLAIM}0"),
        &format!("g{shorter}"),
    ] {
        assert!(text.parse::<ClaimId>().expect_err(text).is_invalid());
    }
}

#[test]
fn file_fence_names_stay_in_their_folder() {
    let folder = folder();
    let long = "n".repeat(250);
    for name in [
        "",
        ".",
        "..",
        "../a",
        "a/b",
        "/etc/passwd",
        "a/",
        "a\0b",
        &long,
    ] {
        let refused = File::open(folder.path(), name).expect_err(name);
        assert!(refused.is_invalid(), "{name:?}: {refused:?}");
    }
    assert!(
        File::open(folder.path().join("missing"), "a")
            .expect_err("missing")
            .is_invalid()
    );
    File::open(folder.path(), "ä b..c")
        .expect("a plain name")
        .write(token(1), b"x")
        .expect("written");
}

#[test]
fn file_fence_refuses_links_and_keeps_their_targets() {
    let elsewhere = folder();
    let folder = folder();
    let target = elsewhere.path().join("target");
    fs::write(&target, "kept").expect("written");
    symlink(&target, folder.path().join("a")).expect("linked");
    let file = File::open(folder.path(), "a").expect("opened");
    assert!(file.seal(token(1)).expect_err("a link").is_damaged());
    assert!(file.write(token(1), b"x").expect_err("a link").is_damaged());
    symlink(elsewhere.path(), folder.path().join("b.fence")).expect("linked");
    File::open(folder.path(), "b").expect_err("a link");
    assert_eq!(fs::read(&target).expect("there"), b"kept");
    assert_eq!(fs::read_dir(elsewhere.path()).expect("listed").count(), 1);
}

#[test]
fn file_fence_refuses_and_keeps_a_damaged_token() {
    let folder = folder();
    let file = File::open(folder.path(), "a").expect("opened");
    for text in [
        "",
        "0\n",
        "seven",
        "-1",
        "v2 7",
        "v2 7 6f1c",
        "v3 7 6f1c2a4e9b0d4c5f8a7e3d2b1c0f9e8d",
        "7 8",
    ] {
        fs::write(folder.path().join("a.fence/mark"), text).expect("written");
        assert!(file.write(token(1), b"x").expect_err(text).is_damaged());
        assert_eq!(
            fs::read_to_string(folder.path().join("a.fence/mark")).expect("there"),
            text
        );
    }
    assert!(!folder.path().join("a").exists());
}

#[test]
fn file_fence_keeps_permissions_and_overwrites_crash_leftovers() {
    let folder = folder();
    let path = folder.path().join("a");
    fs::write(&path, "old").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
    let file = File::open(folder.path(), "a").expect("opened");
    fs::write(
        folder.path().join("a.fence/new"),
        "half of a long value that was never moved into place",
    )
    .expect("written");
    file.write(token(1), b"new").expect("written");
    assert_eq!(fs::read(&path).expect("there"), b"new");
    assert_eq!(
        fs::metadata(&path).expect("there").permissions().mode() & 0o777,
        0o640
    );
}

/// A user who may write `NAME.fence` linked a file of this user to the name of the next contents.
///
/// Shows G-19.
#[test]
fn file_fence_does_not_write_through_a_hard_link() {
    let elsewhere = folder();
    let target = elsewhere.path().join("target");
    fs::write(&target, "kept").expect("written");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).expect("set");
    let folder = folder();
    let path = folder.path().join("a");
    fs::write(&path, "old").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("set");

    let file = File::open(folder.path(), "a").expect("opened");
    fs::hard_link(&target, folder.path().join("a.fence/new")).expect("linked");
    file.write(token(1), b"new").expect("written");

    assert_eq!(fs::read(&path).expect("there"), b"new");
    assert_eq!(fs::read(&target).expect("there"), b"kept");
    let mode = fs::metadata(&target).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Many threads share one `File`, and each thread opens a `File` of its own. An update of the
/// highest token is never lost. A write with a lower token never comes after an update with a
/// higher token.
#[test]
fn file_fence_threads_exclude_each_other() {
    let folder = folder();
    let shared = File::open(folder.path(), "a").expect("opened");
    thread::scope(|scope| {
        for number in 1..=8 {
            let shared = &shared;
            let folder = folder.path();
            scope.spawn(move || {
                let own = File::open(folder, "a").expect("opened");
                for file in [shared, &own] {
                    // A thread with a stale token is rejected. All other operations succeed.
                    for done in [
                        file.seal(token(number)).map(drop),
                        file.write(
                            token(number),
                            &[b'0' + u8::try_from(number).expect("few"); 4096],
                        ),
                    ] {
                        assert!(
                            done.is_ok()
                                || file.highest_token().expect("whole")
                                    > Some(token(number).token())
                        );
                    }
                }
            });
        }
    });
    assert_eq!(
        shared.seal(token(8)).expect("sealed"),
        Some(vec![b'8'; 4096])
    );
}

/// A holder seals the file while the write of the holder before it is under way. The write ends
/// before the seal reads the file, and never after it.
///
/// Shows G-19, S5.
#[test]
fn file_fence_seals_after_the_write_that_is_under_way() {
    let folder = folder();
    let ours = File::open(folder.path(), "a").expect("opened");
    let theirs = File::open(folder.path(), "a").expect("opened");

    for number in 1..=8 {
        let long = vec![number; 4 << 20];
        let token = |offset| token(2 * u64::from(number) + offset);
        thread::scope(|scope| {
            let writing = scope.spawn(|| ours.write(token(0), &long));
            let is_accepted = || theirs.highest_token().expect("whole") == Some(token(0).token());
            while !is_accepted() && !writing.is_finished() {
                thread::yield_now();
            }

            let sealed = theirs.seal(token(1)).expect("a larger token");
            let written = writing.join().expect("it does not panic");
            written.expect("its token was the highest");
            assert!(sealed.as_ref() == Some(&long), "a write came after a seal");
        });
    }
}

/// A writer waits while a later holder raises the mark. The mark that it finds then is what counts.
///
/// Shows G-19, S5.
#[test]
fn file_fence_rejects_a_writer_that_a_later_holder_has_overtaken() {
    let folder = folder();
    let file = File::open(folder.path(), "a").expect("opened");
    file.write(token(7), b"seven").expect("written");
    let locked = fs::File::open(folder.path().join("a.fence")).expect("there");
    locked.lock().expect("locked");
    let waiter = format!(":{} ", locked.metadata().expect("inspected").ino());
    let is_waiting = || {
        let table = fs::read_to_string("/proc/locks").expect("readable");
        let mut lines = table.lines();
        lines.any(|line| line.contains("->") && line.contains(&waiter))
    };

    thread::scope(|scope| {
        let writing = scope.spawn(|| file.write(token(8), b"late"));
        while !is_waiting() {
            assert!(!writing.is_finished(), "it does not wait");
            thread::yield_now();
        }
        let mark = format!("v2 9 {OTHER_CLAIM}\n");
        fs::write(folder.path().join("a.fence/mark"), mark).expect("written");
        drop(locked);
        let written = writing.join().expect("it does not panic");
        assert!(written.expect_err("it is late").is_lost());
    });
    assert_eq!(fs::read(folder.path().join("a")).expect("there"), b"seven");
    assert_eq!(file.highest_token().expect("whole"), Some(token(9).token()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    /// The file accepts the operations that a mark and a value in memory would accept.
    ///
    /// Shows G-19, S5.
    #[test]
    fn file_fence_matches_the_model(
        steps in proptest::collection::vec(
            (1_u64..6, any::<bool>(), proptest::option::of(any::<u8>())),
            1..20,
        )
    ) {
        let folder = folder();
        let file = File::open(folder.path(), "a").expect("opened");
        let mut highest = (0, false);
        let mut value = None;
        for (number, is_other, write) in steps {
            let claim = if is_other { OTHER_CLAIM } else { CLAIM };
            let token = token_of(claim, number);
            let taken = match write {
                Some(byte) => file.write(token, &[byte]).is_ok(),
                None => file.seal(token).map(|found| assert_eq!(found, value)).is_ok(),
            };
            prop_assert_eq!(taken, number > highest.0 || highest == (number, is_other));
            if taken {
                highest = (number, is_other);
                value = write.map(|byte| vec![byte]).or(value);
            }
        }
    }
}
