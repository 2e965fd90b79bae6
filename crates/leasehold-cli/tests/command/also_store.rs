//! `--also-store`: programs move from one store to another, and exclude each other meanwhile.

use lab_servers::Redis;
use nix::sys::signal::Signal;

use crate::sandbox::{Finished, Sandbox, Started, is_alive, until};

/// A folder as the old store, and a Redis server as the new one.
struct Move {
    sandbox: Sandbox,
    server: Redis,
}

/// The stores that a process uses in a phase of the move.
#[derive(Clone, Copy)]
enum Release {
    Old,
    Both,
    /// Both stores, with the new one as --store.
    BothReversed,
    New,
}

impl Move {
    fn begin() -> Self {
        Self {
            sandbox: Sandbox::new(),
            server: Redis::start(),
        }
    }

    fn run(&self, release: Release, options: &[&str], command: &[&str]) -> Vec<String> {
        let old = self.sandbox.url();
        let new = self.server.url();
        let stores = match release {
            Release::Old => vec!["--store", &old],
            Release::Both => vec!["--store", &old, "--also-store", &new],
            Release::BothReversed => vec!["--store", &new, "--also-store", &old],
            Release::New => vec!["--store", &new],
        };

        let words = [&["run", "a"], &stores[..], options, &["--"], command].concat();
        words.into_iter().map(str::to_owned).collect()
    }

    fn try_run(&self, release: Release) -> Finished {
        let run = self.run(release, &["--wait", "0"], &["echo", "ran"]);
        self.sandbox.done(&run)
    }

    /// Starts a run that holds until its standard input ends, and waits for its grant.
    fn holder(&self, release: Release) -> Started {
        let line = "echo held > held; exec cat";
        let run = self.run(release, &[], &["sh", "-c", line]);
        let holder = self.sandbox.started(&run);

        until("the run holds the lock", || {
            self.sandbox.read("held") == "held\n"
        });
        std::fs::remove_file(self.sandbox.path("held")).unwrap();
        holder
    }

    /// Fails unless the lock is free in both stores.
    #[track_caller]
    fn assert_free(&self) {
        for release in [Release::Old, Release::New] {
            self.try_run(release).assert(0, "ran\n", "");
        }
    }

    fn token(&self, store: &str) -> String {
        let done = self
            .sandbox
            .done(&["show", "a", "--json", "--store", store]);
        let shown: serde_json::Value = serde_json::from_str(&done.out).unwrap();
        shown["holders"][0]["token"].as_str().unwrap().to_owned()
    }
}

/// Shows G-40.
#[test]
fn run_of_both_stores_excludes_old_and_new_processes() {
    let stores = Move::begin();
    let both = stores.holder(Release::Both);

    for other in [
        Release::Old,
        Release::Both,
        Release::BothReversed,
        Release::New,
    ] {
        stores.try_run(other).assert(75, "", "a was not granted");
    }
    both.end().assert(0, "", "");
    stores.assert_free();
}

/// The shorter limit of the two stores says how much time there is to end COMMAND.
///
/// Shows G-24, G-40.
#[test]
fn time_to_end_the_command_fits_into_both_stores() {
    let stores = Move::begin();
    for both in [Release::Both, Release::BothReversed] {
        let run = stores.run(both, &["--kill-after", "8s"], &["echo", "ran"]);
        let reason = "--kill-after (8s) does not fit";
        stores.sandbox.done(&run).assert(64, "", reason);
    }
}

/// A run that is refused by one store does not keep the lock of the other one.
///
/// Shows G-40.
#[test]
fn hold_in_either_store_excludes_a_run_of_both() {
    let stores = Move::begin();

    for holder in [Release::Old, Release::New] {
        let held = stores.holder(holder);
        for both in [Release::Both, Release::BothReversed] {
            stores.try_run(both).assert(75, "", "a was not granted");
        }
        held.end().assert(0, "", "");
        stores.assert_free();
    }
}

/// The phases of a move overlap: each process may already belong to the next phase.
///
/// Shows G-40.
#[test]
fn phases_of_a_move_never_overlap() {
    let stores = Move::begin();
    let phases = [
        [Release::Old, Release::Both],
        [Release::Both, Release::BothReversed],
        [Release::BothReversed, Release::New],
    ];

    for phase in phases {
        // `mkdir` fails if another run holds at the same time.
        let line = "mkdir alone && sleep 0.01 && rmdir alone && echo x >> runs";
        let runs: Vec<_> = (0..4)
            .flat_map(|_| phase)
            .map(|release| {
                let run = stores.run(release, &["--quiet"], &["sh", "-c", line]);
                stores.sandbox.started(&run)
            })
            .collect();

        for run in runs {
            run.wait().assert(0, "", "");
        }
    }
    assert_eq!(stores.sandbox.read("runs").lines().count(), 24);
    stores.assert_free();
}

/// Shows G-40.
#[test]
fn loss_in_either_store_stops_the_command_and_frees_both() {
    let stores = Move::begin();

    for broken in [stores.sandbox.url(), stores.server.url()] {
        let run = stores.run(
            Release::Both,
            &[],
            &["sh", "-c", "echo held > held; exec sleep 60"],
        );
        let run = stores.sandbox.started(&run);
        until("the run holds the lock", || {
            stores.sandbox.read("held") == "held\n"
        });
        std::fs::remove_file(stores.sandbox.path("held")).unwrap();

        let token = stores.token(&broken);
        let broke = ["break", "a", "--token", &token, "--store", &broken];
        assert_eq!(stores.sandbox.done(&broke).code(), 0);

        run.wait().assert(76, "", "leasehold: lost a: ");
        stores.assert_free();
    }
}

/// On a server, the lock becomes free after the crash, whatever the other store keeps.
///
/// Shows G-36, G-40.
#[test]
fn killed_run_kills_all_descendants_if_one_store_is_a_server() {
    let stores = Move::begin();

    for release in [Release::Both, Release::BothReversed] {
        let line = "setsid sleep 1000 & echo $! > pid; wait";
        let run = stores.run(release, &[], &["sh", "-c", line]);
        let run = stores.sandbox.started(&run);
        let descendant = stores.sandbox.pid("pid");

        run.signal(Signal::SIGKILL);
        until("the descendant has ended", || !is_alive(descendant));
        std::fs::remove_file(stores.sandbox.path("pid")).unwrap();
    }
}

#[test]
fn command_gets_the_token_and_the_url_of_the_main_store() {
    let stores = Move::begin();
    let line = "echo $LEASEHOLD_STORE $LEASEHOLD_TOKEN; exec cat";
    let new = stores.server.url();

    let arguments = stores.run(Release::BothReversed, &[], &["sh", "-c", line]);
    let run = stores.sandbox.started(&arguments);
    until("both stores have granted the lock", || {
        let shown = |store: &str| stores.sandbox.done(&["show", "a", "--store", store]).out;
        [&new, &stores.sandbox.url()]
            .iter()
            .all(|store| shown(store).contains("held: "))
    });
    let token = stores.token(&new);

    run.end().assert(0, &format!("{new} {token}\n"), "");
}

/// Shows G-35.
#[test]
fn second_store_may_come_from_the_environment() {
    let stores = Move::begin();
    let held = stores.holder(Release::New);
    let run = |also: &str| -> Finished {
        let arguments = stores.run(Release::Old, &["--wait", "0"], &["true"]);
        let mut run = stores.sandbox.leasehold(&arguments);
        run.env("LEASEHOLD_ALSO_STORE", also)
            .output()
            .unwrap()
            .into()
    };

    run(&stores.server.url()).assert(75, "", "a was not granted");
    let message = "LEASEHOLD_ALSO_STORE is empty (a missing secret?); set a URL, or unset it to \
                   hold in one store";
    run("").assert(64, "", message);
    held.end().assert(0, "", "");
}

/// A variable of the script was empty.
///
/// Shows G-35.
#[test]
fn empty_second_store_is_refused() {
    let stores = Move::begin();
    let run = stores.run(Release::Old, &["--also-store", ""], &["echo", "ran"]);
    stores.sandbox.done(&run).assert(64, "", "the URL is empty");
}

/// A run inside a run with `--also-store` has the second store from the environment.
#[test]
fn inherited_second_store_is_named_in_the_refusal() {
    let stores = Move::begin();
    let new = stores.server.url();
    let inner = ["--wait", "0", "--store", &new, "b", "--", "true"];

    let mut run = stores.sandbox.leasehold(&["run"]);
    run.args(inner).env("LEASEHOLD_ALSO_STORE", &new);
    let done: Finished = run.output().unwrap().into();
    done.assert(64, "", "unset LEASEHOLD_ALSO_STORE");
}

/// Shows G-40.
#[test]
fn same_store_twice_is_refused() {
    let stores = Move::begin();
    let port = stores.server.port();
    let [one, other] = ["127.0.0.1", "localhost"].map(|host| format!("redis://{host}:{port}"));

    for also in [&one, &other] {
        let run = [
            "run",
            "a",
            "--store",
            &one,
            "--also-store",
            also,
            "--",
            "true",
        ];
        let done = stores.sandbox.done(&run);
        done.assert(64, "", "--store and --also-store are the same store");
    }
    stores.assert_free();
}

/// A nested run would wait for itself in the second store.
#[test]
fn nested_run_in_one_of_the_stores_is_refused() {
    let stores = Move::begin();
    let new = stores.server.url();
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let one_store = ["env", "-u", "LEASEHOLD_ALSO_STORE", leasehold, "run", "a"];
    let inner = [&one_store[..], &["--store", &new, "--", "true"]].concat();

    let run = stores.run(Release::Both, &[], &inner);
    stores
        .sandbox
        .done(&run)
        .assert(64, "", "would wait for itself");

    let both = stores.run(Release::Both, &["--reentrant"], &["echo", "in"]);
    let inner: Vec<&str> = [leasehold]
        .into_iter()
        .chain(both.iter().map(String::as_str))
        .collect();
    let run = stores.run(Release::Both, &[], &inner);
    stores.sandbox.done(&run).assert(0, "in\n", "");

    let run = stores.run(Release::Old, &[], &inner);
    let done = stores.sandbox.done(&run);
    done.assert(64, "", "in only one of the two stores");
}

#[test]
fn command_gets_the_second_store_in_its_environment() {
    let stores = Move::begin();
    let line = "echo $LEASEHOLD_ALSO_STORE";
    let run = stores.run(Release::Both, &[], &["sh", "-c", line]);
    let expected = format!("{}\n", stores.server.url());
    stores.sandbox.done(&run).assert(0, &expected, "");
}

#[test]
fn hold_acquire_and_elect_refuse_a_second_store() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["hold", "a"][..],
        &["acquire", "a", "--detach"],
        &["elect", "a", "--address", "b", "--", "/nonexistent"],
    ] {
        for (url, message) in [
            ("file:/other", "LEASEHOLD_ALSO_STORE is set"),
            ("", "LEASEHOLD_ALSO_STORE is empty (a missing secret?)"),
        ] {
            let mut command = sandbox.leasehold(arguments);
            let done = command.env("LEASEHOLD_ALSO_STORE", url).output().unwrap();
            Finished::from(done).assert(64, "", message);
        }
    }
}
