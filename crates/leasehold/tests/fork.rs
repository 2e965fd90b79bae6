//! Forks of a process that holds locks: in the child every call fails at once, and the parent
//! notices nothing.
//!
//! This test has its own `main`, so that the thread that forks is the main thread.
#![allow(missing_docs)]

#[cfg(all(feature = "file", feature = "redis", feature = "zookeeper"))]
fn main() {
    const TEST: &str = "fork_fails_at_once_and_its_parent_goes_on";

    let is_listed = std::env::args().any(|arg| arg == "--list");
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    if is_listed {
        println!("{TEST}: test");
    } else if filter.is_none_or(|filter| TEST.contains(&filter)) {
        println!("\nrunning 1 test");
        forks::fork_fails_at_once_and_its_parent_goes_on();
        println!("test {TEST} ... ok\n");
    }
}

#[cfg(not(all(feature = "file", feature = "redis", feature = "zookeeper")))]
fn main() {}

#[cfg(all(feature = "file", feature = "redis", feature = "zookeeper"))]
mod forks {
    use std::fmt::Debug;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use lab_servers::{Redis, ZooKeeper, until_within};
    use leasehold::stores::FileGuardExt;
    use leasehold::{Error, Guard, Locks, LossReason, Observer, Owner, Result, blocking, drain};
    use pollster::block_on;
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

    /// No call waits for so long.
    const LONG: Duration = Duration::from_secs(3_600);

    unsafe extern "C" {
        safe fn fork() -> i32;
    }

    /// Shows G-01, G-02.
    pub(crate) fn fork_fails_at_once_and_its_parent_goes_on() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = format!("file:{}", folder.path().display());
        let [redis, two, three] = [(); 3].map(|()| Redis::start());
        let masters = [&redis, &two, &three].map(Redis::address);
        let redlock = format!(
            "redlock://{}?quarantine=off&longest-lease=60s",
            masters.join(",")
        );
        let zookeeper = ZooKeeper::start();
        let plain = format!("{}?dialect=plain", redis.url());
        let redisson = format!("{}?dialect=redisson", redis.url());

        for url in [
            "memory:",
            &file,
            &redis.url(),
            &plain,
            &redisson,
            &redlock,
            &zookeeper.url(),
        ] {
            println!("{url}");
            parent_and_children(url);
        }
    }

    fn parent_and_children(url: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let locks = runtime.block_on(leasehold::open(url)).expect("it opens");
        let mut parent = runtime.block_on(Parent::new(&locks));
        // In the runtime of the parent, and without one.
        runtime
            .block_on(async { fork_and_wait(|| block_on(async_child(url, &locks, &mut parent))) });
        fork_and_wait(|| blocking_child(&locks));
        // The child drops everything, as a program that returns from `main`.
        let (parent, locks) = fork_that_drops((parent, locks));
        runtime.block_on(child_that_closes_its_store(url, &locks));

        runtime.block_on(parent.goes_on(url, &locks));
    }

    /// The only guard of a store is dropped in a child, and so is the store.
    async fn child_that_closes_its_store(url: &str, locks: &Locks) {
        let only = leasehold::open(url).await.expect("it opens");
        let guard = only.mutex("only").acquire().await.expect("granted");
        let (only, guard) = fork_that_drops((only, guard));

        let store = if url == "memory:" { &only } else { locks };
        let refused = store.mutex("only").try_acquire().await;
        assert!(
            refused.expect("it replies").is_err(),
            "the child has released the lock"
        );
        guard.release().await.expect("the parent holds the lock");
    }

    /// What the parent has before it forks.
    struct Parent {
        guard: Guard,
        /// Waits behind the guard.
        waiting: BoxFuture<'static, Result<Guard>>,
        dropped: Option<Guard>,
        owner: Owner,
        reentrant: leasehold::ReentrantGuard,
        observer: Observer,
    }

    impl Parent {
        async fn new(locks: &Locks) -> Self {
            let owner = Owner::new();
            let reentrant = locks.reentrant("reentrant").acquire(&owner).await;
            let mut observer = locks.observe("held").await.expect("observed");
            observer.next().await.expect("inspected");
            let guard = locks.mutex("held").acquire().await.expect("granted");
            observer.next().await.expect("inspected");
            let mut waiting = locks.mutex("held").acquire().boxed();
            tokio::select! {
                granted = &mut waiting => panic!("{granted:?}"),
                () = waits(locks) => {}
            }
            let dropped = locks.mutex("dropped").acquire().await.expect("granted");
            Self {
                guard,
                waiting,
                dropped: Some(dropped),
                owner,
                reentrant: reentrant.expect("granted"),
                observer,
            }
        }

        /// The store and both sides of the parent's connections work as before.
        async fn goes_on(self, url: &str, locks: &Locks) {
            self.guard.check().expect("the parent holds the lock");
            assert_eq!(self.guard.loss(), None);
            let again = locks.mutex("held").try_acquire().await.expect("it replies");
            assert!(again.is_err());
            let again = locks
                .mutex("dropped")
                .try_acquire()
                .await
                .expect("it replies");
            assert!(again.is_err(), "the child has released the lock");
            let nested = locks.reentrant("reentrant").acquire(&self.owner).await;
            nested.expect("nested").release().await.expect("released");
            if url != "memory:" {
                let other = leasehold::open(url).await.expect("it opens");
                let refused = other.mutex("held").try_acquire().await.expect("it replies");
                assert!(refused.is_err());
            }

            self.guard.release().await.expect("released");
            let next = self.waiting.await.expect("granted");
            next.release().await.expect("released");
            drop((self.dropped, self.reentrant, self.observer));
            drain().await;
            for name in ["held", "dropped", "reentrant"] {
                let lock = locks.mutex(name);
                let granted = lock.try_acquire_for(LONG).await.expect("it replies");
                granted.expect("free").release().await.expect("released");
            }
        }
    }

    /// Waits until a claim is in the queue behind the guard.
    async fn waits(locks: &Locks) {
        let waiters = async || {
            let lock_state = locks.inspect("held").await.expect("inspected");
            lock_state.waiters().count()
        };
        while waiters().await == 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn async_child(url: &str, locks: &Locks, parent: &mut Parent) {
        for name in ["held", "free"] {
            let lock = locks.mutex(name);
            refused(lock.acquire().await);
            refused(lock.try_acquire().await);
            refused(lock.try_acquire_for(LONG).await);
            refused(locks.reentrant(name).acquire(&Owner::new()).await);
            refused(
                locks
                    .reentrant(name)
                    .try_acquire_for(&Owner::new(), LONG)
                    .await,
            );
            refused(locks.multi_lock([name, "other"]).acquire().await);
            refused(locks.inspect(name).await);
            refused(locks.observe(name).await);
            refused(locks.break_hold(name, parent.guard.token()).await);
        }
        refused(locks.list("", 9).await);
        refused(locks.remove_unused().await);
        refused(parent.observer.next().await);
        refused(leasehold::open(url).await);
        refused(leasehold::examine(url).await);
        if locks.guarantees().cohorts {
            refused(locks.mutex("held").cohort(3).acquire().await);
        }
        if locks.guarantees().tokens {
            refused(locks.election("held").campaign("here").await);
            refused(locks.election("held").leader().await);
        }

        let guard = &parent.guard;
        lost(guard.check());
        assert_eq!(guard.loss(), Some(LossReason::Forked));
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert_eq!(guard.lost().await, LossReason::Forked);
        lost(guard.watch().check());
        assert_eq!(guard.watch().lost().await, Some(LossReason::Forked));
        guard.until_remaining(Duration::ZERO).await;
        lost(guard.while_held(async {}).await);
        lost(guard.inheritable_fds());
        refused(locks.reentrant("reentrant").acquire(&parent.owner).await);
        lost(parent.reentrant.check());
        lost(parent.dropped.take().expect("a guard").release().await);
        drain().await;
    }

    fn blocking_child(locks: &Locks) {
        let locks = blocking::Locks::from(locks.clone());
        refused(locks.mutex("held").acquire());
        refused(locks.mutex("free").try_acquire_for(LONG));
        refused(locks.inspect("held"));
        refused(blocking::open("memory:"));
        assert!(blocking::drain(LONG));
    }

    fn refused<T: Debug>(reply: Result<T>) {
        let error = reply.expect_err("the child has no background thread");
        assert!(
            error.is_invalid() && error.to_string().contains("was forked"),
            "{error}"
        );
    }

    fn lost<T: Debug>(reply: Result<T>) {
        let error: Error = reply.expect_err("the parent holds the lock");
        assert!(
            error.is_lost() && error.to_string().contains("was forked"),
            "{error}"
        );
    }

    /// Forks, and runs `child` in the child, which then exits.
    fn fork_and_wait(child: impl FnOnce()) {
        match fork() {
            0 => {
                let passed = catch_unwind(AssertUnwindSafe(child)).is_ok();
                std::process::exit(i32::from(!passed));
            }
            id => wait_for(id),
        }
    }

    /// Forks; the child drops these values and exits.
    fn fork_that_drops<T>(values: T) -> T {
        match fork() {
            0 => {
                drop(values);
                std::process::exit(0);
            }
            id => wait_for(id),
        }
        values
    }

    fn wait_for(id: i32) {
        let child = Pid::from_raw(id).expect("the fork has a child");
        let ended = until_within(Duration::from_secs(60), "the child ends", || {
            Ok(waitpid(Some(child), WaitOptions::NOHANG)?)
        });
        if ended.is_err() {
            let _ = kill_process(child, Signal::KILL);
        }
        let (_, status) = ended.expect("no call of the child waits");
        assert_eq!(status.exit_status(), Some(0));
    }
}
