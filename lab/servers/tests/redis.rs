//! A Redis server does what a test asks of it.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab_servers::{Redis, Reply, request, until};

#[test]
fn killed_it_refuses_and_started_again_it_is_empty_at_the_same_place() {
    let mut redis = Redis::start();
    let (url, pid) = (redis.url(), redis.pid());
    redis.command(&["SET", "name", "7"]);
    assert_eq!(redis.command(&["GET", "name"]).text(), "7");
    redis.kill();
    redis.try_ask(&["PING"]).expect_err("nobody listens");
    redis.restart();
    assert_eq!(redis.url(), url);
    assert_ne!(redis.pid(), pid);
    assert!(redis.command(&["GET", "name"]).is_nil());
}

#[test]
fn append_only_it_remembers_what_it_answered() {
    let mut redis = Redis::setup().append_only("always").start();
    for _ in 0..3 {
        redis.command(&["INCR", "count"]);
        redis.kill();
        redis.restart();
    }
    assert_eq!(redis.command(&["GET", "count"]), Reply::from("3"));
}

#[test]
fn asked_to_end_it_saves_first_and_a_second_end_is_none() {
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
fn paused_it_answers_nothing_until_it_goes_on() {
    let mut redis = Redis::start();
    let mut raw = redis.connection();
    redis.pause();
    raw.wait_at_most(Duration::from_millis(50)).expect("a moment is something");
    let silence = raw.ask(&["PING"]).expect_err("it stands still");
    assert_eq!(silence.kind(), ErrorKind::WouldBlock);
    redis.resume();
    raw.wait_at_most(Duration::from_secs(60)).expect("a minute is something");
    assert_eq!(raw.hear().expect("it goes on").text(), "PONG");
    redis.pause();
    redis.shutdown();
    redis.restart();
    redis.pause();
    redis.restart();
    redis.command(&["PING"]);
}

#[test]
fn it_wants_its_password() {
    let redis = Redis::setup().password("se\"cr\\et").start();
    assert_eq!(redis.command(&["PING"]).text(), "PONG");
    assert_eq!(redis.socket_connection().ask(&["PING"]).expect("it lives").text(), "PONG");
    let mut stranger = lab_servers::Raw::connect(("127.0.0.1", redis.port())).expect("it lives");
    let refused = stranger.ask(&["PING"]).expect("it lives");
    assert!(refused.error().is_some_and(|why| why.starts_with("NOAUTH")), "{refused:?}");
}

#[test]
fn a_user_may_do_what_its_rules_say() {
    let redis = Redis::setup().acl("user app on >secret ~leasehold:* +get").acl("guest on nopass ~* +ping").start();
    let mut app = redis.connection();
    assert!(app.ask(&["AUTH", "app", "wrong"]).expect("it lives").is_error());
    assert!(!app.ask(&["AUTH", "app", "secret"]).expect("it lives").is_error());
    assert!(app.ask(&["GET", "leasehold:x"]).expect("it lives").is_nil());
    for refused in [["GET", "other"], ["DEL", "leasehold:x"]] {
        let reply = app.ask(&refused).expect("it lives");
        assert!(reply.error().is_some_and(|why| why.starts_with("NOPERM")), "{reply:?}");
    }
    assert_eq!(redis.command(&["ACL", "USERS"]).texts(), ["app", "default", "guest"]);
}

#[test]
fn with_tls_only_who_trusts_its_authority_is_answered() {
    let redis = Redis::setup().tls().start();
    for host in ["localhost", "127.0.0.1"] {
        assert!(pings_by_tls(&redis, host, &redis.ca_file()));
        assert!(!pings_by_tls(&redis, host, &redis.other_ca_file()));
    }
    assert_eq!(redis.command(&["PING"]).text(), "PONG", "the port without TLS stays open");
}

/// Whether `openssl s_client` gets an answer. It checks the host's name or address as a strict client does.
fn pings_by_tls(redis: &Redis, host: &str, ca: &Path) -> bool {
    let checks = if host == "localhost" { "-verify_hostname" } else { "-verify_ip" };
    let to = format!("{host}:{}", redis.tls_port());
    let client = format!(
        "printf 'PING\\r\\nQUIT\\r\\n' | openssl s_client -quiet -verify_return_error -x509_strict {checks} {host} -CAfile {} -connect {to}",
        ca.display()
    );
    let said = Command::new("sh").args(["-c", &client]).output().expect("sh can be started");
    String::from_utf8_lossy(&said.stdout).contains("+PONG")
}

#[test]
fn a_replica_has_what_its_master_wrote() {
    let master = Redis::setup().password("secret").start();
    let replica = Redis::setup().replica_of(&master).start();
    for number in 0..3 {
        master.command(&["SET", "name", &number.to_string()]);
        replica.in_step_with(&master);
        assert_eq!(replica.command(&["GET", "name"]).text(), number.to_string());
    }
    assert!(replica.ask(&["SET", "name", "8"]).error().is_some_and(|why| why.starts_with("READONLY")));
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    replica.command(&["SET", "name", "8"]);
}

#[test]
fn pinned_it_runs_on_one_cpu() {
    let redis = Redis::setup().pinned(0).start();
    let status = fs::read_to_string(format!("/proc/{}/status", redis.pid())).expect("it lives");
    assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
}

#[test]
fn its_clock_can_be_set_while_it_runs() {
    let redis = Redis::setup().own_clock().start();
    let time = || redis.command(&["TIME"]).texts()[0].parse::<i64>().expect("seconds");
    let begun = time();
    for ahead in [3_600, -3_600, 0] {
        redis.set_clock(ahead);
        let off = time() - begun - ahead;
        assert!((0..600).contains(&off), "{off} s off");
    }
}

#[test]
fn its_clock_can_run_at_another_rate() {
    const WHILE: Duration = Duration::from_millis(400);
    let redis = Redis::setup().own_clock().start();
    for (gain, factor) in [(1_000_000, 2.0), (-500_000, 0.5), (0, 1.0)] {
        let (begun, told) = (Instant::now(), redis.time());
        redis.clock().gain(gain);
        let from = redis.time();
        assert!((0..60_000_000).contains(&(from - told)), "it jumped by {} µs", from - told);
        thread::sleep(WHILE);
        let passed = Duration::from_micros((redis.time() - from).unsigned_abs());
        let range = WHILE.mul_f64(factor)..=begun.elapsed().mul_f64(factor);
        assert!(range.contains(&passed), "{passed:?} and not {range:?}");
    }
    assert!(redis.clock().readings() > 0);
}

#[test]
fn the_cpu_time_it_used_grows() {
    let redis = Redis::start();
    let before = redis.cpu_used();
    let busy = || Ok((redis.cpu_used() > before).then_some(()));
    until("its CPU time to grow", busy).expect("asking costs time");
    assert!(redis.info("server").contains("redis_version:"));
    assert!(redis.log().contains("Ready to accept connections"));
}

#[test]
fn requests_in_a_row_are_answered_in_order_however_big() {
    let redis = Redis::start();
    let big = "x".repeat(100_000);
    let requests =
        [request(&["ECHO", &big]), request(&["LPUSH", "list", "b", "a"]), request(&["LRANGE", "list", "0", "-1"])];
    for mut raw in [redis.connection(), redis.connection()] {
        redis.command(&["DEL", "list"]);
        raw.send(&requests.concat()).expect("it lives");
        assert_eq!(raw.hear().expect("it lives").text(), big);
        assert_eq!(raw.hear_bytes().expect("it lives"), b":2\r\n");
        assert_eq!(raw.hear().expect("it lives").texts(), ["a", "b"]);
    }
}

#[test]
fn many_at_once_are_in_nobodys_way() {
    let several: Vec<_> = (0..8).map(|_| thread::spawn(Redis::start)).collect();
    let several: Vec<_> = several.into_iter().map(|one| one.join().expect("each starts")).collect();
    for redis in &several {
        // Its thread is over by now: that must not have killed it.
        assert_eq!(redis.command(&["DBSIZE"]).int(), 0);
        redis.command(&["SET", "name", "7"]);
    }
}

#[test]
fn dropped_it_is_dead_and_its_folder_gone() {
    let redis = Redis::start();
    let (pid, folder) = (redis.pid(), redis.folder().to_owned());
    drop(redis);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!folder.exists());
}

#[test]
#[should_panic(expected = "Bad directive or wrong number of arguments")]
fn what_it_does_not_understand_is_said() {
    let _ = Redis::configured(&[("no-such-thing", "yes")]);
}

/// This test runs itself as the process that is killed.
#[test]
fn killed_with_its_starter_it_dies() {
    const STARTER: &str = "LAB_SERVERS_STARTER";
    if env::var_os(STARTER).is_some() {
        let redis = Redis::start();
        println!("\nstarted {} {}", redis.pid(), redis.folder().display());
        loop {
            thread::park();
        }
    }
    let mut starter = Command::new(env::current_exe().expect("a test is a program"));
    starter.args(["--exact", "killed_with_its_starter_it_dies", "--nocapture"]).env(STARTER, "1");
    let mut starter = starter.stdout(Stdio::piped()).spawn().expect("a test can be started");
    let said = BufReader::new(starter.stdout.take().expect("its stdout is a pipe")).lines();
    let line = said.map_while(Result::ok).find_map(|line| line.strip_prefix("started ").map(str::to_owned));
    let line = line.expect("it tells");
    let (pid, folder) = line.split_once(' ').expect("it tells both");
    let stat = format!("/proc/{pid}/stat");
    assert!(Path::new(&stat).exists());
    starter.kill().expect("it lives");
    starter.wait().expect("nobody else waits for it");
    // Whoever inherits it may leave it unburied.
    let dead = || Ok(fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")).then_some(()));
    until("the server to die", dead).expect("the kernel kills it");
    fs::remove_dir_all(folder).expect("what was killed leaves its folder");
}
