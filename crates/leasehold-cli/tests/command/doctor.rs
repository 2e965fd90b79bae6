//! `leasehold doctor` on real servers that are configured badly.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use lab_servers::{Cluster, Ensemble, Redis, Setup, ZooKeeper};
use rustix::fs::{XattrFlags, setxattr};
use serde_json::Value;
use tempfile::TempDir;

use crate::sandbox::{Finished, Sandbox};

/// The exit code, and each finding as `severity code`.
#[derive(Debug)]
struct Examined {
    code: i32,
    findings: Vec<String>,
    report: Value,
}

impl Examined {
    fn of(url: &str) -> Self {
        let done = Sandbox::at(url.to_owned()).done(&["doctor", "--json"]);
        let report: Value = serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{done:?}"));
        let findings = report["findings"].as_array().unwrap();
        for finding in findings {
            check_documented(finding);
        }
        let named = findings.iter().map(|finding| {
            let severity = finding["severity"].as_str().unwrap();
            format!("{severity} {}", finding["code"].as_str().unwrap())
        });
        Self {
            code: done.code(),
            findings: named.collect(),
            report,
        }
    }

    #[track_caller]
    fn assert(&self, code: i32, findings: &[&str]) {
        assert_eq!(
            (self.code, &self.findings[..]),
            (code, &owned(findings)[..]),
            "{self:?}"
        );
    }

    /// Asserts that a finding names a command that the server does not know.
    #[track_caller]
    fn assert_missing(&self, command: &str) {
        let findings = self.report["findings"].as_array().unwrap().iter();
        let mut messages = findings.map(|finding| finding["message"].as_str().unwrap());
        let is_named = |message: &str| {
            message.contains("unknown")
                && message.split([' ', '\'', '`']).any(|word| word == command)
        };
        assert!(messages.any(is_named), "{command}: {self:?}");
        assert_ne!(self.code, 0, "{self:?}");
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// The section of the command on the page.
fn section() -> &'static str {
    let page = include_str!("../../../../docs/operate.md");
    let (_, section) = page.split_once("\n## doctor\n").unwrap();
    section.split("\n## ").next().unwrap()
}

/// The page has a row for each finding, with its severity.
fn check_documented(finding: &Value) {
    let code = finding["code"].as_str().unwrap();
    let row = section()
        .lines()
        .find(|line| line.starts_with(&format!("| `{code}` |")))
        .unwrap_or_else(|| panic!("docs/operate.md has no row of {code}"));
    assert!(
        row.contains(finding["severity"].as_str().unwrap()),
        "{row}: {finding}"
    );
    assert!(!finding["remedy"].as_str().unwrap().is_empty(), "{finding}");
}

/// The page has no row of a finding that does not exist, and the program no finding without a row.
#[test]
fn page_lists_the_findings_of_the_program() {
    let rows = section()
        .lines()
        .filter_map(|line| line.strip_prefix("| `"));
    let documented: BTreeSet<&str> = rows.filter_map(|row| row.split('`').next()).collect();

    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = Vec::new();
    read_examinations(&crates, &mut sources);
    let found: BTreeSet<&str> = sources.iter().flat_map(|source| codes(source)).collect();
    assert_eq!(documented, found);
}

/// Reads the files that examine stores.
fn read_examinations(folder: &Path, sources: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_examinations(&path, sources);
        } else if path.to_str().unwrap().contains("examination") {
            sources.push(fs::read_to_string(path).unwrap());
        }
    }
}

/// The codes of the findings that a source creates.
fn codes(source: &str) -> impl Iterator<Item = &str> {
    let created = ["danger(", "warning("]
        .into_iter()
        .flat_map(|call| source.split(call).skip(1));
    created.filter_map(|arguments| arguments.trim_start().strip_prefix('"')?.split('"').next())
}

/// A server with which nothing is wrong.
fn good() -> Setup {
    Redis::setup().append_only("always")
}

#[test]
fn good_server_has_no_finding_and_its_round_trip_is_measured() {
    let server = good().start();
    let examined = Examined::of(&server.url());
    examined.assert(0, &[]);

    let measured = &examined.report["servers"][0];
    assert_eq!(measured["server"], server.url());
    assert!(measured["version"].as_str().unwrap().starts_with("Redis "));
    assert!(measured["round_trip_p99_us"].as_u64() >= measured["round_trip_p50_us"].as_u64());
    assert!(measured["clock_ahead_ms"].as_i64().unwrap().abs() < 1_000);

    let done = Sandbox::at(server.url()).done(&["doctor"]);
    assert_eq!(done.code(), 0, "{done:?}");
    let last = done.out.lines().last();
    assert_eq!(last, Some("nothing found that endangers locks"), "{done:?}");
}

/// root and another user share no folder of one user, as flock(1) on one file would.
#[test]
fn users_who_share_a_folder_are_named() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("store");
    fs::create_dir(&folder).unwrap();
    for (mode, sharers) in [
        (0o700, "root only"),
        (0o755, "root only"),
        (0o2770, "root and of the group root"),
        (0o1777, "all users"),
    ] {
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        let done = sandbox.done(&["doctor"]);
        let line = format!("\nshared   by processes of {sharers}\n");
        assert!(done.out.contains(&line), "{done:?}");
    }

    fs::set_permissions(&folder, Permissions::from_mode(0o2770)).unwrap();
    let url = format!("file:{}?mode=0600", folder.display());
    let done = sandbox.done(&["doctor", "--store", &url]);
    assert!(done.out.contains("processes of root only\n"), "{done:?}");

    // The entries of its owner, user 1502, its group, the mask and all others: acl(5).
    let entries = [
        (1, 7, u32::MAX),
        (2, 7, 1502),
        (4, 0, u32::MAX),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, user) in entries {
        acl.extend([tag, 0, rights, 0]);
        acl.extend(user.to_le_bytes());
    }
    setxattr(
        &folder,
        "system.posix_acl_access",
        &acl,
        XattrFlags::empty(),
    )
    .unwrap();
    let done = sandbox.done(&["doctor"]);
    assert!(done.out.contains("the users that the ACL of "), "{done:?}");
}

/// Each node has two names here: the URL names one of them as the machine.
#[test]
fn masters_that_the_url_does_not_name_are_examined_once() {
    let cluster = Cluster::start();
    let port = cluster.node(0).port();
    let examined = Examined::of(&format!("redis+cluster://localhost:{port}"));
    let servers = examined.report["servers"].as_array().unwrap();
    assert_eq!(servers.len(), 3, "{examined:?}");
}

#[test]
fn eviction_and_missing_persistence_are_found_with_remedies() {
    let evicting = [("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")];
    let server = Redis::configured(&evicting);
    let examined = Examined::of(&server.url());
    examined.assert(2, &["danger eviction", "danger no-persistence"]);

    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let done = Sandbox::at(server.url()).done(&["doctor"]);
    assert_eq!(done.code(), 2, "{done:?}");
    assert!(done.out.contains("warning  eviction (redis://"), "{done:?}");
    assert!(done.out.contains("remedy: set appendonly yes"), "{done:?}");

    let server = Redis::setup().append_only("everysec").start();
    Examined::of(&server.url()).assert(1, &["warning late-sync"]);
}

#[test]
fn settings_of_connections_are_found() {
    let server = good()
        .config("timeout", "30")
        .config("tcp-keepalive", "0")
        .start();
    Examined::of(&server.url()).assert(1, &["warning timeout", "warning keepalive"]);

    server.command(&["CONFIG", "SET", "timeout", "0"]);
    server.command(&["CONFIG", "SET", "tcp-keepalive", "3600"]);
    Examined::of(&server.url()).assert(1, &["warning keepalive"]);

    let server = good().config("maxclients", "10").start();
    let connections: Vec<_> = (0..8).map(|_| server.connection()).collect();
    Examined::of(&server.url()).assert(2, &["danger maxclients"]);
    drop(connections);
}

#[test]
fn replicas_are_compared_with_the_url() {
    let server = good().start();
    let url = format!("{}?replicas=1", server.url());
    Examined::of(&url).assert(2, &["danger too-few-replicas"]);

    let replica = Redis::setup().replica_of(&server).start();
    replica.in_step_with(&server);
    Examined::of(&server.url()).assert(1, &["warning replicas-unused", "warning min-replicas"]);
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    Examined::of(&url).assert(0, &[]);

    let examined = Examined::of(&replica.url());
    assert_eq!(examined.code, 2);
    assert!(
        examined
            .findings
            .contains(&"danger not-a-master".to_owned()),
        "{examined:?}"
    );
}

#[test]
fn node_of_a_cluster_is_found() {
    let server = good().config("cluster-enabled", "yes").start();
    let examined = Examined::of(&server.url());
    assert_eq!(examined.code, 2);
    assert!(
        examined.findings.contains(&"danger cluster".to_owned()),
        "{examined:?}"
    );
}

/// Linux connects this address, which is not one of loopback, to the same machine.
#[test]
fn connection_without_tls_is_found() {
    let exposed = |url: String| url.replace("127.0.0.1", "0.0.0.0");
    let server = good().start();
    Examined::of(&exposed(server.url())).assert(1, &["warning no-tls"]);

    let server = ZooKeeper::start();
    let examined = Examined::of(&exposed(server.url()));
    examined.assert(1, &["warning one-server", "warning no-tls"]);
}

#[test]
fn clock_difference_is_found() {
    let server = good().own_clock().start();
    server.set_clock(60);
    let examined = Examined::of(&server.url());
    examined.assert(1, &["warning clock-difference"]);
    let ahead = examined.report["servers"][0]["clock_ahead_ms"]
        .as_i64()
        .unwrap();
    assert!((55_000..65_000).contains(&ahead), "{ahead}");
}

/// The ACL line of the page.
fn line() -> &'static str {
    let page = include_str!("../../../../docs/stores/redis.md");
    let mut lines = page.lines();
    lines
        .find(|line| line.starts_with("user locks on "))
        .unwrap()
}

#[test]
fn each_missing_right_is_found_alone() {
    let rights = line().split(' ').filter(|word| word.starts_with('+'));
    let mut users: Vec<(String, Vec<String>)> = vec![("locks".to_owned(), Vec::new())];
    let mut setup = good().acl(line()).password("of another");
    for (number, right) in rights.enumerate() {
        let user = format!("user{number}");
        let line = line().replace("user locks", &format!("user {user}"));
        let words: Vec<&str> = line.split(' ').filter(|word| *word != right).collect();
        setup = setup.acl(&words.join(" "));
        users.push((user, vec![format!("the user lacks the right {right}: ")]));
    }
    for (user, part, message) in [
        (
            "nokeys",
            "~leasehold:* ",
            "the user may not use the keys of leasehold",
        ),
        (
            "nochannels",
            "&leasehold:* ",
            "the user may not use the channels of leasehold",
        ),
    ] {
        let line = line().replace("user locks", &format!("user {user}"));
        setup = setup.acl(&line.replace(part, ""));
        users.push((user.to_owned(), vec![message.to_owned()]));
    }

    // With a replica and `replicas=1`, WAIT is needed too.
    let server = setup.start();
    let replica = Redis::setup().replica_of(&server).start();
    replica.in_step_with(&server);
    thread::scope(|scope| {
        for (user, missing) in &users {
            let address = server.address();
            scope.spawn(move || {
                let url = format!("redis://{user}:secret@{address}?replicas=1");
                let examined = Examined::of(&url);
                let findings = examined.report["findings"].as_array().unwrap().iter();
                let messages: Vec<&str> =
                    findings.map(|f| f["message"].as_str().unwrap()).collect();
                let in_one_line = "one line gives all rights".to_owned();
                let in_one_line = (!missing.is_empty()).then_some(in_one_line);
                let expected: Vec<&String> = missing.iter().chain(&in_one_line).collect();
                let is_match = messages.len() == expected.len()
                    && messages
                        .iter()
                        .zip(&expected)
                        .all(|(m, start)| m.starts_with(*start));
                assert!(is_match, "{user}: {messages:?}, not {expected:?}");
                assert!(!examined.report.to_string().contains("secret"));
            });
        }
    });
    let keys = server.command(&["KEYS", "*"]);
    assert!(
        keys.texts().iter().all(|key| key.contains("doctor")),
        "{keys:?}"
    );
}

/// The commands that a format needs. Those that all formats need are tried with the first one.
const COMMANDS: [(&str, &str); 6] = [
    (
        "",
        "SET EVAL EVALSHA SUBSCRIBE PUBLISH PUBSUB CLIENT INFO TIME SCAN GET GETRANGE SETRANGE \
         PTTL PEXPIRE HGET HMGET HSET HDEL HLEN ZADD ZREM ZCARD ZRANGE ZRANGEBYSCORE ZRANK \
         DEL",
    ),
    ("?dialect=plain", "EVALSHA SET DEL STRLEN GETRANGE TYPE"),
    (
        "?dialect=redisson",
        "EVALSHA HKEYS HGETALL HEXISTS EXISTS PUBLISH HSET DEL",
    ),
    ("?dialect=redisson&lock=fenced", "INCR"),
    ("?dialect=redisson&lock=rw", "HDEL"),
    (
        "?dialect=redisson&lock=semaphore",
        "INCRBY DECRBY ZSCORE ZCOUNT ZADD",
    ),
];

#[test]
fn each_command_that_the_server_does_not_know_is_found() {
    let mut formats: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (settings, commands) in COMMANDS {
        for command in commands.split(' ') {
            formats.entry(command).or_default().push(settings);
        }
    }

    let commands: Vec<_> = formats.into_iter().collect();
    for some in commands.chunks(8) {
        thread::scope(|scope| {
            for (command, formats) in some {
                scope.spawn(move || {
                    let hidden = format!("{command} \"\"");
                    let server = good().config("rename-command", &hidden).start();
                    for settings in formats {
                        let examined = Examined::of(&format!("{}{settings}", server.url()));
                        examined.assert_missing(command);
                    }
                });
            }
        });
    }
}

/// Forwards to the server, and closes each connection at a command. Returns its own address.
fn proxy_without(command: &'static str, server: &Redis) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = server.address();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut server = TcpStream::connect(&server).unwrap();
            thread::spawn(move || forward(command, &mut client, &mut server));
        }
    });
    address
}

fn forward(command: &str, client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    let mut requests = client.try_clone()?;
    let mut to_server = server.try_clone()?;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut bytes = [0; 4096];
            // Either side may have closed its connection.
            while let Ok(count @ 1..) = requests.read(&mut bytes) {
                let is_refused = String::from_utf8_lossy(&bytes[..count]).contains(command);
                if is_refused || to_server.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = to_server.shutdown(Shutdown::Both);
            let _ = requests.shutdown(Shutdown::Both);
        });
        io::copy(server, client).map(drop)
    })
}

#[test]
fn only_the_command_at_which_a_proxy_closes_the_connection_is_found() {
    let server = good().start();
    for (word, settings, code, message) in [
        ("TRACKING", "", 1, "CLIENT TRACKING: observers poll"),
        ("PTTL", "?dialect=plain", 2, "PTTL: locks cannot be"),
        ("TIME", "", 2, "TIME: locks cannot be"),
    ] {
        let address = proxy_without(word, &server);
        let examined = Examined::of(&format!("redis://{address}{settings}"));
        let finding = ["warning command", "danger command"][code - 1];
        examined.assert(i32::try_from(code).unwrap(), &[finding]);

        let found = &examined.report["findings"][0];
        let is_named = format!("closes the connection at {message}");
        assert!(found["message"].as_str().unwrap().contains(&is_named));
        assert!(!found["remedy"].as_str().unwrap().contains("rename"));
    }

    let address = proxy_without("CONFIG", &server);
    let examined = Examined::of(&format!("redis://{address}"));
    examined.assert(0, &[]);
    assert!(
        examined
            .report
            .to_string()
            .contains("CONFIG GET is refused")
    );
}

#[test]
fn command_that_a_master_of_redlock_does_not_know_is_found() {
    let hidden = ["ZPOPMIN \"\"", "INFO \"\"", "GET \"\""];
    let servers = hidden.map(|hidden| good().config("rename-command", hidden).start());
    let hosts = servers.iter().map(Redis::address).collect::<Vec<_>>();
    let examined = Examined::of(&format!("redlock://{}", hosts.join(",")));
    examined.assert_missing("ZPOPMIN");
    examined.assert_missing("INFO");
    examined.assert_missing("GET");
}

/// The last line is pasted as it is, and then nothing is missing.
#[test]
fn last_line_gives_a_user_all_rights() {
    let server = good()
        .acl("user locks on >secret resetchannels -@all")
        .password("of another")
        .start();
    let url = format!("redis://locks:secret@{}", server.address());

    let sandbox = Sandbox::new();
    let done = sandbox.done(&["doctor", "--store", &url]);
    let last = done.out.lines().last().expect("rights are missing");
    let (_, line) = last.split_once("remedy: ").expect("it is a remedy");
    assert!(
        line.starts_with("ACL SETUSER locks ~leasehold:* "),
        "{line}"
    );
    server.command(&line.split(' ').collect::<Vec<_>>());

    let examined = Examined::of(&url);
    assert_eq!(examined.report["findings"], serde_json::json!([]));
}

#[test]
fn wrong_password_is_a_danger_and_an_unreachable_server_is_69() {
    let mut server = good().password("hunter2").start();
    let url = server.url().replace("redis://", "redis://:wrong@");
    let examined = Examined::of(&url);
    examined.assert(2, &["danger refused"]);
    assert!(!examined.report.to_string().contains("wrong@"));

    server.kill();
    let done = Sandbox::at(url).done(&["doctor"]);
    assert_eq!((done.code(), &done.out[..]), (69, ""), "{done:?}");
    let done = Sandbox::at("redis:/nowhere".to_owned()).done(&["doctor"]);
    assert_eq!(done.code(), 64, "{done:?}");
}

#[test]
fn missing_master_of_redlock_is_found() {
    let mut servers = [(); 3].map(|()| good().start());
    let hosts = servers
        .iter()
        .map(Redis::address)
        .collect::<Vec<_>>()
        .join(",");
    let url = format!("redlock://{hosts}");
    Examined::of(&url).assert(0, &[]);

    servers[1].kill();
    let examined = Examined::of(&url);
    examined.assert(2, &["danger server-missing"]);
    assert_eq!(examined.report["findings"][0]["server"], servers[1].url());
}

#[test]
fn session_limits_and_a_single_server_of_zookeeper_are_found() {
    let server = ZooKeeper::setup()
        .config("maxSessionTimeout", "4000")
        .start();
    let examined = Examined::of(&server.url());
    examined.assert(1, &["warning session-limit", "warning one-server"]);
    let message = examined.report["findings"][0]["message"].as_str().unwrap();
    assert!(message.contains("4s, not 10s"), "{message}");

    let ensemble = Ensemble::start();
    let examined = Examined::of(&ensemble.url());
    examined.assert(0, &[]);
    assert_eq!(examined.report["servers"].as_array().unwrap().len(), 3);
}

/// A folder that was made with `acl=creator` belongs to its user.
#[test]
fn folder_of_another_user_of_zookeeper_is_found() {
    let server = ZooKeeper::start();
    let of_user = |user| server.url().replace("//", &format!("//{user}:secret@")) + "/folder";
    let sandbox = Sandbox::at(of_user("first") + "?acl=creator");
    let done = sandbox.done(&["run", "a", "--", "true"]);
    assert_eq!(done.code(), 0, "{done:?}");
    Examined::of(&sandbox.url()).assert(1, &["warning one-server"]);

    let examined = Examined::of(&of_user("second"));
    examined.assert(2, &["danger right", "warning one-server"]);
    let message = examined.report["findings"][0]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "the user lacks the right to create on the node /folder"
    );

    // A missing folder would be created where the user may do so, and an examination creates none.
    let elsewhere = of_user("second").replace("/folder", "/else/where");
    Examined::of(&elsewhere).assert(1, &["warning one-server"]);
    let below = of_user("second") + "/below/it";
    assert_eq!(Examined::of(&below).code, 2);
    let nodes = server.count("zk_znode_count");
    Examined::of(&elsewhere);
    assert_eq!(server.count("zk_znode_count"), nodes);
}

/// What a server does not tell is listed, and is no finding.
#[test]
fn zookeeper_with_tls_is_not_missing_and_its_version_is_unknown() {
    let server = ZooKeeper::setup().tls().start();
    let url = format!("{}?ca={}", server.tls_url(), server.ca_file().display());
    let examined = Examined::of(&url);
    examined.assert(1, &["warning one-server"]);
    let unknown = examined.report["unknown"][0].as_str().unwrap();
    assert!(
        unknown.contains("version or digest mismatches"),
        "{unknown}"
    );
}

#[test]
fn folders_in_memory_and_open_to_all_are_found() {
    let folder = TempDir::new_in("/dev/shm").unwrap();
    let url = format!("file:{}", folder.path().display());
    Examined::of(&url).assert(1, &["warning memory-file-system"]);

    let mode = |mode| fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
    let mut findings = vec!["warning memory-file-system", "warning world-writable"];
    mode(0o777);
    Examined::of(&url).assert(1, &findings);

    mode(0o1777);
    if ["regular", "fifos"].into_iter().any(is_unprotected) {
        findings.push("warning protected-files");
    }
    Examined::of(&url).assert(1, &findings);
}

/// Whether the kernel lets a user put this kind of file where another user expects one.
fn is_unprotected(kind: &str) -> bool {
    let setting = fs::read_to_string(format!("/proc/sys/fs/protected_{kind}")).unwrap();
    setting.trim() == "0"
}

#[test]
fn overlays_and_full_disks_are_found() {
    let folder = TempDir::new_in("/dev/shm").unwrap();
    let script = "mount -t tmpfs -o size=8m none \"$D\"; cd \"$D\"
        \"$L\" doctor --json --store \"file:$D/small\" || echo \"exit $?\"
        mkdir lower upper work merged
        mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none merged
        \"$L\" doctor --json --store \"file:$D/merged/store\" || echo \"exit $?\"";
    let mut shell = Command::new("unshare");
    shell
        .args(["--map-root-user", "--mount", "sh", "-ec", script])
        .env("L", env!("CARGO_BIN_EXE_leasehold"))
        .env("D", folder.path());
    let done: Finished = shell.output().unwrap().into();

    assert_eq!(done.code(), 0, "{done:?}");
    let [small, overlay] = &done.out.split("exit 1\n").collect::<Vec<_>>()[..2] else {
        panic!("{done:?}");
    };
    for code in ["memory-file-system", "disk-full"] {
        assert!(small.contains(&format!("\"code\":\"{code}\"")), "{small}");
    }
    for code in ["overlay", "disk-full"] {
        assert!(
            overlay.contains(&format!("\"code\":\"{code}\"")),
            "{overlay}"
        );
    }
}

#[test]
fn memory_store_is_refused() {
    let done: Finished = Sandbox::at("memory:".to_owned()).done(&["doctor"]);
    assert_eq!(done.code(), 64, "{done:?}");
}
