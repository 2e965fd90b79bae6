//! Tests of the Redis servers of the lab.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab_servers::{Redis, Reply, request, until};

#[test]
fn killed_redis_restarts_empty_on_the_same_port() {
    let mut redis = Redis::start();
    let url = redis.url();
    let pid = redis.pid();
    redis.command(&["SET", "name", "7"]);
    assert_eq!(redis.command(&["GET", "name"]).text(), "7");
    redis.kill();
    redis.try_request(&["PING"]).expect_err("no server listens");
    redis.restart();
    assert_eq!(redis.url(), url);
    assert_ne!(redis.pid(), pid);
    assert!(redis.command(&["GET", "name"]).is_nil());
}

#[test]
fn append_only_redis_keeps_acknowledged_writes() {
    let mut redis = Redis::setup().append_only("always").start();
    for _ in 0..3 {
        redis.command(&["INCR", "count"]);
        redis.kill();
        redis.restart();
    }
    assert_eq!(redis.command(&["GET", "count"]), Reply::from("3"));
}

#[test]
fn shutdown_saves_and_is_idempotent() {
    let mut redis = Redis::configured(&[("save", "3600 1")]);
    redis.command(&["SET", "name", "7"]);
    redis.shutdown();
    redis.shutdown();
    redis.kill();
    assert!(redis.folder().join("dump.rdb").exists());
    redis.restart();
    assert_eq!(redis.command(&["GET", "name"]).text(), "7");
}

#[test]
fn paused_redis_sends_no_reply_until_resumed() {
    let mut redis = Redis::start();
    let mut raw = redis.connection();
    redis.pause();
    raw.wait_at_most(Duration::from_millis(50))
        .expect("the timeout is not zero");

    let silence = raw
        .request(&["PING"])
        .expect_err("a paused server does not reply");
    assert_eq!(silence.kind(), ErrorKind::WouldBlock);

    redis.resume();
    raw.wait_at_most(Duration::from_secs(60))
        .expect("the timeout is not zero");
    assert_eq!(
        raw.receive_reply()
            .expect("a resumed server replies")
            .text(),
        "PONG"
    );

    redis.pause();
    redis.shutdown();
    redis.restart();
    redis.pause();
    redis.restart();
    redis.command(&["PING"]);
}

#[test]
fn redis_requires_its_password() {
    let redis = Redis::setup().password("se\"cr\\et").start();
    assert_eq!(redis.command(&["PING"]).text(), "PONG");
    assert_eq!(
        redis
            .socket_connection()
            .request(&["PING"])
            .expect("the server is running")
            .text(),
        "PONG"
    );

    let mut stranger =
        lab_servers::Raw::connect(("127.0.0.1", redis.port())).expect("the server is running");
    let refused = stranger.request(&["PING"]).expect("the server is running");
    assert!(
        refused.error().is_some_and(|why| why.starts_with("NOAUTH")),
        "{refused:?}"
    );
}

#[test]
fn acl_user_has_exactly_its_rights() {
    let redis = Redis::setup()
        .acl("user app on >secret ~leasehold:* +get")
        .acl("guest on nopass ~* +ping")
        .start();
    let mut app = redis.connection();
    assert!(
        app.request(&["AUTH", "app", "wrong"])
            .expect("the server is running")
            .is_error()
    );
    assert!(
        !app.request(&["AUTH", "app", "secret"])
            .expect("the server is running")
            .is_error()
    );
    assert!(
        app.request(&["GET", "leasehold:x"])
            .expect("the server is running")
            .is_nil()
    );

    for refused in [["GET", "other"], ["DEL", "leasehold:x"]] {
        let reply = app.request(&refused).expect("the server is running");
        assert!(
            reply.error().is_some_and(|why| why.starts_with("NOPERM")),
            "{reply:?}"
        );
    }

    assert_eq!(
        redis.command(&["ACL", "USERS"]).texts(),
        ["app", "default", "guest"]
    );
}

#[test]
fn tls_clients_must_trust_the_authority() {
    let redis = Redis::setup().tls().start();
    for host in ["localhost", "127.0.0.1"] {
        assert!(pings_by_tls(&redis, host, &redis.ca_file()));
        assert!(!pings_by_tls(&redis, host, &redis.other_ca_file()));
    }
    assert_eq!(
        redis.command(&["PING"]).text(),
        "PONG",
        "the port without TLS stays open"
    );
}

/// Whether `openssl s_client` receives a reply. It checks the host's name or address as a strict
/// client does.
fn pings_by_tls(redis: &Redis, host: &str, ca: &Path) -> bool {
    let checks = if host == "localhost" {
        "-verify_hostname"
    } else {
        "-verify_ip"
    };
    let to = format!("{host}:{}", redis.tls_port());

    let client = format!(
        "printf 'PING\\r\\nQUIT\\r\\n' | openssl s_client -quiet -verify_return_error \
         -x509_strict {checks} {host} -CAfile {} -connect {to}",
        ca.display()
    );
    let output = Command::new("sh")
        .args(["-c", &client])
        .output()
        .expect("sh can be started");
    String::from_utf8_lossy(&output.stdout).contains("+PONG")
}

#[test]
fn replica_receives_the_writes_of_its_master() {
    let master = Redis::setup().password("secret").start();
    let replica = Redis::setup().replica_of(&master).start();
    for number in 0..3 {
        master.command(&["SET", "name", &number.to_string()]);
        replica.in_step_with(&master);
        assert_eq!(replica.command(&["GET", "name"]).text(), number.to_string());
    }

    assert!(
        replica
            .request(&["SET", "name", "8"])
            .error()
            .is_some_and(|why| why.starts_with("READONLY"))
    );

    replica.command(&["REPLICAOF", "NO", "ONE"]);
    replica.command(&["SET", "name", "8"]);
}

#[test]
fn pinned_redis_runs_on_one_cpu() {
    let redis = Redis::setup().pinned(0).start();
    let status =
        fs::read_to_string(format!("/proc/{}/status", redis.pid())).expect("the server is running");
    assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
}

#[test]
fn redis_clock_can_be_set_while_running() {
    let redis = Redis::setup().own_clock().start();
    let time = || {
        redis.command(&["TIME"]).texts()[0]
            .parse::<i64>()
            .expect("seconds")
    };
    let begun = time();
    for ahead in [3_600, -3_600, 0] {
        redis.set_clock(ahead);
        let off = time() - begun - ahead;
        assert!((0..600).contains(&off), "{off} s off");
    }
}

#[test]
fn redis_clock_rate_can_be_changed() {
    const WHILE: Duration = Duration::from_millis(400);
    let redis = Redis::setup().own_clock().start();
    for (gain, factor) in [(1_000_000, 2.0), (-500_000, 0.5), (0, 1.0)] {
        let begun = Instant::now();
        let printed = redis.time();
        redis.clock().gain(gain);
        let from = redis.time();
        assert!(
            (0..60_000_000).contains(&(from - printed)),
            "the clock jumped by {} µs",
            from - printed
        );
        thread::sleep(WHILE);
        let passed = Duration::from_micros((redis.time() - from).unsigned_abs());
        let range = WHILE.mul_f64(factor)..=begun.elapsed().mul_f64(factor);
        assert!(range.contains(&passed), "{passed:?} is not in {range:?}");
    }

    assert!(redis.clock().readings() > 0);
}

#[test]
fn used_cpu_time_increases() {
    let redis = Redis::start();
    let before = redis.cpu_used();
    let busy = || Ok((redis.cpu_used() > before).then_some(()));
    until("the server's CPU time to grow", busy).expect("requests cost CPU time");
    assert!(redis.info("server").contains("redis_version:"));
    assert!(redis.log().contains("Ready to accept connections"));
}

#[test]
fn pipelined_requests_get_replies_in_order() {
    let redis = Redis::start();
    let big = "x".repeat(100_000);
    let requests = [
        request(&["ECHO", &big]),
        request(&["LPUSH", "list", "b", "a"]),
        request(&["LRANGE", "list", "0", "-1"]),
    ];

    for mut raw in [redis.connection(), redis.connection()] {
        redis.command(&["DEL", "list"]);
        raw.send(&requests.concat()).expect("the server is running");
        assert_eq!(
            raw.receive_reply().expect("the server is running").text(),
            big
        );
        assert_eq!(
            raw.receive_bytes().expect("the server is running"),
            b":2\r\n"
        );
        assert_eq!(
            raw.receive_reply().expect("the server is running").texts(),
            ["a", "b"]
        );
    }
}

#[test]
fn many_redis_servers_run_in_parallel() {
    let starting: Vec<_> = (0..8).map(|_| thread::spawn(Redis::start)).collect();
    let several: Vec<_> = starting
        .into_iter()
        .map(|one| one.join().expect("each server starts"))
        .collect();
    for redis in &several {
        // The thread that started this server has ended. Its end must not kill the server.
        assert_eq!(redis.command(&["DBSIZE"]).int(), 0);
        redis.command(&["SET", "name", "7"]);
    }
}

#[test]
fn dropped_redis_is_killed_and_its_folder_removed() {
    let redis = Redis::start();
    let pid = redis.pid();
    let folder = redis.folder().to_owned();
    drop(redis);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!folder.exists());
}

#[test]
#[should_panic(expected = "Bad directive or wrong number of arguments")]
fn invalid_configuration_panics_with_the_log() {
    let _ = Redis::configured(&[("no-such-thing", "yes")]);
}

/// This test runs itself as the process that is killed.
#[test]
fn redis_dies_with_its_parent() {
    const STARTER: &str = "LAB_SERVERS_STARTER";
    if env::var_os(STARTER).is_some() {
        let redis = Redis::start();
        println!("\nstarted {} {}", redis.pid(), redis.folder().display());
        loop {
            thread::park();
        }
    }

    let mut starter = Command::new(env::current_exe().expect("a test is a program"));
    starter
        .args(["--exact", "redis_dies_with_its_parent", "--nocapture"])
        .env(STARTER, "1");

    let mut starter = starter
        .stdout(Stdio::piped())
        .spawn()
        .expect("a test can be started");
    let output = BufReader::new(
        starter
            .stdout
            .take()
            .expect("the stdout of the starter is a pipe"),
    )
    .lines();
    let line = output
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("started ").map(str::to_owned))
        .expect("the starter prints its server");
    let (pid, folder) = line
        .split_once(' ')
        .expect("the line has the process id and the folder");
    let stat = format!("/proc/{pid}/stat");
    assert!(Path::new(&stat).exists());

    starter.kill().expect("the starter is running");
    starter
        .wait()
        .expect("only this test waits for the starter");

    // The process that inherits the server may leave it as a zombie.
    let dead = || {
        Ok(fs::read_to_string(&stat)
            .map_or(true, |stat| stat.contains(") Z "))
            .then_some(()))
    };
    until("the server to die", dead).expect("the kernel kills it");
    fs::remove_dir_all(folder).expect("a killed server leaves its folder");
}
