//! The numbers of slots.

use std::collections::BTreeSet;

use nix::sys::signal::Signal;

use crate::sandbox::{Sandbox, Started, until};

const REPORT_SLOT: &str = "echo $LEASEHOLD_SLOT > slots/$$; mv slots/$$ slots/done-$$; exec cat";

/// Starts a run with slots and returns it with the numbers that its command has.
fn slot_holder(sandbox: &Sandbox, options: &[&str]) -> (Started, Vec<u32>) {
    std::fs::create_dir_all(sandbox.path("slots")).unwrap();
    let done = || -> Vec<_> {
        let files = std::fs::read_dir(sandbox.path("slots")).unwrap().flatten();
        files
            .filter(|file| file.file_name().to_string_lossy().starts_with("done"))
            .map(|file| file.path())
            .collect()
    };

    let arguments = [
        &["run", "gpu", "--quiet"],
        options,
        &["--", "sh", "-c", REPORT_SLOT],
    ]
    .concat();
    let run = sandbox.started(&arguments);
    until("the command has its number", || !done().is_empty());
    let text = std::fs::read_to_string(&done()[0]).unwrap();
    std::fs::remove_file(&done()[0]).unwrap();

    let numbers = text
        .split_whitespace()
        .map(|number| number.parse().unwrap());
    (run, numbers.collect())
}

/// Shows G-39.
#[test]
fn concurrent_slots_have_different_numbers() {
    let sandbox = Sandbox::new();
    concurrent_slots_are_numbered(&sandbox);
}

/// The runs hold all slots, so that their numbers must be all numbers.
pub(crate) fn concurrent_slots_are_numbered(sandbox: &Sandbox) {
    let (first, one) = slot_holder(sandbox, &["--slots", "4"]);
    let (second, two) = slot_holder(sandbox, &["--slots", "4", "--permits", "2"]);
    let (third, three) = slot_holder(sandbox, &["--slots", "4"]);
    let all: BTreeSet<_> = [one, two.clone(), three].concat().into_iter().collect();
    assert_eq!(all, BTreeSet::from([0, 1, 2, 3]));

    second.end().assert(0, "", "");
    let (fourth, four) = slot_holder(sandbox, &["--slots", "4", "--permits", "2"]);
    assert_eq!(four, two, "the numbers that became free are used again");
    for run in [first, third, fourth] {
        run.end().assert(0, "", "");
    }
}

/// A program with the library shares the numbers of the pool.
///
/// Shows G-39.
#[test]
fn program_and_command_share_the_numbers() {
    let sandbox = Sandbox::new();
    let locks = leasehold::blocking::open(&sandbox.url()).unwrap();
    let guard = locks.semaphore("gpu", 2).numbered().acquire().unwrap();
    assert_eq!(guard.slots(), [0]);

    let (run, numbers) = slot_holder(&sandbox, &["--slots", "2"]);
    assert_eq!(numbers, [1]);
    guard.release().unwrap();
    let next = locks.semaphore("gpu", 2).numbered().acquire().unwrap();
    assert_eq!(next.slots(), [0]);
    run.end().assert(0, "", "");
}

#[test]
fn loss_of_the_slot_number_stops_the_command() {
    let sandbox = Sandbox::new();
    let (run, numbers) = slot_holder(&sandbox, &["--slots", "2"]);
    assert_eq!(numbers, [0]);
    sandbox.done(&[
        "break",
        "gpu/slot/0",
        "--token",
        &sandbox.token("gpu/slot/0"),
    ]);
    run.wait().assert(76, "", "leasehold: lost gpu: ");
    assert!(sandbox.is_free("gpu") && sandbox.is_free("gpu/slot/0"));
}

#[test]
fn number_of_a_killed_run_is_used_again() {
    let sandbox = Sandbox::new();
    number_of_killed_run_is_reused(&sandbox);
}

/// The store may notice the crash for the semaphore before it notices it for the number.
pub(crate) fn number_of_killed_run_is_reused(sandbox: &Sandbox) {
    let (killed, first) = slot_holder(sandbox, &["--slots", "2"]);
    let (other, _) = slot_holder(sandbox, &["--slots", "2"]);
    killed.signal(Signal::SIGKILL);
    let (next, third) = slot_holder(sandbox, &["--slots", "2"]);
    assert_eq!(third, first);
    for run in [other, next] {
        run.end().assert(0, "", "");
    }
}

/// A second command with the same number fails to make its folder.
#[test]
fn no_two_commands_have_one_number_under_contention() {
    let sandbox = Sandbox::new();
    let line = "mkdir in-$LEASEHOLD_SLOT && sleep 0.02 && rmdir in-$LEASEHOLD_SLOT";
    let run = [
        "run", "gpu", "--slots", "3", "--quiet", "--", "sh", "-c", line,
    ];
    let runs: Vec<_> = (0..12).map(|_| sandbox.started(&run)).collect();
    for run in runs {
        run.wait().assert(0, "", "");
    }
}

#[test]
fn slots_are_not_numbered_without_need() {
    let sandbox = Sandbox::new();
    let line = "echo ${LEASEHOLD_SLOT-none}";
    for options in [&["--slots", "1025"][..], &[], &["--shared"]] {
        let run = [&["run", "gpu"], options, &["--", "sh", "-c", line]].concat();
        sandbox.done(&run).assert(0, "none\n", "");
    }
}

#[test]
fn numbers_of_an_outer_run_are_removed() {
    let sandbox = Sandbox::new();
    let line = "echo ${LEASEHOLD_SLOT-none}";
    let mut run = sandbox.leasehold(&["run", "a", "--", "sh", "-c", line]);
    let done = run.env("LEASEHOLD_SLOT", "7").output().unwrap();
    crate::sandbox::Finished::from(done).assert(0, "none\n", "");
}

#[test]
fn number_that_is_not_free_is_waited_for_as_long_as_the_option_says() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("gpu/slot/0", &[]);
    for wait in ["--wait=300ms", "--nonblock"] {
        let run = ["run", "gpu", "--slots", "1", wait, "--", "true"];
        sandbox
            .done(&run)
            .assert(75, "", "gpu/slot/0 was not granted");
        assert!(sandbox.is_free("gpu"));
    }
    holder.end().assert(0, "", "");
}

/// The numbers are locks of their own, which `ls` does not show beside the semaphore.
#[test]
fn numbers_of_slots_are_not_listed_beside_their_semaphore() {
    let sandbox = Sandbox::new();
    let (_holder, numbers) = slot_holder(&sandbox, &["--slots", "4"]);
    let _own = sandbox.holder("gpu/slot/own", &[]);
    sandbox.done(&["ls"]).assert_names(&["gpu", "gpu/slot/own"]);

    let number = format!("gpu/slot/{}", numbers[0]);
    sandbox.done(&["ls", &number]).assert_names(&[&number]);
}
