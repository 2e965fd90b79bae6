//! What the command does with its locks on any server.

use std::io::{BufRead, BufReader};

use nix::sys::signal::Signal;

use crate::place::{Place, is_alive};

/// The tests of this module, each at a place of its own.
macro_rules! on_any_server {
    ($place:expr) => {
        $crate::servers::on_any_server! { $place =>
            runs_exclude_each_other_and_serve_in_order
            the_command_ends_as_it_does_and_knows_its_token_and_store
            readers_share_and_slots_are_counted
            lines_are_listed_shown_watched_and_broken
            a_run_inside_a_run_is_found_out
            a_signal_while_waiting_leaves_the_line
        }
    };
    ($place:expr => $($test:ident)+) => {
        $(#[test]
        fn $test() {
            $crate::servers::$test(&$place);
        })+
    };
}
pub(crate) use on_any_server;

pub(crate) fn runs_exclude_each_other_and_serve_in_order(place: &Place) {
    let first = place.holder("a", &[]);
    place.done(&["run", "a", "--wait", "0", "--", "true"]).assert(75, "", "held by");
    place.done(&["run", "a", "--wait", "50ms", "--", "true"]).assert(75, "", "held by");
    let second = place.waiter(&["run", "a", "--quiet", "--", "sh", "-c", "echo 2 >> order"]);
    let third = place.waiter(&["run", "a", "--quiet", "--", "sh", "-c", "echo 3 >> order"]);
    first.end().assert(0, "", "");
    second.ended().assert(0, "", "");
    third.ended().assert(0, "", "");
    assert_eq!(place.read("order"), "2\n3\n");
    assert!(place.is_free("a"));
}

pub(crate) fn the_command_ends_as_it_does_and_knows_its_token_and_store(place: &Place) {
    place.done(&["run", "a", "--", "sh", "-c", "exit 7"]).assert(7, "", "");
    place.done(&["run", "a", "--fixed", "--lease", "1h", "--", "sh", "-c", "kill -9 $$"]).assert(137, "", "");
    let said = place.done(&["run", "a", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN $LEASEHOLD_STORE"]).out;
    let (token, store) = said.trim().split_once(' ').unwrap();
    assert!(token.parse::<u64>().unwrap() > 0);
    assert_eq!(store, place.url());
}

pub(crate) fn readers_share_and_slots_are_counted(place: &Place) {
    let readers = [place.holder("r", &["--shared"]), place.holder("r", &["--shared"])];
    place.done(&["run", "r", "--wait", "0", "--", "true"]).assert(75, "", "held by");
    let slots = [place.holder("s", &["--slots", "3", "--take", "2"]), place.holder("s", &["--slots", "3"])];
    place.done(&["run", "s", "--slots", "3", "--wait", "0", "--", "true"]).assert(75, "", "held by");
    place.done(&["run", "s", "--wait", "0", "--", "true"]).assert(64, "", "a semaphore of 3 slots");
    readers.into_iter().chain(slots).for_each(|holder| holder.end().assert(0, "", ""));
}

pub(crate) fn lines_are_listed_shown_watched_and_broken(place: &Place) {
    let holder = place.holder("jobs/ä b", &["--label", "first"]);
    let _waiter = place.waiter(&["run", "jobs/ä b", "--shared", "--", "true"]);
    let _other = place.holder("x", &[]);
    let listed: serde_json::Value = serde_json::from_str(&place.done(&["ls", "--json", "jobs/"]).out).unwrap();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["name"]), (1, &"jobs/ä b".into()));
    assert_eq!((&listed[0]["holders"][0]["label"], &listed[0]["waiters"][0]["position"]), (&"first".into(), &1.into()));

    let mut watch = place.started(&["watch", "x", "--json"]);
    let mut seen = BufReader::new(watch.out()).lines().map(Result::unwrap);
    assert!(seen.next().unwrap().contains("\"holders\":[{"));
    watch.signal(Signal::SIGINT);
    assert_eq!(watch.ended().code(), 130);

    let token = place.holders("jobs/ä b")[0]["token"].to_string();
    let never = (token.parse::<u64>().unwrap() + 1).to_string();
    assert_ne!(place.done(&["break", "jobs/ä b", "--token", &never]).code(), 0);
    let broken = place.done(&["break", "jobs/ä b", "--token", &token]);
    assert!(broken.code() == 0 && broken.out.starts_with("broke the hold of jobs/ä b with token"), "{broken:?}");
    assert_eq!(broken.out.lines().count(), 1, "nothing has to be waited for: {broken:?}");
    holder.ended().assert(76, "", "the store no longer has the claim");
}

pub(crate) fn a_run_inside_a_run_is_found_out(place: &Place) {
    let nested = ["run", "a", "--", env!("CARGO_BIN_EXE_leasehold"), "run", "a", "--", "true"];
    place.done(&nested).assert(64, "", "would wait for itself");
    let nested = ["run", "a", "--", env!("CARGO_BIN_EXE_leasehold"), "run", "--reentrant", "a", "--", "echo", "in"];
    place.done(&nested).assert(0, "in\n", "");
}

pub(crate) fn a_signal_while_waiting_leaves_the_line(place: &Place) {
    let holder = place.holder("a", &[]);
    let waiter = place.waiter(&["run", "a", "--", "true"]);
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.ended().code(), 143);
    assert!(place.waiters("a").is_empty());
    holder.end().assert(0, "", "");
}

/// The command is told, and then killed, before another can hold: `silence` stops the server, and lets it go on.
pub(crate) fn a_silent_server_ends_the_command(place: &Place, silence: impl Fn(bool)) {
    let line = "trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let run = place.started(&["run", "a", "--", "sh", "-c", line]);
    let command = place.pid("pid");
    silence(true);
    let done = run.ended();
    done.assert(76, "", "sending TERM to the command, and KILL in ");
    let url = place.url();
    let (store, setting) = url.split_once('?').unwrap();
    for part in [
        &format!("leasehold: losing a: {store}"),
        " has not confirmed it for ",
        "s and may give it to another in ",
        &format!("s ({setting}); sending TERM"),
    ] {
        assert!(done.err.contains(part), "{part:?} is not in {done:?}");
    }
    assert!(done.err.contains("the command has not ended; sending KILL"), "{done:?}");
    assert!(!is_alive(command));
    silence(false);
    place.done(&["run", "a", "--quiet", "--", "true"]).assert(0, "", "");
}

/// With nobody to hand over to, killed with its command.
pub(crate) fn a_killed_run_frees_the_lock(place: &Place) {
    let run = place.holder("a", &[]);
    let next = place.waiter(&["run", "a", "--quiet", "--", "echo", "mine"]);
    run.signal(Signal::SIGKILL);
    next.ended().assert(0, "mine\n", "");
}
