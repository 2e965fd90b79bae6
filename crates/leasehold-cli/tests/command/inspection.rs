//! The subcommands ls, show, watch and break.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, Started, until};
use crate::serve::site::Site;

#[test]
fn showing_a_free_lock_succeeds() {
    let sandbox = Sandbox::new();
    let store = format!("store {} (from LEASEHOLD_STORE)\n", sandbox.url());
    let free = format!("a: free\n  {store}");
    sandbox.done(&["show", "a"]).assert(0, &free, "");
    assert_eq!(
        sandbox.show("a"),
        json!({
            "name": "a",
            "state": "free",
            "kind": null,
            "held": 0,
            "capacity": null,
            "last_token": null,
            "holders": [],
            "waiters": [],
            "external_holders": [],
        })
    );

    sandbox
        .done(&["ls"])
        .assert(0, "NAME  KIND  HELD  WAITERS  AGE  HOLDER\n", &store);
    sandbox.done(&["ls", "--json"]).assert(0, "[]\n", "");
}

/// A lock with a holder, a reader behind it, and a writer behind that.
struct Queue {
    sandbox: Sandbox,
    pids: [i32; 3],
    _runs: [Started; 3],
}

impl Queue {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let runs = [
            sandbox.holder("a", &["--label", "first"]),
            sandbox.waiter(&["run", "a", "--shared", "--", "true"]),
            sandbox.waiter(&["run", "a", "--", "true"]),
        ];

        Self {
            pids: runs.each_ref().map(|run| run.pid().as_raw()),
            sandbox,
            _runs: runs,
        }
    }

    /// The JSON of the lock. Only the token, the times and the ages of `shown` are taken over.
    fn expected(&self, shown: &Value) -> Value {
        let token = shown["last_token"].as_str().unwrap();
        assert!(token.parse::<u64>().unwrap() > 0);
        let since = [
            &shown["holders"][0],
            &shown["waiters"][0],
            &shown["waiters"][1],
        ]
        .map(|entry| &entry["since"]);
        for time in since {
            time.as_str().unwrap().parse::<Timestamp>().unwrap();
        }
        let ages = [
            &shown["holders"][0],
            &shown["waiters"][0],
            &shown["waiters"][1],
        ]
        .map(|entry| entry["age_seconds"].as_u64().unwrap());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();

        json!({
            "name": "a",
            "state": "in_use",
            "kind": "rwlock",
            "held": 1,
            "capacity": null,
            "last_token": token,
            "holders": [{
                "token": token,
                "share": "exclusive",
                "weight": 1,
                "capacity": 1,
                "since": since[0],
                "age_seconds": ages[0],
                "host": host.trim(),
                "pid": self.pids[0],
                "program": "leasehold",
                "label": "first",
                "stopped": false,
                "command_stopped": false,
            }],
            "waiters": [
                {
                    "position": 1,
                    "share": "shared",
                    "weight": 1,
                    "capacity": null,
                    "since": since[1],
                "age_seconds": ages[1],
                    "host": host.trim(),
                    "pid": self.pids[1],
                    "program": "leasehold",
                    "label": "true",
                    "stopped": false,
                    "command_stopped": false,
                },
                {
                    "position": 2,
                    "share": "exclusive",
                    "weight": 1,
                    "capacity": 1,
                    "since": since[2],
                "age_seconds": ages[2],
                    "host": host.trim(),
                    "pid": self.pids[2],
                    "program": "leasehold",
                    "label": "true",
                    "stopped": false,
                    "command_stopped": false,
                },
            ],
            "external_holders": [],
        })
    }
}

#[test]
fn show_prints_holders_and_waiters_as_text() {
    let queue = Queue::new();
    let text = queue.sandbox.done(&["show", "a"]).out;
    let starts = [
        "a: in use, rwlock, writer held, last token ",
        "  held: leasehold[",
        "  waiting 1: leasehold[",
        "  waiting 2: leasehold[",
        "  store file:/",
    ];
    assert_eq!(text.lines().count(), starts.len());
    assert!(
        text.lines()
            .zip(starts)
            .all(|(line, start)| line.starts_with(start)),
        "{text}"
    );
}

#[test]
fn show_json_has_exactly_the_documented_fields() {
    let queue = Queue::new();
    let shown = queue.sandbox.show("a");
    assert_eq!(shown, queue.expected(&shown));
}

#[test]
fn ls_json_has_exactly_the_documented_fields() {
    let queue = Queue::new();
    let done = queue.sandbox.done(&["ls", "--json"]);
    let listed: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(listed, json!([queue.expected(&listed[0])]));
}

#[test]
fn watch_json_has_exactly_the_documented_fields() {
    let queue = Queue::new();
    let mut watch = queue.sandbox.started(&["watch", "a", "--json"]);
    let mut line = String::new();
    BufReader::new(watch.out()).read_line(&mut line).unwrap();

    let shown: Value = serde_json::from_str(&line).unwrap();
    shown["at"].as_str().unwrap().parse::<Timestamp>().unwrap();

    let mut expected = queue.expected(&shown);
    expected["at"] = shown["at"].clone();
    assert_eq!(shown, expected);
}

/// The field names and their order are what scripts and people see.
#[test]
fn json_fields_have_a_fixed_order() {
    let queue = Queue::new();
    let shown = queue.sandbox.done(&["show", "a", "--json"]).out;
    let top: Vec<&str> = shown
        .lines()
        .filter_map(|line| line.strip_prefix("  \"")?.split('"').next())
        .collect();
    assert_eq!(
        top,
        [
            "name",
            "state",
            "kind",
            "held",
            "capacity",
            "last_token",
            "holders",
            "waiters",
            "external_holders"
        ]
    );
}

#[test]
fn flock_holder_is_shown_as_external_holder() {
    let sandbox = Sandbox::new();
    sandbox.done(&["ls"]).assert_names(&[]);
    let mut flock = Command::new("flock")
        .arg("--no-fork")
        .arg(sandbox.path("store/a.lock"))
        .arg("cat")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    until("flock holds the lock", || {
        sandbox.show("a")["external_holders"] != json!([])
    });

    until("flock has become cat", || {
        sandbox.show("a")
            == json!({
                "name": "a",
                "state": "in_use",
                "kind": null,
                "held": 0,
                "capacity": null,
                "last_token": null,
                "holders": [],
                "waiters": [],
                "external_holders": [{"pid": flock.id(), "program": "cat"}],
            })
    });
    let listed = sandbox.done(&["ls"]);
    listed.assert_names(&["a"]);
    let holder = format!("cat[{}] (flock)\n", flock.id());
    assert!(listed.out.ends_with(&holder), "{listed:?}");
    let metrics = Site::start(&sandbox, &[]).get("/metrics");
    let series = "leasehold_external_holders{name=\"a\",kind=\"external\"} 1\n";
    assert!(metrics.contains(series), "{metrics}");
    drop(flock.stdin.take());
    flock.wait().unwrap();
}

/// Such a lock keeps a slot of the semaphore from its number.
#[test]
fn number_of_a_slot_that_flock_holds_is_listed() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("a", &["--slots", "2"]);
    let mut flock = Command::new("flock")
        .args(["--no-fork".into(), sandbox.path("store/a%2Fslot%2F1.lock")])
        .arg("cat")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    until("flock holds the lock", || {
        sandbox.show("a/slot/1")["external_holders"] != json!([])
    });
    sandbox.done(&["ls"]).assert_names(&["a", "a/slot/1"]);

    drop(flock.stdin.take());
    flock.wait().unwrap();
    holder.end().assert(0, "", "");
}

#[test]
fn ls_lists_names_with_the_prefix() {
    let sandbox = Sandbox::new();
    let _holders = [
        sandbox.holder("jobs/a", &[]),
        sandbox.holder("jobs/b", &[]),
        sandbox.holder("x", &[]),
    ];
    let _waiter = sandbox.waiter(&["run", "jobs/b", "--", "true"]);
    sandbox.done(&["run", "jobs/free", "--", "true"]);
    let table = sandbox.done(&["ls", "jobs/"]).out;
    let words: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().take(6).collect())
        .collect();
    assert_eq!(
        words,
        [
            ["NAME", "KIND", "HELD", "WAITERS", "AGE", "HOLDER"],
            ["jobs/a", "mutex", "1", "of", "1", "0"],
            ["jobs/b", "mutex", "1", "of", "1", "1"]
        ]
    );
    // The age of a hold may pass a second between the two commands.
    until("both commands print the same", || {
        let listed: Value =
            serde_json::from_str(&sandbox.done(&["ls", "jobs/", "--json"]).out).unwrap();
        assert_eq!(listed.as_array().unwrap().len(), 2);
        listed[1] == sandbox.show("jobs/b")
    });
}

#[test]
fn ls_reports_damaged_locks_and_lists_the_others() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("b", &[]);
    std::fs::write(sandbox.path("store/a.queue"), "foreign text").unwrap();
    let done = sandbox.done(&["ls"]);
    assert_eq!(
        (done.code(), done.out.lines().count()),
        (70, 2),
        "{}",
        done.out
    );
    assert!(
        done.err.lines().count() == 2 && done.err.contains(" \"a\" "),
        "{}",
        done.err
    );
    holder.end();
}

/// A key that is not of this version of leasehold is not a free lock.
///
/// Shows G-23.
#[test]
fn foreign_key_is_not_shown_as_a_free_lock() {
    let sandbox = Sandbox::on_redis();
    let later = format!("1795923551547650L v2 1 2 1 0 {}", "-".repeat(22));
    for (key, code) in [("x", 70), ("1795923551547650X", 70), (&later, 64)] {
        sandbox.server().command(&["SET", "leasehold:{a}", key]);
        for command in [
            &["show", "--exit-code", "a"][..],
            &["wait", "-n", "a"],
            &["ls"],
        ] {
            let done = sandbox.done(command);
            assert_eq!(done.code(), code, "{command:?}, {key}: {done:?}");
        }
    }
}

#[test]
fn ls_that_fails_reports_damaged_locks_too() {
    /// The checksum of a queue file of version 9.
    const CHECKSUM: [u8; 4] = [0x40, 0xB0, 0x25, 0x96];

    let sandbox = Sandbox::new();
    sandbox.holder("b", &[]).end();
    std::fs::write(sandbox.path("store/a.queue"), "foreign text").unwrap();
    let newer = [b"leasehld\x09".as_slice(), &[0; 51], &CHECKSUM].concat();
    std::fs::write(sandbox.path("store/b.queue"), newer).unwrap();

    let done = sandbox.done(&["ls"]);
    assert!(done.err.contains("has version 9"), "{done:?}");
    assert!(done.err.contains(" \"a\" "), "{done:?}");
}

/// Shows G-47.
#[test]
fn watch_prints_every_change_until_interrupted() {
    let sandbox = Sandbox::new();
    let mut watch = sandbox.started(&["watch", "a", "--json"]);
    let mut lines = BufReader::new(watch.out()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let free = next();
    let holder = sandbox.holder("a", &[]);
    let held = next();
    assert_eq!(
        (held["holders"].as_array().unwrap().len(), &held["name"]),
        (1, &"a".into())
    );
    holder.end();
    assert_eq!(next()["holders"], free["holders"]);
    watch.signal(Signal::SIGINT);
    watch.wait().assert_signal(Signal::SIGINT, "");
}

#[test]
fn watch_ends_quietly_when_its_reader_closes() {
    let sandbox = Sandbox::new();
    let mut watch = sandbox.started(&["watch", "a"]);
    let mut first = String::new();
    BufReader::new(watch.out()).read_line(&mut first).unwrap();
    let _holder = sandbox.holder("a", &[]);
    let ended = watch.wait();
    ended.assert_signal(Signal::SIGPIPE, "");
}

#[test]
fn watch_of_several_names_prints_the_changes_of_each() {
    let sandbox = Sandbox::new();
    let mut watch = sandbox.started(&["watch", "a", "b", "--json"]);
    let mut lines = BufReader::new(watch.out()).lines();
    let mut next = || -> (String, String) {
        let change: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let text = |field: &str| change[field].as_str().unwrap().to_owned();
        (text("name"), text("state"))
    };
    let change = |name: &str, state: &str| (name.to_owned(), state.to_owned());

    assert_eq!([next(), next()], [change("a", "free"), change("b", "free")]);
    let _b = sandbox.holder("b", &[]);
    assert_eq!(next(), change("b", "in_use"));
    let _a = sandbox.holder("a", &[]);
    assert_eq!(next(), change("a", "in_use"));
}

#[test]
fn ls_and_show_print_kind_usage_and_age() {
    let sandbox = Sandbox::new();
    let _runs = [
        sandbox.holder("readers", &["--shared"]),
        sandbox.holder("readers", &["--shared"]),
        sandbox.holder("slots", &["--slots", "4", "--permits", "3"]),
    ];
    let _hold = sandbox.holder("writer", &[]);
    let _waiter = sandbox.waiter(&["run", "writer", "--shared", "--", "true"]);

    let table = sandbox.done(&["ls"]).out;
    for (name, words) in [
        ("readers", ["rwlock", "2 readers", "0"]),
        ("slots", ["semaphore", "3 of 4", "0"]),
        ("writer", ["rwlock", "writer", "1"]),
    ] {
        let row = table
            .lines()
            .find(|row| row.starts_with(&format!("{name} ")));
        let cells: Vec<_> = row
            .unwrap()
            .split("  ")
            .filter(|cell| !cell.is_empty())
            .map(str::trim)
            .collect();
        assert_eq!(cells[1..4], words, "{table}");
        assert!(
            cells[4].ends_with('s') && cells[5].contains("leasehold["),
            "{table}"
        );
    }

    let shown = sandbox.show("slots");
    assert_eq!(
        (&shown["kind"], &shown["held"], &shown["capacity"]),
        (&"semaphore".into(), &3.into(), &4.into())
    );
    let text = sandbox.done(&["show", "slots"]).out;
    assert!(
        text.starts_with("slots: in use, semaphore, 3 of 4 held, last token "),
        "{text}"
    );
}

#[test]
fn show_exit_code_is_1_for_a_lock_in_use() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.done(&["show", "a", "--exit-code"]).code(), 0);
    let holder = sandbox.holder("a", &[]);
    let held = sandbox.done(&["show", "a", "--exit-code", "--json"]);
    assert_eq!((held.code(), held.err.as_str()), (1, ""));
    assert!(held.out.contains("in_use"));
    holder.end().assert(0, "", "");
}

/// Shows G-47.
#[test]
fn wait_returns_when_the_lock_is_free() {
    let sandbox = Sandbox::new();
    sandbox.done(&["wait", "a"]).assert(0, "", "");
    sandbox
        .done(&["wait", "a", "--wait", "0"])
        .assert(0, "", "");

    let holder = sandbox.holder("a", &[]);
    for (wait, message) in [
        ("0", "leasehold: a is not free: held by leasehold["),
        (
            "50ms",
            "leasehold: a was not free within 50ms: held by leasehold[",
        ),
    ] {
        sandbox
            .done(&["wait", "a", "--wait", wait])
            .assert(75, "", message);
    }
    sandbox
        .done(&["wait", "a", "--wait", "0", "--quiet"])
        .assert(75, "", "");

    let mut wait = sandbox.started(&["wait", "a"]);
    assert!(wait.is_running() && sandbox.waiters("a").is_empty());
    holder.end().assert(0, "", "");
    wait.wait().assert(0, "", "");
    assert_eq!(
        sandbox.show("a")["holders"],
        json!([]),
        "waiting takes no lock"
    );
}

/// Others that come and go do not prolong the wait.
///
/// Shows L6.
#[test]
fn wait_ends_in_time_while_the_lock_changes() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("a", &[]);
    let mut wait = sandbox.started(&["wait", "a", "--wait", "1s"]);
    let begun = Instant::now();
    while wait.is_running() {
        assert!(begun.elapsed() < Duration::from_secs(15), "it waits on");
        let passing = sandbox.done(&["run", "a", "--wait", "100ms", "--", "true"]);
        passing.assert(75, "", "held by leasehold");
    }
    wait.wait().assert(75, "", "a was not free within 1s");
}

#[test]
fn break_with_wrong_token_names_the_holder() {
    let sandbox = Sandbox::new();
    sandbox.done(&["break", "a", "--token", "7"]).assert(
        1,
        "",
        "a is not held with token 7; current state:\na: free",
    );
    let holder = sandbox.holder("a", &[]);
    let token = sandbox.token("a");
    sandbox
        .done(&["break", "a", "--token", "7"])
        .assert(1, "", &format!("token {token}"));
    holder.end().assert(0, "", "");
}

#[test]
fn store_is_chosen_by_flag_or_environment() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("a", &[]);
    let elsewhere = format!("file:{}", sandbox.path("elsewhere").display());
    sandbox
        .done(&["ls", "--store", &elsewhere, "--json"])
        .assert(0, "[]\n", "");
    let mut ls = sandbox.leasehold(&["ls", "--json"]);
    let state = sandbox.path("state");
    assert_eq!(
        ls.env_remove("LEASEHOLD_STORE")
            .env("XDG_STATE_HOME", &state)
            .output()
            .unwrap()
            .stdout,
        b"[]\n"
    );
    assert!(state.join("leasehold").is_dir());
}
