//! Who holds together with whom.

use crate::place::{Place, until};

#[test]
fn two_runs_take_turns() {
    let place = Place::new();
    // Whoever finds the folder there was not alone.
    let line = "mkdir alone && sleep 0.01 && rmdir alone";
    let runs: Vec<_> = (0..8).map(|_| place.started(&["run", "a", "--", "sh", "-c", line])).collect();
    for run in runs {
        assert_eq!(run.ended().code(), 0);
    }
    assert!(place.is_free("a"));
}

#[test]
fn shared_runs_hold_together_and_keep_others_out() {
    let place = Place::new();
    let readers = [place.holder("a", &["--shared"]), place.holder("a", &["--shared"])];
    place.done(&["run", "a", "--wait", "0", "--", "true"]).assert(75, "", "held by leasehold[");
    let writer = place.waiter(&["run", "a", "--", "true"]);
    place.done(&["run", "a", "--shared", "--wait", "0", "--", "true"]).assert(75, "", "a was not granted at once");
    for reader in readers {
        assert_eq!(reader.end().code(), 0);
    }
    assert_eq!(writer.ended().code(), 0);
}

#[test]
fn an_exclusive_run_keeps_shared_ones_out() {
    let place = Place::new();
    let writer = place.holder("a", &[]);
    let reader = place.waiter(&["run", "a", "--shared", "--", "echo", "read"]);
    assert_eq!(writer.end().code(), 0);
    assert_eq!(reader.ended().out, "read\n");
}

#[test]
fn as_many_as_there_are_slots() {
    let place = Place::new();
    let (one, two) = (place.holder("a", &["--slots", "3"]), place.holder("a", &["--slots", "3"]));
    let pair = place.waiter(&["run", "a", "--slots", "3", "--take", "2", "--", "true"]);
    assert_eq!(one.end().code(), 0);
    assert_eq!(pair.ended().code(), 0);
    assert_eq!(two.end().code(), 0);
}

#[test]
fn flock_and_we_keep_each_other_out() {
    let place = Place::new();
    place.done(&["run", "a", "--", "true"]).assert(0, "", "");
    let holder = place.holder("a", &[]);
    let flock = |command: &str| {
        std::process::Command::new("flock")
            .arg("-n")
            .arg(place.path("store/a.lock"))
            .args(["sh", "-c", command])
            .status()
    };
    assert!(!flock("true").unwrap().success());
    holder.end();
    until("flock gets it", || flock("true").unwrap().success());
    let inside = "$L show a > shown; $L run a --wait 0 -- true 2> said; echo $? > code";
    let mut outer = std::process::Command::new("flock");
    outer.arg(place.path("store/a.lock")).args(["sh", "-c", inside]);
    outer.env("LEASEHOLD_STORE", place.url()).env("L", env!("CARGO_BIN_EXE_leasehold"));
    outer.current_dir(place.path("")).output().unwrap();
    assert_eq!(place.read("code"), "75\n");
    let (shown, said) = (place.read("shown"), place.read("said"));
    assert!(shown.starts_with("a: in use") && shown.contains("held outside the line: flock["), "{shown}");
    assert!(said.contains("a was not granted at once: held outside the line by flock["), "{said}");
}

#[test]
fn each_name_is_a_lock_of_its_own_inside_the_store() {
    let place = Place::new();
    let long = "ü".repeat(256);
    let names = ["../../etc/x", "..", ".", "a b", "ü", "a\nb", "a}b{c*?[x]", "A", "a", "-x", "--", "%2F", "/", &long];
    // Names behind the `--`, as one that begins with a hyphen has to be.
    let runs: Vec<_> = names.iter().map(|name| place.started(&["run", "--", name, "--", "cat"])).collect();
    for name in names {
        until("it holds", || !place.holders(name).is_empty());
    }
    let listed: Vec<serde_json::Value> = serde_json::from_str(&place.done(&["ls", "--json"]).out).unwrap();
    let mut expected = names.map(str::to_owned);
    expected.sort();
    assert_eq!(listed.iter().map(|line| line["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>(), expected);
    let table = place.done(&["ls"]).out;
    assert_eq!(table.lines().count(), names.len() + 1, "a line each:\n{table}");
    for run in runs {
        assert_eq!(run.end().code(), 0);
    }
    let beside: Vec<_> = std::fs::read_dir(place.path("")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(beside, ["store"], "nothing outside the store was touched");
}
