//! Real processes that end with the drop of a guard, and the process that acquires next.
//!
//! This test has its own `main`. As a child it ends like a program, without a test harness.
#![allow(missing_docs)]

#[cfg(feature = "redis")]
fn main() {
    const TEST: &str = "guard_dropped_last_is_free_at_once";
    if let Ok(url) = std::env::var(redis::URL) {
        return redis::child(&url);
    }

    let is_listed = std::env::args().any(|arg| arg == "--list");
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    if is_listed {
        println!("{TEST}: test");
    } else if filter.is_none_or(|filter| TEST.contains(&filter)) {
        println!("\nrunning 1 test");
        let passed = std::panic::catch_unwind(redis::guard_dropped_last_is_free_at_once).is_ok();
        println!("test {TEST} ... {}\n", if passed { "ok" } else { "FAILED" });
        assert!(passed, "{TEST} failed");
    }
}

#[cfg(not(feature = "redis"))]
fn main() {}

#[cfg(feature = "redis")]
mod redis {
    use std::process::Command;

    use lab_servers::Redis;
    use leasehold::blocking;

    pub(crate) const URL: &str = "LEASEHOLD_TEST_CHILD_OF";
    const ROUNDS: u64 = 25;

    /// Acquires and returns from `main` with the guard alive: the return drops it.
    pub(crate) fn child(url: &str) {
        let locks = blocking::open(url).expect("it opens");
        let _guard = locks.mutex("a").acquire().expect("it is granted");
    }

    /// Each child is another client. If its release does not reach the server, the next client
    /// waits for the crash grace.
    ///
    /// Shows G-11.
    pub(crate) fn guard_dropped_last_is_free_at_once() {
        let server = Redis::start();
        let locks = blocking::open(&server.url()).expect("it opens");
        let lock = locks.mutex("a");
        let mut last = None;

        for round in 0..ROUNDS {
            let own = std::env::current_exe().expect("it has a path");
            let status = Command::new(own)
                .env(URL, server.url())
                .status()
                .expect("it starts");
            assert!(status.success(), "round {round}: {status}");

            let guard = lock
                .try_acquire()
                .expect("the server replies")
                .unwrap_or_else(|| panic!("round {round}: the lock is still held"));
            assert!(
                last.is_none_or(|last| guard.token() > last),
                "the child had no grant of its own"
            );
            last = Some(guard.token());
            guard.release().expect("it is released");
        }
    }
}
