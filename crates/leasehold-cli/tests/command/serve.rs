//! `leasehold serve`: the page, JSON, events, metrics, and who may read them.

mod browser;
mod page;
mod prometheus;
pub(crate) mod site;

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::iter::repeat_with;
use std::net::TcpStream;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use lab_servers::Redis;
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, Started, until};
use site::{Site, curl};

/// A name that ends a tag, an attribute, a label of a metric and a line, and looks like a template.
const HOSTILE: &str = "\"'><script>document.title='x'</script>{{rows}}\\\n}";

#[test]
fn holders_and_waiters_are_served_as_json_page_and_metrics() {
    let sandbox = Sandbox::on_redis();
    let holder = sandbox.holder("orders/42", &["--label", "first"]);
    let waiter = sandbox.waiter(&["run", "orders/42", "--label", "second", "--", "true"]);
    let site = Site::start(&sandbox, &[]);
    let token = sandbox.token("orders/42");

    let locks: Value = serde_json::from_str(&site.get("/locks")).unwrap();
    assert_eq!(locks["error"], Value::Null);
    assert_eq!(locks["complete"], true);
    let lock = &locks["locks"][0];
    assert_eq!(lock["holders"][0]["token"], token);
    assert_eq!(lock["holders"][0]["label"], "first");
    assert_eq!(lock["waiters"][0]["label"], "second");
    assert_eq!(lock["waiters"][0]["position"], 1);

    let page = site.get("/");
    assert!(page.contains("<bdi>orders/42</bdi>"), "{page}");
    assert!(page.contains(&format!("<span class=\"token\">token {token}</span>")));
    assert!(page.contains("<bdi class=\"label\">second</bdi>"));

    let metrics = site.get("/metrics");
    for line in [
        "leasehold_up 1",
        "leasehold_locks 1",
        "leasehold_holders{name=\"orders/42\",kind=\"mutex\"} 1",
        "leasehold_waiters{name=\"orders/42\",kind=\"mutex\"} 1",
        &format!("leasehold_first_token{{name=\"orders/42\",kind=\"mutex\"}} {token}"),
        &format!("leasehold_last_token{{name=\"orders/42\",kind=\"mutex\"}} {token}"),
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}: {metrics}"
        );
    }
    assert_eq!(site.get("/healthz"), "ok\n");

    holder.end().assert(0, "", "");
    assert_eq!(waiter.end().code(), 0);
    until("the lock is free", || site.locks("").is_empty());
}

#[test]
fn held_part_of_a_semaphore_is_exported() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("gpu", &["--slots", "4", "--permits", "3"]);
    let metrics = Site::start(&sandbox, &[]).get("/metrics");
    for (metric, value) in [("held", 3), ("capacity", 4), ("holders", 1)] {
        let series = format!("leasehold_{metric}{{name=\"gpu\",kind=\"semaphore\"}} {value}\n");
        assert!(metrics.contains(&series), "{series}: {metrics}");
    }
    holder.end().assert(0, "", "");
}

/// The page, the events and `/locks` list locks in use only, also with `--once`.
///
/// Shows G-58.
#[test]
fn last_successes_are_exported_below_a_prefix() {
    let sandbox = Sandbox::on_redis();
    for (name, command) in [("a\"/1", "true"), ("a\"/2", "false"), ("b", "true")] {
        let code = i32::from(command == "false");
        sandbox
            .done(&["run", "--once", "1", name, "--", command])
            .assert(code, "", "");
    }
    let metric = "leasehold_last_success_timestamp_seconds";
    assert!(!Site::start(&sandbox, &[]).get("/metrics").contains(metric));

    let site = Site::start(&sandbox, &["--once", "a"]);
    let metrics = site.get("/metrics");
    let series = format!("{metric}{{name=\"a\\\"/1\"}} ");
    let found: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with(metric))
        .collect();
    assert_eq!(found.len(), 1, "{metrics}");
    let ended: Value =
        serde_json::from_str(&sandbox.done(&["ls", "--once", "--json"]).out).unwrap();
    let ended: jiff::Timestamp = ended[0]["last_success"]["ended"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let at: f64 = found[0].strip_prefix(&series).unwrap().parse().unwrap();
    assert!(
        (at - ended.as_duration().as_secs_f64()).abs() < 1e-3,
        "{metrics}"
    );
    assert!(site.locks("").is_empty());

    let mut plain = Sandbox::on_redis();
    plain.set("dialect=plain");
    plain
        .done(&["serve", "--listen", "127.0.0.1:0", "--once", ""])
        .assert(64, "", "has no records of completed jobs");
}

/// A grant to a cohort reserves a block of tokens. None of them is shown as the token of the hold,
/// and each of them breaks it.
///
/// Shows G-53.
#[test]
fn tokens_of_a_cohort_are_shown_as_a_block() {
    let sandbox = Sandbox::new();
    let locks = leasehold::blocking::open(&sandbox.url()).unwrap();
    // A hold in a folder finds that it was broken at its next renewal.
    let lease = Duration::from_secs(1);
    let lock = locks.mutex("a").lease(lease).cohort(8);
    for chosen in [0, 3, 8] {
        let guard = lock.acquire().unwrap();
        let first = guard.token().get();
        let last = first + 8;

        let shown = sandbox.show("a");
        let holder = &shown["holders"][0];
        assert_eq!(holder["first_token"], json!(first.to_string()));
        assert_eq!(holder["last_token"], json!(last.to_string()));
        assert_eq!(holder["token"], Value::Null);
        assert_eq!(shown["last_token"], holder["last_token"]);
        let text = sandbox.done(&["show", "a"]).out;
        assert!(text.contains(&format!(", tokens {first} to {last}, ")));

        let site = Site::start(&sandbox, &[]);
        let metrics = site.get("/metrics");
        let labels = "{name=\"a\",kind=\"mutex\"}";
        assert!(metrics.contains(&format!("leasehold_first_token{labels} {first}\n")));
        assert!(metrics.contains(&format!("leasehold_last_token{labels} {last}\n")));
        let tokens = format!("<span class=\"token\">tokens {first} to {last}</span>");
        assert!(site.get("/").contains(&tokens));

        let break_with = |token: u64| {
            let token = token.to_string();
            sandbox.done(&["break", "a", "--token", &token]).code()
        };
        assert_eq!([first - 1, last + 1].map(break_with), [1, 1]);
        assert_eq!(break_with(first + chosen), 0);
        until("the hold is lost", || guard.check().is_err());
        drop(guard);
        until("the lock is free", || sandbox.is_free("a"));
    }
}

#[test]
fn prefix_selects_names() {
    let sandbox = Sandbox::new();
    let _holders = ["a/1", "a/2", "b"].map(|name| sandbox.holder(name, &[]));
    let site = Site::start(&sandbox, &[]);
    assert_eq!(site.locks(""), ["a/1", "a/2", "b"]);
    assert_eq!(site.locks("?prefix=a%2F"), ["a/1", "a/2"]);
    assert!(!site.get("/?prefix=a/").contains("<bdi>b</bdi>"));

    let part = Site::start(&sandbox, &["--prefix", "b"]);
    assert_eq!(part.locks(""), ["b"]);
}

/// `ls` and the page escape these characters, but two names stay two.
///
/// Shows G-17.
#[test]
fn names_with_invisible_characters_are_served_as_they_are() {
    const NAMES: [&str; 3] = ["a\nb", r"a\nb", "zero\u{200b}width"];
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("dialect=plain");
    for name in NAMES {
        acquire_elsewhere(&sandbox, name);
    }

    let listed: Value = serde_json::from_str(&sandbox.done(&["ls", "--json"]).out).unwrap();
    let listed = listed.as_array().unwrap().iter();
    let listed: Vec<&Value> = listed.map(|lock| &lock["name"]).collect();
    assert_eq!(listed, NAMES);
    // A shell completes no name that it would show in another form.
    assert_eq!(sandbox.done(&["ls", "--names"]).out, "a\\nb\n");

    let site = Site::start(&sandbox, &[]);
    assert_eq!(site.locks(""), NAMES);
    assert_eq!(site.locks("?prefix=zero%E2%80%8B"), NAMES[2..]);
    let metrics = site.get("/metrics");
    for name in [r"a\nb", r"a\\nb", "zero\u{200b}width"] {
        let series = format!("leasehold_holders{{name=\"{name}\",kind=\"mutex\"}} 1\n");
        assert!(metrics.contains(&series), "{metrics}");
    }

    let mut events = Events::of(&site);
    events.next("locks");
    sandbox.server().command(&["DEL", NAMES[2]]);
    while events.next("change")["removed"] != json!([NAMES[2]]) {}
}

/// As `leasehold ls`, the page leaves them out beside their semaphore.
#[test]
fn numbers_of_slots_are_not_served() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("gpu", &["--slots", "4"]);
    let _own = sandbox.holder("gpu/slot/own", &[]);
    let site = Site::start(&sandbox, &[]);
    assert_eq!(site.locks(""), ["gpu", "gpu/slot/own"]);
}

/// Shows G-57.
#[test]
fn hostile_name_is_neither_tag_nor_metric() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.held_by_library(HOSTILE, "<img src=x onerror=alert(1)>");
    let site = Site::start(&sandbox, &[]);
    assert_eq!(site.locks(""), [HOSTILE]);

    let page = site.get("/");
    assert!(!page.contains("<script>document"), "{page}");
    assert!(!page.contains("<img"), "{page}");
    assert!(
        page.contains("{{rows}}"),
        "the name is shown as it is: {page}"
    );

    let metrics = site.get("/metrics");
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap();
    std::io::Write::write_all(promtool.stdin.as_mut().unwrap(), metrics.as_bytes()).unwrap();
    assert!(promtool.wait().unwrap().success(), "{metrics}");
}

/// A web site whose name was resolved to this server could read the locks through a browser.
///
/// Shows G-57.
#[test]
fn request_with_another_host_is_refused() {
    let sandbox = Sandbox::new();
    let site = Site::start(&sandbox, &["--host", "locks.example"]);
    for path in [
        "/", "/locks", "/metrics", "/healthz", "/page.js", "/nowhere",
    ] {
        let refused = site.curl(path, &["--header", "Host: evil.example"]);
        assert_eq!(refused.status, 421, "{path}");
        assert!(!refused.body.contains("locks"), "{}", refused.body);
    }
    for host in ["localhost", "127.0.0.1:1", "locks.example"] {
        let header = format!("Host: {host}");
        assert_eq!(
            site.curl("/locks", &["--header", &header]).status,
            200,
            "{host}"
        );
    }
}

/// Shows G-57.
#[test]
fn every_reply_forbids_foreign_scripts() {
    let sandbox = Sandbox::new();
    let site = Site::start(&sandbox, &[]);
    for path in [
        "/",
        "/locks",
        "/metrics",
        "/healthz",
        "/page.js",
        "/page.css",
        "/nowhere",
    ] {
        let head = site.curl(path, &[]).head.to_lowercase();
        assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self'"));
        assert!(!head.contains("unsafe"), "{head}");
        for header in ["x-content-type-options: nosniff", "cache-control: no-store"] {
            assert!(head.contains(header), "{path}: {head}");
        }
    }
    assert_eq!(site.curl("/nowhere", &[]).status, 404);
    assert_eq!(site.curl("/locks", &["--request", "DELETE"]).status, 405);
    assert_eq!(site.curl("/locks", &["--head"]).status, 200);
}

/// Shows G-57.
#[test]
fn address_of_a_network_requires_a_token() {
    let sandbox = Sandbox::new();
    let all = ["serve", "--listen", "0.0.0.0:0"];
    sandbox.done(&all).assert(64, "", "write --token-file PATH");

    std::fs::write(sandbox.path("short"), "0123456789abcde\n").unwrap();
    sandbox
        .done(&[&all[..], &["--token-file", "short"]].concat())
        .assert(64, "", "too short");
    sandbox
        .done(&[&all[..], &["--token-file", "missing"]].concat())
        .assert(64, "", "cannot read the token file missing");

    std::fs::write(sandbox.path("token"), "0123456789abcdef\n").unwrap();
    let site = Site::start(
        &sandbox,
        &["--listen", "0.0.0.0:0", "--token-file", "token"],
    );
    for path in ["/", "/locks", "/metrics", "/page.js", "/nowhere"] {
        let refused = site.curl(path, &[]);
        assert_eq!(refused.status, 401, "{path}");
        assert!(
            refused
                .head
                .to_lowercase()
                .contains("www-authenticate: basic")
        );
        let wrong = site.curl(path, &["--oauth2-bearer", "0123456789abcdee"]);
        assert_eq!(wrong.status, 401, "{path}");
    }
    let address = site.address().to_owned();
    sandbox.done(&["serve", "--listen", &address]).assert(
        64,
        "",
        "write --listen with another address or port",
    );
    assert_eq!(site.curl("/healthz", &[]).status, 200);
    for credentials in [
        ["--oauth2-bearer", "0123456789abcdef"],
        ["--user", "any:0123456789abcdef"],
    ] {
        assert_eq!(site.curl("/locks", &credentials).status, 200);
    }
}

/// Shows G-57.
#[test]
fn hand_over_is_sent_as_an_event() {
    let sandbox = Sandbox::on_redis();
    let holder = sandbox.holder("a", &["--label", "first"]);
    let waiter = sandbox.waiter(&["run", "a", "-q", "--label", "second", "--", "cat"]);
    let site = Site::start(&sandbox, &[]);

    let mut events = Events::of(&site);
    let all = events.next("locks");
    assert_eq!(all["locks"][0]["holders"][0]["label"], "first");

    holder.end().assert(0, "", "");
    let change = loop {
        let change = events.next("change");
        if change["changed"][0]["holders"][0]["label"] == "second" {
            break change;
        }
    };
    assert_eq!(change["changed"][0]["waiters"], json!([]));

    waiter.end().assert(0, "", "");
    while events.next("change")["removed"] != json!(["a"]) {}
}

/// The page would draw the row again and again.
///
/// Shows G-57.
#[test]
fn remaining_lease_alone_is_no_event() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("dialect=plain");
    acquire_elsewhere(&sandbox, "a");
    let site = Site::start(&sandbox, &[]);
    let mut events = Events::of(&site);
    let left_in = |state: &Value| state["locks"][0]["holders"][0]["lease_left_ms"].as_u64();
    let first = left_in(&events.next("locks"));
    until("a later scan has found less time left", || {
        left_in(&serde_json::from_str(&site.get("/locks")).unwrap()) < first
    });

    acquire_elsewhere(&sandbox, "b");
    let changed = &events.next("change")["changed"];
    assert_eq!(changed.as_array().unwrap().len(), 1, "{changed}");
    assert_eq!(changed[0]["name"], "b");
}

/// Acquires a lock as a library does that the `plain` dialect is compatible with.
pub(super) fn acquire_elsewhere(sandbox: &Sandbox, name: &str) {
    let token = "0123456789abcdef0123456789abcdef";
    let set = ["SET", name, token, "NX", "PX", "600000"];
    assert_eq!(sandbox.server().command(&set).text(), "OK");
}

/// Shows G-57.
#[test]
fn hold_is_broken_only_with_permission() {
    let sandbox = Sandbox::on_redis();
    let mut holder = sandbox.holder("a", &["--on-lost", "kill"]);
    let token = sandbox.token("a");
    let order = |token: &str| json!({"name": "a", "token": token}).to_string();
    let json = "Content-Type: application/json";

    let reader = Site::start(&sandbox, &[]);
    let refused = reader.curl("/break", &["--header", json, "--data", &order(&token)]);
    assert_eq!(refused.status, 403);

    let site = Site::start(&sandbox, &["--allow-break"]);
    let own = format!("Origin: {}", site.url(""));
    for (status, options) in [
        (400, ["--header", json, "--data", &order("yes")]),
        (400, ["--header", json, "--data", &order("")]),
        (
            415,
            [
                "--header",
                "Content-Type: text/plain",
                "--data",
                &order(&token),
            ],
        ),
        (405, ["--get", "--header", json, "--silent"]),
    ] {
        assert_eq!(site.curl("/break", &options).status, status, "{options:?}");
    }
    for origin in ["https://evil.example", "http://127.0.0.1:1", "null"] {
        let origin = format!("Origin: {origin}");
        let options = [
            "--header",
            &origin,
            "--header",
            json,
            "--data",
            &order(&token),
        ];
        assert_eq!(site.curl("/break", &options).status, 403, "{origin}");
    }
    assert!(holder.is_running());

    let options = ["--header", &own, "--header", json, "--data", &order(&token)];
    assert_eq!(site.curl("/break", &options).status, 200);
    assert_eq!(holder.wait().code(), 76);
    assert_eq!(site.curl("/break", &options).status, 409);
}

/// A name with a line break would begin a line of its own in the log.
///
/// Shows G-57.
#[test]
fn name_of_a_broken_hold_is_escaped_in_the_log() {
    const NAME: &str = "a\n\u{1b}[31mforged";
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("dialect=plain");
    acquire_elsewhere(&sandbox, NAME);
    let site = Site::start(&sandbox, &["--allow-break", "-v"]);
    let locks: Value = serde_json::from_str(&site.get("/locks")).unwrap();
    let token = &locks["locks"][0]["holders"][0]["token"];
    assert_eq!(
        break_by(&site, &json!({"name": NAME, "token": token})).status,
        200
    );

    let log = site.stop().err;
    let mut lines = log.lines();
    assert!(!log.contains('\u{1b}'), "{log:?}");
    let event = lines.find(|line| line.contains("broke a hold")).unwrap();
    assert!(event.contains("[31mforged"), "{log:?}");
}

/// Shows G-57.
#[test]
fn order_may_name_its_charset_and_a_wrong_name_is_refused() {
    let sandbox = Sandbox::new();
    let site = Site::start(&sandbox, &["--allow-break"]);
    let order = json!({"name": "a", "token": "1"}).to_string();
    for content_type in ["application/json; charset=utf-8", "Application/JSON"] {
        let header = format!("Content-Type: {content_type}");
        let reply = site.curl("/break", &["--header", &header, "--data", &order]);
        assert_eq!(reply.status, 409, "{content_type}: {}", reply.body);
    }
    let reply = break_by(&site, &json!({"name": "", "token": "1"}));
    assert_eq!(reply.status, 400, "{}", reply.body);
}

fn break_by(site: &Site, order: &Value) -> site::Reply {
    let json = "Content-Type: application/json";
    site.curl("/break", &["--header", json, "--data", &order.to_string()])
}

/// Shows G-57.
#[test]
fn store_that_replies_again_is_healthy_at_once() {
    let server = Redis::start();
    let rights = |rights: &str| {
        let set = ["ACL", "SETUSER", "site", "on", "nopass", "~*", "&*", rights];
        server.command(&set);
    };
    rights("+@all");
    let sandbox = Sandbox::at(format!("redis://site:any@{}", server.address()));
    let site = Site::start(&sandbox, &[]);
    assert_eq!(site.get("/healthz"), "ok\n");

    rights("-@all");
    assert_eq!(site.curl("/healthz", &[]).status, 503);
    rights("+@all");
    assert_eq!(site.get("/healthz"), "ok\n");
}

/// Shows G-57.
#[test]
fn outage_of_the_store_is_reported_and_ends() {
    let mut sandbox = Sandbox::on_redis();
    let holder = sandbox.holder("a", &[]);
    let site = Site::start(&sandbox, &[]);
    let before: Value = serde_json::from_str(&site.get("/locks")).unwrap();
    assert_eq!(before["error"], Value::Null);
    let mut events = Events::of(&site);
    events.next("locks");

    sandbox.server_mut().kill();
    until("the outage is noticed", || {
        site.curl("/healthz", &[]).status == 503
    });
    while events.next("change")["error"].is_null() {}
    let metrics = site.get("/metrics");
    assert!(metrics.contains("leasehold_up 0\n"), "{metrics}");
    assert!(!metrics.contains("leasehold_holders"), "{metrics}");
    assert!(site.get("/").contains("The store cannot be read"));
    let last_known: Value = serde_json::from_str(&site.get("/locks")).unwrap();
    assert_ne!(last_known["error"], Value::Null);
    assert_eq!(last_known["at"], before["at"]);
    assert_eq!(last_known["locks"][0]["name"], "a");
    drop(holder);

    sandbox.server_mut().restart();
    until("the store is read again", || site.get("/healthz") == "ok\n");
    while !events.next("change")["error"].is_null() {}
}

/// Shows G-57.
#[test]
fn outage_after_a_slow_scan_is_reported_by_the_next_reply() {
    next_replies_after_a_slow_scan_report(["/metrics", "/healthz"], Redis::kill);
}

/// Shows G-57.
#[test]
fn silent_store_after_a_slow_scan_is_reported_by_the_next_reply() {
    next_replies_after_a_slow_scan_report(["/healthz", "/metrics"], |server| server.pause());
}

/// Shows G-57.
#[test]
fn revoked_rights_after_a_slow_scan_are_reported_by_the_next_reply() {
    next_replies_after_a_slow_scan_report(["/metrics", "/healthz"], |server| {
        server.command(&["ACL", "SETUSER", "default", "-@all"]);
    });
}

/// A scan that takes long serves requests for longer. The first of the paths must not reply with
/// it.
fn next_replies_after_a_slow_scan_report(paths: [&str; 2], fail: impl FnOnce(&mut Redis)) {
    let mut sandbox = Sandbox::on_redis();
    let _holder = sandbox.holder("a", &[]);
    let site = Site::start(&sandbox, &[]);
    sandbox
        .server_mut()
        .command(&["CLIENT", "PAUSE", "1000", "ALL"]);
    let metrics = site.get("/metrics");
    assert!(metrics.contains("leasehold_up 1\n"), "{metrics}");

    fail(sandbox.server_mut());
    for path in paths {
        let reply = site.curl(path, &["--max-time", "10"]);
        let text = reply.body;
        if path == "/healthz" {
            assert_eq!(reply.status, 503, "{text}");
        } else {
            assert!(text.contains("leasehold_up 0\n"), "{text}");
            assert!(!text.contains("leasehold_holders"), "{text}");
        }
    }
}

/// More connections than the server has at the same time.
///
/// Shows G-57.
#[test]
fn half_requests_do_not_delay_other_requests() {
    let sandbox = Sandbox::new();
    let site = Site::start(&sandbox, &[]);
    let half = || begun_request(&site, HALF_HEAD);
    let _half_requests: Vec<TcpStream> = repeat_with(half).take(300).collect();

    let healthy = site.curl("/healthz", &["--max-time", "20"]);
    assert_eq!(healthy.body, "ok\n");
}

/// As many as one client may have connections.
///
/// Shows G-57.
#[test]
fn requests_without_their_body_do_not_delay_other_requests() {
    let sandbox = Sandbox::new();
    let site = Site::start(&sandbox, &["--allow-break"]);
    let half = || begun_request(&site, HALF_ORDER);
    let mut half_requests: Vec<TcpStream> = repeat_with(half).take(140).collect();

    let healthy = site.curl("/healthz", &["--max-time", "20"]);
    assert_eq!(healthy.body, "ok\n");

    // The oldest has made place. If it had kept its place, it would get an error in the end.
    let mut reply = Vec::new();
    let _closed = half_requests[0].read_to_end(&mut reply);
    assert_eq!(String::from_utf8_lossy(&reply), "");
}

/// More streams of events than one client may have connections.
///
/// Shows G-57.
#[test]
fn streams_of_events_do_not_stop_other_requests() {
    let sandbox = Sandbox::new();
    let site = Site::start(&sandbox, &[]);
    let request = "GET /locks HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n";
    let mut streams: Vec<TcpStream> = Vec::new();
    for number in 0..140 {
        let mut stream = begun_request(&site, request);
        let mut first = [0];
        stream
            .read_exact(&mut first)
            .unwrap_or_else(|error| panic!("{number}: {error}"));
        streams.push(stream);
    }

    let healthy = site.curl("/healthz", &["--max-time", "20"]);
    assert_eq!(healthy.body, "ok\n");
    assert!(site.get("/metrics").contains("leasehold_up 1\n"));
}

/// Shows G-57.
#[test]
fn connection_whose_head_does_not_arrive_is_closed() {
    let sandbox = Sandbox::new();
    let site = Site::start(&sandbox, &[]);
    let mut stream = begun_request(&site, HALF_HEAD);
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
}

/// Shows G-57.
#[test]
fn body_that_does_not_arrive_is_refused() {
    let sandbox = Sandbox::new();
    let site = Site::start(&sandbox, &["--allow-break"]);
    let mut stream = begun_request(&site, HALF_ORDER);

    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 400"), "{reply}");
    assert!(reply.contains("the body did not arrive in time"), "{reply}");
}

/// The stream of events of a site.
struct Events {
    lines: Lines<BufReader<ChildStdout>>,
    _curl: Started,
}

impl Events {
    fn of(site: &Site) -> Self {
        let mut curl = Started::of(curl(&site.url("/locks")).args([
            "--no-buffer",
            "--header",
            "Accept: text/event-stream",
        ]));
        Self {
            lines: BufReader::new(curl.out()).lines(),
            _curl: curl,
        }
    }

    /// Waits for the next event of this kind, and returns its data.
    fn next(&mut self, kind: &str) -> Value {
        let event = format!("event: {kind}");
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        lines.find(|line| *line == event).unwrap();
        let data = lines.next().unwrap();
        serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()
    }
}

/// Sends the beginning of a request, and nothing more. The reply must end within 20 seconds.
fn begun_request(site: &Site, beginning: &str) -> TcpStream {
    let mut stream = TcpStream::connect(site.address()).unwrap();
    stream.write_all(beginning.as_bytes()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

const HALF_HEAD: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n";

const HALF_ORDER: &str = "POST /break HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
     Content-Length: 50\r\n\r\n{";
