//! The page in a real browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::browser::Browser;
use super::site::Site;
use super::{HOSTILE, acquire_elsewhere};
use crate::sandbox::{Sandbox, until};

const ROWS: &str = "document.querySelectorAll('#locks tbody tr').length";

#[test]
fn page_follows_grants_and_hand_overs() {
    let sandbox = Sandbox::on_redis();
    let site = Site::start(&sandbox, &[]);
    let mut browser = Browser::open(&site.url("/"));
    browser.wait_for("document.readyState === 'complete'");
    browser.wait_for(&format!("state.at !== '' && {ROWS} === 0"));

    let first = sandbox.holder("orders/42", &["--label", "first"]);
    let waiter = ["run", "orders/42", "--label", "second", "--", "cat"];
    let second = sandbox.waiter(&waiter);
    let row = "document.querySelector('#locks tbody tr')?.innerText ?? ''";
    browser.wait_for(&format!("/first[^]*second/.test({row})"));

    first.end().assert(0, "", "");
    browser.wait_for(&format!("/second/.test({row}) && !/first/.test({row})"));
    let changes = browser.value("document.getElementById('changes').innerText");
    let text = changes.as_str().unwrap();
    assert!(text.contains("orders/42: granted to"), "{text}");
    assert!(text.contains("(second) waits"), "{text}");

    assert_eq!(second.end().code(), 0);
    browser.wait_for(&format!("{ROWS} === 0"));
}

/// The server draws the first rows, and the script the later ones.
#[test]
fn locks_with_waiters_come_first_and_then_old_holds() {
    let sandbox = Sandbox::new();
    let _holders = ["b", "a", "z"].map(|name| sandbox.holder(name, &[]));
    let _waiter = sandbox.waiter(&["run", "z", "--quiet", "--", "true"]);
    let site = Site::start(&sandbox, &[]);

    let page = site.get("/");
    let position = |name: &str| page.find(&format!("<bdi>{name}</bdi>")).unwrap();
    assert!(position("z") < position("b") && position("b") < position("a"));

    let mut browser = Browser::open(&site.url("/"));
    browser.wait_for("rows.size === 3");
    let names = "[...document.querySelectorAll('#locks tbody th')].map((th) => th.innerText)";
    browser.wait_for(&format!("{names}.join() === 'z,b,a'"));
    let _second = sandbox.waiter(&["run", "a", "--quiet", "--", "true"]);
    let _third = sandbox.waiter(&["run", "a", "--quiet", "--", "true"]);
    browser.wait_for(&format!("{names}.join() === 'a,z,b'"));
}

/// The server draws the first row, and the script the same one from the first event on.
#[test]
fn processes_that_a_killed_run_leaves_are_shown_after_an_event() {
    let sandbox = Sandbox::new();
    let line = "sleep 1000 & echo $! > left; wait";
    let run = sandbox.started(&["run", "a", "--", "sh", "-c", line]);
    let left = sandbox.pid("left");
    run.signal(Signal::SIGKILL);
    drop(run);
    let badge = format!("which has ended; its processes {left} (sleep) still hold it");
    let site = Site::start(&sandbox, &[]);
    until("only its process holds the lock", || {
        site.get("/").contains(&badge)
    });

    let mut browser = Browser::open(&site.url("/"));
    browser.wait_for("typeof rows === 'object' && rows.size === 1");
    let drawn = browser.value("document.querySelector('#locks .badge')?.textContent ?? ''");
    kill(left, Signal::SIGKILL).unwrap();
    assert_eq!(drawn, badge);
}

/// The formats of other libraries have no times.
#[test]
fn hold_without_a_time_has_no_age_and_comes_last() {
    let mut sandbox = Sandbox::on_redis();
    sandbox.set("dialect=plain");
    acquire_elsewhere(&sandbox, "a");
    let _holder = sandbox.holder("b", &[]);
    let site = Site::start(&sandbox, &[]);

    let metrics = site.get("/metrics");
    let ages = metrics
        .lines()
        .filter(|line| line.starts_with("leasehold_oldest_hold_seconds"));
    let ages: Vec<&str> = ages.collect();
    assert!(
        ages.len() == 1 && ages[0].contains("name=\"b\""),
        "{ages:?}"
    );
    let page = site.get("/");
    let position = |name: &str| page.find(&format!("<bdi>{name}</bdi>")).unwrap();
    assert!(position("b") < position("a"), "{page}");
    let count = |part: &str| page.matches(part).count();
    assert_eq!(
        (count("<time datetime="), count("long held")),
        (1, 0),
        "{page}"
    );

    let mut browser = Browser::open(&site.url("/"));
    browser.wait_for("rows.size === 2");
    let names = "[...document.querySelectorAll('#locks tbody th')].map((th) => th.innerText)";
    browser.wait_for(&format!("{names}.join() === 'b,a'"));
    assert_eq!(
        browser.value("document.querySelectorAll('#locks time').length"),
        1
    );
    let text = browser.value("document.querySelector('#locks').innerText");
    assert!(!text.as_str().unwrap().contains("long held"), "{text}");
}

#[test]
fn browser_that_asks_for_an_icon_gets_no_error() {
    let sandbox = Sandbox::new();
    let site = Site::start(&sandbox, &[]);
    assert_eq!(site.get("/favicon.ico"), "");
}

/// Shows G-57.
#[test]
fn hostile_names_run_no_script_and_the_filter_works_by_keyboard() {
    let sandbox = Sandbox::new();
    let label = "<img src=x onerror=document.title='x'>";
    let _hostile = sandbox.held_by_library(HOSTILE, label);
    let _others = ["a/1", "a/2"].map(|name| sandbox.holder(name, &[]));
    let site = Site::start(&sandbox, &[]);
    let mut browser = Browser::open(&site.url("/"));

    browser.wait_for("document.getElementById('summary').innerText.startsWith('3 locks')");
    browser.wait_for(&format!("{ROWS} === 3"));
    browser.wait_for("rows.size === 3");
    assert_ne!(browser.value("document.title"), "x");
    assert_eq!(browser.value("document.images.length"), 0);
    assert_eq!(
        browser.value("document.querySelectorAll('tbody script').length"),
        0
    );

    // The skip link is the first stop, then the filter.
    browser.press_key("Tab", 9);
    assert_eq!(browser.value("document.activeElement.className"), "skip");
    browser.press_key("Tab", 9);
    assert_eq!(browser.value("document.activeElement.id"), "prefix");
    browser.press("a/");
    browser.wait_for(&format!("{ROWS} === 2"));
}

/// The button of the dialog that breaks is not the first one: one key too many changes nothing.
///
/// Shows G-57.
#[test]
fn hold_is_broken_by_keyboard_at_the_second_step() {
    let sandbox = Sandbox::on_redis();
    let holder = sandbox.holder("a", &["--on-lost", "kill"]);
    let token = sandbox.token("a");
    let site = Site::start(&sandbox, &["--allow-break"]);
    let mut browser = Browser::open(&site.url("/"));
    let open = |browser: &mut Browser| {
        browser.value("document.querySelector('td button').focus()");
        browser.press_key("Enter", 13);
        browser.wait_for("document.getElementById('break').open");
        browser.wait_for("document.activeElement.id === 'break-cancel'");
    };

    browser.wait_for("document.querySelector('td button') !== null");
    open(&mut browser);
    browser.press_key("Enter", 13);
    browser.wait_for("!document.getElementById('break').open");
    assert_eq!(sandbox.token("a"), token);

    open(&mut browser);
    browser.press_key("Tab", 9);
    browser.press_key("Enter", 13);
    browser.wait_for("!document.getElementById('break').open");
    assert_eq!(holder.wait().code(), 76);
    browser.wait_for(&format!("{ROWS} === 0"));
    browser.wait_for("document.body.innerText.includes('No lock is in use.')");
}

/// A page that is old breaks no hold that began later.
///
/// Shows G-57.
#[test]
fn hold_that_has_ended_is_not_broken() {
    let sandbox = Sandbox::on_redis();
    let first = sandbox.holder("a", &[]);
    let site = Site::start(&sandbox, &["--allow-break"]);
    let mut browser = Browser::open(&site.url("/"));
    browser.wait_for("document.querySelector('td button') !== null");
    browser.value("document.querySelector('td button').click()");

    first.end().assert(0, "", "");
    let mut second = sandbox.holder("a", &["--on-lost", "kill"]);
    browser.value("document.querySelector('dialog .danger').click()");
    let error = "document.getElementById('break-error').innerText";
    browser.wait_for(&format!(
        "{error}.includes('the lock is not held with token')"
    ));
    assert!(second.is_running());
}

/// Shows G-53, G-57.
#[test]
fn hold_of_a_cohort_is_broken_with_its_last_token() {
    let sandbox = Sandbox::on_redis();
    let locks = leasehold::blocking::open(&sandbox.url()).unwrap();
    let guard = locks.mutex("a").cohort(8).acquire().unwrap();
    let first = guard.token().get();
    let last = first + 8;
    let site = Site::start(&sandbox, &["--allow-break"]);
    let mut browser = Browser::open(&site.url("/"));

    browser.wait_for("document.querySelector('td button') !== null");
    browser.value("document.querySelector('td button').click()");
    let dialog = browser.value("document.getElementById('break').innerText");
    let text = dialog.as_str().unwrap();
    let shown = format!("with tokens {first} to {last}. ");
    assert!(text.contains(&shown), "{text}");

    browser.value("document.querySelector('dialog .danger').click()");
    browser.wait_for(&format!("{ROWS} === 0"));
    until("the hold is lost", || guard.check().is_err());
}

#[test]
fn page_fits_a_phone_and_the_dark() {
    let sandbox = Sandbox::new();
    let name = "n".repeat(500);
    let _holder = sandbox.holder(&name, &["--label", "a label of the holder"]);
    let site = Site::start(&sandbox, &[]);
    let mut browser = Browser::open(&site.url("/"));
    browser.wait_for("typeof rows === 'object' && rows.size === 1");

    let background = "getComputedStyle(document.body).backgroundColor";
    let light = browser.value(background);
    let dark = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    browser.call("Emulation.setEmulatedMedia", &dark);
    assert_ne!(browser.value(background), light);

    let phone = json!({
        "width": 360, "height": 640, "deviceScaleFactor": 2, "mobile": true,
    });
    browser.call("Emulation.setDeviceMetricsOverride", &phone);
    let overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(browser.value(overflow), 0);
}

/// The pictures of the page are those of its sources. When this fails, look at the new ones:
///
/// `LEASEHOLD_PICTURES=../../docs/monitoring cargo test --test command pictures_of_the_page`
#[test]
fn pictures_of_the_page_are_complete_and_of_its_sources() {
    let sandbox = Sandbox::on_redis();
    let site = Site::start(&sandbox, &["--allow-break"]);
    let mut browser = Browser::open(&site.url("/"));
    browser.wait_for("state.at !== ''");
    let label = |label| ["--label", label, "--lease", "10m"];
    let report = sandbox.holder("nightly-report", &label("report of 27 November"));
    let _report = sandbox.waiter(&["run", "nightly-report", "--label", "worker-2", "--", "cat"]);
    let _third = sandbox.waiter(&["run", "nightly-report", "--label", "worker-3", "--", "cat"]);
    let shared = |who| ["--shared", "--label", who];
    let _readers = ["search index", "sitemap"].map(|who| sandbox.holder("catalogue", &shared(who)));
    let update = ["run", "catalogue", "--label", "price update", "--", "cat"];
    let _writer = sandbox.waiter(&update);
    let slot = |who| ["--slots", "3", "--label", who];
    let _slots = ["training 7", "training 8"].map(|who| sandbox.holder("gpu", &slot(who)));
    let stopped = sandbox.holder("deploy", &label("release 4.2"));
    stopped.signal(nix::sys::signal::Signal::SIGSTOP);
    until("it is stopped", || {
        sandbox.holders("deploy")[0]["stopped"] == true
    });
    let _waiting = sandbox.waiter(&["run", "deploy", "--label", "release 4.3", "--", "cat"]);
    report.end().assert(0, "", "");

    let folder = std::env::var_os("LEASEHOLD_PICTURES").map(PathBuf::from);
    browser.wait_for("rows.size === 4 && !isDrawing && find('changes').children.length >= 11");
    browser.wait_for("document.body.innerText.includes('stopped')");
    browser.call("Emulation.setScrollbarsHidden", &json!({"hidden": true}));
    for (name, scheme, width, height) in [
        ("page-light", "light", 1100, 940),
        ("page-dark", "dark", 1100, 940),
        ("page-phone", "light", 390, 1080),
        ("page-wide", "light", 1920, 800),
    ] {
        let emulated = json!({"features": [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        browser.call("Emulation.setEmulatedMedia", &emulated);
        let window = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        browser.call("Emulation.setDeviceMetricsOverride", &window);
        browser.wait_for(&format!("innerWidth === {width}"));
        let overflow =
            "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.value(overflow), 0, "{name}");

        let picture = browser.picture();
        let shown = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
        assert_eq!((shown(16), shown(20)), (width, height), "{name}");
        if let (Some(folder), 1100) = (&folder, width) {
            std::fs::write(folder.join(name).with_extension("png"), picture).unwrap();
        }
    }

    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/serve/page");
    let sources = ["page.css", "page.html", "page.js"];
    let sums = Command::new("sha256sum")
        .args(sources)
        .current_dir(page)
        .output();
    let sums = String::from_utf8(sums.unwrap().stdout).unwrap();
    if let Some(folder) = &folder {
        std::fs::write(folder.join("page.sha256"), &sums).unwrap();
    }
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitoring/page.sha256");
    assert_eq!(
        std::fs::read_to_string(known).unwrap(),
        sums,
        "the pictures are old"
    );
}

/// What a screen reader announces.
#[test]
fn parts_of_the_page_have_roles_and_names() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("a", &[]);
    let site = Site::start(&sandbox, &["--allow-break"]);
    let mut browser = Browser::open(&site.url("/"));
    browser.wait_for("document.querySelector('td button') !== null");

    let tree = browser.call("Accessibility.getFullAXTree", &json!({}));
    let nodes = tree["nodes"].as_array().unwrap();
    let has = |role: &str, name: &str| {
        nodes.iter().any(|node| {
            let found: &Value = &node["name"]["value"];
            node["role"]["value"] == role && found.as_str().unwrap_or_default().starts_with(name)
        })
    };
    for (role, name) in [
        ("table", "Holders and waiters"),
        ("columnheader", "Holders"),
        ("rowheader", "a"),
        ("searchbox", "Names that begin with"),
        ("button", "Break the hold of a"),
        ("log", ""),
        ("heading", "Locks of"),
    ] {
        assert!(has(role, name), "{role} {name:?} is missing");
    }
}
