//! The page in a real browser.

use serde_json::{Value, json};

use super::HOSTILE;
use super::browser::Browser;
use super::site::Site;
use crate::sandbox::{Sandbox, until};

const ROWS: &str = "document.querySelectorAll('#locks tbody tr').length";

#[test]
fn page_follows_grants_and_hand_overs() {
    let sandbox = Sandbox::on_redis();
    let site = Site::start(&sandbox, &[]);
    let mut browser = Browser::open(&site.url("/"));
    browser.wait_for("document.readyState === 'complete'");
    browser.wait_for(&format!("{ROWS} === 0"));

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

/// Shows G-57.
#[test]
fn hold_is_broken_by_keyboard_with_its_token() {
    let sandbox = Sandbox::on_redis();
    let holder = sandbox.holder("a", &["--on-lost", "kill"]);
    let token = sandbox.token("a");
    let site = Site::start(&sandbox, &["--allow-break"]);
    let mut browser = Browser::open(&site.url("/"));
    let error = "document.getElementById('break-error').innerText";

    browser.wait_for("document.querySelector('td button') !== null");
    browser.value("document.querySelector('td button').focus()");
    browser.press_key("Enter", 13);
    browser.wait_for("document.getElementById('break').open");
    browser.wait_for("document.activeElement.id === 'confirmation'");
    browser.press("1");
    browser.press_key("Enter", 13);
    browser.wait_for(&format!(
        "{error}.includes('confirmation is not the token')"
    ));
    assert_eq!(sandbox.token("a"), token);

    browser.value("document.getElementById('confirmation').value = ''");
    browser.press(&token);
    browser.press_key("Enter", 13);
    browser.wait_for("!document.getElementById('break').open");
    assert_eq!(holder.wait().code(), 76);
    browser.wait_for(&format!("{ROWS} === 0"));
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
    assert!(text.contains("Type the last token of the hold"), "{text}");

    browser.press(&last.to_string());
    browser.press_key("Enter", 13);
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
