//! Real processes that end, or only look as if they had, and a client of the same machine that
//! tries to take their lock over.
//!
//! The crash grace is longer than any test. So a lock that is granted again was revoked because the
//! client knows that the process has ended. Each trap here is one into which another library, or an
//! earlier design, has fallen.
//!
//! This test has its own `main`, so that the thread that forks is the main thread. It runs as root,
//! which may make namespaces.
#![allow(missing_docs)]

#[cfg(all(feature = "postgres", feature = "redis", target_os = "linux"))]
fn main() {
    if let Ok(url) = std::env::var(ends::URL) {
        return ends::child(&url, &std::env::var(ends::ROLE).expect("it is set"));
    }

    let is_listed = std::env::args().any(|arg| arg == "--list");
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let is_chosen = |test: &str| filter.as_ref().is_none_or(|filter| test.contains(filter));
    let chosen = ends::TESTS.iter().filter(|(test, _)| is_chosen(test));
    if is_listed {
        chosen.for_each(|(test, _)| println!("{test}: test"));
        return;
    }

    let mut failed = 0;
    println!("\nrunning {} tests", chosen.clone().count());
    for (test, run) in chosen {
        let passed = std::panic::catch_unwind(run).is_ok();
        println!("test {test} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    assert_eq!(failed, 0, "tests failed");
}

#[cfg(not(all(feature = "postgres", feature = "redis", target_os = "linux")))]
fn main() {}

#[cfg(all(feature = "postgres", feature = "redis", target_os = "linux"))]
mod ends {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::thread::park;
    use std::time::Duration;

    use lab_servers::{Cluster, Postgres, Redis, Sentinels, Wire};
    use leasehold::blocking;
    use rustix::process::{Pid, Signal, kill_process};

    pub(crate) const URL: &str = "LEASEHOLD_TEST_CHILD_OF";
    pub(crate) const ROLE: &str = "LEASEHOLD_TEST_ROLE";
    /// Longer than the crash grace. Otherwise the lease alone decides.
    const LEASE: Duration = Duration::from_secs(7_200);

    type Test = (&'static str, fn());

    macro_rules! tests {
        ($($test:ident)+) => {
            pub(crate) const TESTS: &[Test] = &[$((stringify!($test), $test)),+];
        };
    }
    tests! {
        try_takes_over_from_a_killed_process
        waiter_takes_over_from_a_killed_process
        killed_process_of_a_cluster_is_seen
        killed_process_behind_sentinels_is_seen
        killed_process_on_postgresql_is_seen
        unreaped_process_has_ended
        process_that_closes_all_descriptors_keeps_its_lock
        inherited_lock_of_a_file_keeps_the_lock
        inherited_connection_keeps_the_lock
        cut_off_process_keeps_its_lock
        clone_of_the_machine_knows_nothing
        other_time_namespace_is_not_another_start
        other_pid_namespace_knows_nothing
        reused_process_id_is_another_process
        unusable_folder_is_not_used
    }

    unsafe extern "C" {
        safe fn fork() -> i32;
        safe fn close(descriptor: i32) -> i32;
    }

    /// Runs in a process of its own.
    pub(crate) fn child(url: &str, role: &str) {
        let locks = blocking::open(url).expect("it opens");
        let lock = locks.mutex("a").lease(LEASE);
        if role == "try" {
            let tried = lock.try_acquire().expect("it replies");
            return println!("{}", if tried.is_ok() { "granted" } else { "refused" });
        }
        if role == "wait" {
            let _guard = lock.acquire().expect("it is granted");
            return println!("granted");
        }

        let _guard = lock.acquire().expect("it is granted");
        let is_child = role.starts_with("fork") && fork() == 0;
        match (role, is_child) {
            ("fork and keep the file", true) => close_named("socket:"),
            ("fork and keep the connection", true) => close_named("/dev/shm/"),
            _ => {}
        }
        if is_child || !role.starts_with("fork") {
            println!("{}", std::process::id());
            std::io::stdout().flush().expect("it is read");
        }
        if role == "close all" {
            // All descriptors are closed on execution, and no thread is left that needs them.
            let error = Command::new("sleep").arg("infinity").exec();
            panic!("sleep is not executed: {error}");
        }
        loop {
            park();
        }
    }

    /// The descriptors of this process but its standard streams, and what they are.
    fn descriptors() -> Vec<(i32, String)> {
        let entries = std::fs::read_dir("/proc/self/fd")
            .expect("a list")
            .flatten();
        let described = entries.filter_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, target.display().to_string()))
        });
        described.filter(|(number, _)| *number > 2).collect()
    }

    fn close_named(kind: &str) {
        let mut named = descriptors();
        named.retain(|(_, name)| name.starts_with(kind));
        assert!(!named.is_empty(), "there is a {kind}");
        for (number, _) in named {
            close(number);
        }
    }

    fn until(what: &str, mut condition: impl FnMut() -> bool) {
        let found = lab_servers::until(what, || Ok(condition().then_some(())));
        found.expect("in time");
    }

    /// A holder in a process of its own.
    struct Holder {
        /// The process that was started, such as `unshare`.
        started: Child,
        /// The child that it has forked.
        forked: Option<Pid>,
    }

    impl Holder {
        fn start(url: &str, wrapper: &[&str], role: &str) -> Self {
            let mut started = in_role(url, wrapper, role);
            let mut line = String::new();
            let output = started.stdout.as_mut().expect("it is a pipe");
            BufReader::new(output)
                .read_line(&mut line)
                .expect("it is read");
            let printed = line.trim().parse().expect("the id of a process");
            let forked = role.starts_with("fork").then(|| Pid::from_raw(printed));
            Self {
                started,
                forked: forked.flatten(),
            }
        }

        fn pid(&self) -> Pid {
            Pid::from_child(&self.started)
        }

        fn kill(&mut self) {
            kill_process(self.pid(), Signal::KILL).expect("it runs");
            self.started.wait().expect("it ends");
        }

        fn kill_forked(&mut self) {
            let forked = self.forked.take().expect("it has forked");
            kill_process(forked, Signal::KILL).expect("it runs");
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            if self.forked.is_some() {
                self.kill_forked();
            }
            // It may have ended.
            let _ = self.started.kill();
            let _ = self.started.wait();
        }
    }

    fn in_role(url: &str, wrapper: &[&str], role: &str) -> Child {
        let own = std::env::current_exe().expect("it has a path");
        let own = own.to_str().expect("a text");
        let words = [wrapper, &[own]].concat();
        Command::new(words[0])
            .args(&words[1..])
            .env(URL, url)
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts")
    }

    fn printed_by(child: Child) -> String {
        let output = child.wait_with_output().expect("it ends");
        String::from_utf8(output.stdout)
            .expect("a text")
            .trim()
            .to_owned()
    }

    fn tried(url: &str, wrapper: &[&str]) -> String {
        printed_by(in_role(url, wrapper, "try"))
    }

    /// A server, and the URL of a store in which a crash is noticed after an hour.
    fn server() -> (Redis, String) {
        let server = Redis::start();
        let url = format!("{}?crash-grace=3600s", server.url());
        (server, url)
    }

    /// Waits until the server has found the connections of all clients broken.
    fn until_disconnected(server: &Redis) {
        until("the connection is missing", || {
            let channels = server.command(&["PUBSUB", "CHANNELS", "leasehold:alive:*"]);
            channels.texts().is_empty()
        });
    }

    fn try_takes_over_from_a_killed_process() {
        let (server, url) = server();
        let mut holder = Holder::start(&url, &[], "hold");
        assert_eq!(tried(&url, &[]), "refused");
        holder.kill();
        until_disconnected(&server);
        assert_eq!(tried(&url, &[]), "granted");
    }

    fn waiter_takes_over_from_a_killed_process() {
        let (server, url) = server();
        let mut holder = Holder::start(&url, &[], "hold");
        let waiter = in_role(&url, &[], "wait");
        until("the client waits", || {
            !server
                .command(&["KEYS", "leasehold:{a}:queue"])
                .texts()
                .is_empty()
        });
        holder.kill();
        assert_eq!(printed_by(waiter), "granted");
        assert_explained(&url);
    }

    fn killed_process_of_a_cluster_is_seen() {
        let cluster = Cluster::start();
        killed_on(&format!("{}?crash-grace=3600s", cluster.url()));
    }

    fn killed_process_behind_sentinels_is_seen() {
        let sentinels = Sentinels::start();
        let settings = sentinels.settings();
        killed_on(&format!("{}?{settings}&crash-grace=3600s", sentinels.url()));
    }

    fn killed_process_on_postgresql_is_seen() {
        let server = Postgres::start();
        let url = format!("{}&crash-grace=3600s", server.url());
        killed_on(&url);

        let mut holder = Holder::start(&url, &[], "hold");
        let waiter = in_role(&url, &[], "wait");
        until("the client waits", || {
            server.run("SELECT waiting FROM leasehold_private.lock") == ["1"]
        });
        holder.kill();
        assert_eq!(printed_by(waiter), "granted");
    }

    fn killed_on(url: &str) {
        let mut holder = Holder::start(url, &[], "hold");
        assert_eq!(tried(url, &[]), "refused");
        holder.kill();
        until("the end is seen", || tried(url, &[]) == "granted");
        assert_explained(url);
    }

    /// Checks that the store knows which client has told it of the end.
    fn assert_explained(url: &str) {
        let locks = blocking::open(url).expect("it opens");
        let ended = locks.inspect("a").expect("it replies").ended;
        let reason = ended.expect("a hold was revoked").reason.to_string();
        let seen_by = "its process ended (seen by process_ends";
        assert!(reason.starts_with(seen_by), "{reason}");
    }

    /// Its parent, this process, has not waited for it.
    fn unreaped_process_has_ended() {
        let (server, url) = server();
        let holder = Holder::start(&url, &[], "hold");
        kill_process(holder.pid(), Signal::KILL).expect("it runs");
        until_disconnected(&server);
        assert_eq!(tried(&url, &[]), "granted");
    }

    fn process_that_closes_all_descriptors_keeps_its_lock() {
        let (server, url) = server();
        let mut holder = Holder::start(&url, &[], "close all");
        until_disconnected(&server);
        assert_eq!(tried(&url, &[]), "refused");
        holder.kill();
        assert_eq!(tried(&url, &[]), "granted");
    }

    fn inherited_lock_of_a_file_keeps_the_lock() {
        let (server, url) = server();
        let mut holder = Holder::start(&url, &[], "fork and keep the file");
        holder.kill();
        until_disconnected(&server);
        assert_eq!(tried(&url, &[]), "refused");
        holder.kill_forked();
        until("the child has ended", || tried(&url, &[]) == "granted");
    }

    fn inherited_connection_keeps_the_lock() {
        let (server, url) = server();
        let mut holder = Holder::start(&url, &[], "fork and keep the connection");
        holder.kill();
        assert_eq!(tried(&url, &[]), "refused");
        holder.kill_forked();
        until_disconnected(&server);
        assert_eq!(tried(&url, &[]), "granted");
    }

    /// A holder that runs, and whose connection is missing.
    fn cut_off(server: &Redis, wrapper: &[&str]) -> (Wire, Holder) {
        let wire = Wire::to(server.address());
        let url = format!("{}?crash-grace=3600s", wire.url_of("redis"));
        let holder = Holder::start(&url, wrapper, "hold");
        wire.refuse(true);
        wire.partition();
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        until_disconnected(server);
        (wire, holder)
    }

    fn cut_off_process_keeps_its_lock() {
        let (server, url) = server();
        let _holder = cut_off(&server, &[]);
        assert_eq!(tried(&url, &[]), "refused");
    }

    /// A clone of a memory snapshot has the same boot id and, here, the same process ids. It has its
    /// own memory: a file of the other clone is not there.
    fn clone_of_the_machine_knows_nothing() {
        const CLONE: [&str; 5] = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs clone /dev/shm && exec \"$0\"",
        ];

        let (server, url) = server();
        let (_wire, mut holder) = cut_off(&server, &[]);
        assert_eq!(tried(&url, &CLONE), "refused");
        // The end of a process in one clone is none of the other.
        holder.kill();
        assert_eq!(tried(&url, &CLONE), "refused");
    }

    /// A holder that runs, and of which neither a lock nor a connection shows that.
    fn bare(server: &Redis, url: &str, wrapper: &[&str]) -> Holder {
        let holder = Holder::start(url, wrapper, "close all");
        until_disconnected(server);
        holder
    }

    /// `/proc` shows the time of the reader's namespace.
    fn other_time_namespace_is_not_another_start() {
        const OTHER: [&str; 5] = ["unshare", "--time", "--boottime", "100000", "--fork"];

        let (server, url) = server();
        let mut holder = bare(&server, &url, &[]);
        assert_eq!(tried(&url, &OTHER), "refused");
        holder.kill();
        assert_eq!(tried(&url, &OTHER), "granted");
    }

    /// The first process of every container has the id 1.
    fn other_pid_namespace_knows_nothing() {
        const CONTAINER: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
        const WITHOUT_PROC: [&str; 4] = ["unshare", "--pid", "--fork", "--kill-child"];

        for inside in [&CONTAINER[..], &WITHOUT_PROC] {
            for (holders, others) in [(&[][..], inside), (inside, &[][..]), (inside, inside)] {
                let (server, url) = server();
                let _holder = bare(&server, &url, holders);
                assert_eq!(tried(&url, others), "refused", "{holders:?} {others:?}");
            }
        }
    }

    /// In a container of its own, whose next process id root may set. The starts of the processes
    /// differ by more than the tick of a clock.
    fn reused_process_id_is_another_process() {
        const LINE: &str = "export LEASEHOLD_TEST_ROLE=hold; \"$0\" > id & holder=$!; \
             until [ -s id ]; do sleep 0.01; done; sleep 0.05; \
             kill -9 $holder; wait $holder; \
             until [ \"$(ps -o comm= -p $holder)\" = sleep ]; do \
                 echo $((holder - 1)) > /proc/sys/kernel/ns_last_pid; sleep 1000 & \
             done; \
             export LEASEHOLD_TEST_ROLE=try; \
             for try in $(seq 200); do \
                 [ \"$(\"$0\")\" = granted ] && exec echo granted; sleep 0.05; \
             done";

        let folder = tempfile::tempdir().expect("a folder");
        let (_server, url) = server();
        let own = std::env::current_exe().expect("it has a path");
        let output = Command::new("unshare")
            .args([
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
                "sh",
                "-c",
                LINE,
            ])
            .arg(own)
            .current_dir(folder.path())
            .env(URL, &url)
            .output()
            .expect("it ends");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(printed.trim(), "granted", "{output:?}");
    }

    /// A holder without a file is one of which nothing is known.
    fn unusable_folder_is_not_used() {
        let refused = |line| (line, "refused");
        for (line, expected) in [
            ("mount -t tmpfs usable /dev/shm", "granted"),
            refused("mount -t tmpfs -o ro missing /dev/shm"),
            refused("mount -t ramfs disk /dev/shm"),
            refused("mount -t tmpfs -o nr_inodes=1 full /dev/shm"),
            refused(
                "mount -t tmpfs other /dev/shm && mkdir -m 700 /dev/shm/leasehold-0 && \
                 chown 1 /dev/shm/leasehold-0",
            ),
            refused(
                "mount -t tmpfs open /dev/shm && mkdir /dev/shm/leasehold-0 && \
                 chmod 777 /dev/shm/leasehold-0",
            ),
            refused(
                "mount -t tmpfs link /dev/shm && mkdir -m 700 /dev/shm/x && \
                 ln -s x /dev/shm/leasehold-0",
            ),
        ] {
            assert_eq!(tried_with_folder(line), expected, "{line}");
        }
    }

    /// Kills a holder on a machine whose folder a line of the shell makes, and tries there.
    fn tried_with_folder(line: &str) -> String {
        const REST: &str = "export LEASEHOLD_TEST_ROLE=hold; \"$0\" > id & holder=$!; \
             until [ -s id ]; do sleep 0.01; done; \
             kill -9 $holder; wait $holder; echo > killed; \
             until [ -e go ]; do sleep 0.01; done; \
             export LEASEHOLD_TEST_ROLE=try; exec \"$0\"";

        let folder = tempfile::tempdir().expect("a folder");
        let (server, url) = server();
        let own = std::env::current_exe().expect("it has a path");
        let child = Command::new("unshare")
            .args(["--mount", "sh", "-ec"])
            .arg(format!("{line}; set +e; {REST}"))
            .arg(own)
            .current_dir(folder.path())
            .env(URL, &url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        until("the holder was killed", || {
            folder.path().join("killed").exists()
        });
        until_disconnected(&server);
        std::fs::write(folder.path().join("go"), "").expect("it is written");
        printed_by(child)
    }
}
