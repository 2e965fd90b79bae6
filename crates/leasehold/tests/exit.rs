//! Real processes that end with the drop of a guard, and the process that acquires next.
//!
//! This test has its own `main`. As a child it ends like a program, without a test harness.
#![allow(missing_docs)]

#[cfg(feature = "redis")]
fn main() {
    if let Ok(url) = std::env::var(redis::URL) {
        return redis::child(&url, &std::env::var(redis::END).expect("it is set"));
    }

    let is_listed = std::env::args().any(|arg| arg == "--list");
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let tests = redis::ENDS.map(|end| format!("lock_is_free_after_the_end_{end}"));
    let chosen = tests
        .iter()
        .zip(redis::ENDS)
        .filter(|(test, _)| filter.as_ref().is_none_or(|filter| test.contains(filter)));
    if is_listed {
        chosen.for_each(|(test, _)| println!("{test}: test"));
        return;
    }

    let mut failed = 0;
    println!("\nrunning {} tests", chosen.clone().count());
    for (test, end) in chosen {
        let passed = std::panic::catch_unwind(|| redis::lock_is_free_after(end)).is_ok();
        println!("test {test} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    assert_eq!(failed, 0, "tests failed");
}

#[cfg(not(feature = "redis"))]
fn main() {}

#[cfg(feature = "redis")]
mod redis {
    use std::process::{Command, Stdio};

    use lab_servers::Redis;
    use leasehold::{Error, Guard, blocking};
    use tokio::runtime::Builder;

    pub(crate) const URL: &str = "LEASEHOLD_TEST_CHILD_OF";
    pub(crate) const END: &str = "LEASEHOLD_TEST_END";
    /// The ends of a child: how `main` ends, and which of its parts has the guard.
    pub(crate) const ENDS: [&str; 8] = [
        "of_main_without_a_runtime",
        "of_main_after_another_thread_dropped_it",
        "of_main_that_drops_it_last",
        "of_main_that_returns_an_error",
        "of_main_that_panics",
        "of_main_whose_task_opened_the_store",
        "of_main_before_its_tasks",
        "of_main_before_its_tasks_on_several_threads",
    ];
    const ROUNDS: u64 = 100;

    /// Acquires, and ends with the guard alive.
    pub(crate) fn child(url: &str, end: &str) {
        if end == "of_main_without_a_runtime" {
            let locks = blocking::open(url).expect("it opens");
            let _guard = locks.mutex("a").acquire().expect("it is granted");
            return;
        }
        if end == "of_main_after_another_thread_dropped_it" {
            let locks = blocking::open(url).expect("it opens");
            let guard = locks.mutex("a").acquire().expect("it is granted");
            let (dropped, is_dropped) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                drop(guard);
                dropped.send(()).expect("main waits");
                std::thread::park();
            });
            return is_dropped.recv().expect("the thread sends");
        }

        if end == "of_main_whose_task_opened_the_store" {
            let runtime = Builder::new_multi_thread().enable_all().build();
            let url = url.to_owned();
            let work = async move {
                let locks = leasehold::open(&url).await.expect("it opens");
                drop(locks.mutex("a").acquire().await.expect("it is granted"));
            };
            let task = runtime.as_ref().expect("it starts").spawn(work);
            while !task.is_finished() {
                std::thread::yield_now();
            }
            return;
        }

        let runtime = if end.ends_with("on_several_threads") {
            Builder::new_multi_thread().enable_all().build()
        } else {
            Builder::new_current_thread().enable_all().build()
        };
        let ended = runtime.expect("it starts").block_on(async {
            let locks = leasehold::open(url).await?;
            let guard = locks.mutex("a").acquire().await?;
            match end {
                "of_main_that_drops_it_last" => drop(guard),
                "of_main_that_returns_an_error" => returns_early(&guard)?,
                "of_main_that_panics" => panic!("with a guard"),
                _ => {
                    tokio::spawn(async move { guard.lost().await });
                }
            }
            Ok::<(), Error>(())
        });
        assert_eq!(ended.is_err(), end == "of_main_that_returns_an_error");
    }

    fn returns_early(guard: &Guard) -> Result<(), Error> {
        guard.check()?;
        Err(Error::invalid("the work failed"))
    }

    /// Each child is another client. If its release does not reach the server, the next client
    /// waits for the crash grace.
    ///
    /// Shows G-11.
    pub(crate) fn lock_is_free_after(end: &str) {
        let server = Redis::start();
        let locks = blocking::open(&server.url()).expect("it opens");
        let lock = locks.mutex("a");
        let mut last = None;

        for round in 0..ROUNDS {
            let own = std::env::current_exe().expect("it has a path");
            let status = Command::new(own)
                .env(URL, server.url())
                .env(END, end)
                .stderr(Stdio::null())
                .status()
                .expect("it starts");
            let is_expected = status.success() != (end == "of_main_that_panics");
            assert!(is_expected, "round {round}: {status}");

            let guard = lock
                .try_acquire()
                .expect("the server replies")
                .unwrap_or_else(|refused| panic!("round {round}: {refused}"));
            assert!(
                last.is_none_or(|last| guard.token() > last),
                "the child had no grant of its own"
            );
            last = Some(guard.token());
            guard.release().expect("it is released");
        }
    }
}
