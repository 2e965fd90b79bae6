//! A real Prometheus, and the rules and the dashboard in docs/monitoring, and their page.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::site::{Site, curl};
use crate::sandbox::{Sandbox, Started, until};

fn monitoring(file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("docs/monitoring")
        .join(file)
        .canonicalize()
        .unwrap()
}

/// Returns the first value of a query, if there is one.
fn query(server: &str, expression: &str) -> Option<String> {
    let output = curl(&format!("{server}/api/v1/query"))
        .args(["--get", "--data-urlencode", &format!("query={expression}")])
        .output()
        .unwrap();
    let reply: Value = serde_json::from_slice(&output.stdout).ok()?;
    reply["data"]["result"][0]["value"][1]
        .as_str()
        .map(str::to_owned)
}

#[test]
fn prometheus_scrapes_with_a_token_and_evaluates_the_rules() {
    let sandbox = Sandbox::on_redis();
    fs::write(sandbox.path("token"), "0123456789abcdef").unwrap();
    let site = Site::start(&sandbox, &["--token-file", "token"]);
    let _holder = sandbox.holder("orders/42", &[]);
    let _waiter = sandbox.waiter(&["run", "orders/42", "--", "true"]);

    let (_prometheus, server) = start_prometheus(&sandbox, &site);
    let metric = "leasehold_waiters{name='orders/42'}";
    until("Prometheus has the waiter", || {
        query(&server, metric).as_deref() == Some("1")
    });
    assert_eq!(query(&server, "leasehold_up").as_deref(), Some("1"));
    assert_eq!(query(&server, "leasehold_holders").as_deref(), Some("1"));

    let rules = curl(&format!("{server}/api/v1/rules")).output().unwrap();
    let rules = String::from_utf8(rules.stdout).unwrap();
    assert!(rules.contains("LeaseholdStoreUnreachable"), "{rules}");
}

fn start_prometheus(sandbox: &Sandbox, site: &Site) -> (Started, String) {
    // Another process can take the port in between. Then the server ends, and the test fails.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let rules = monitoring("alerts.yml");
    let target = site.url("").replace("http://", "");
    let settings = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
         rule_files: [{}]\n\
         scrape_configs:\n\
         - job_name: leasehold\n  \
           authorization: {{credentials_file: token}}\n  \
           static_configs: [{{targets: ['{target}']}}]\n",
        rules.display()
    );
    fs::write(sandbox.path("prometheus.yml"), settings).unwrap();

    let mut prometheus = Command::new("prometheus");
    prometheus
        .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .current_dir(sandbox.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let process = Started::from(prometheus.spawn().unwrap());
    (process, format!("http://127.0.0.1:{port}"))
}

#[test]
fn alert_rules_are_valid_and_fire() {
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts-test.yml"],
    ] {
        let mut promtool = Command::new("promtool");
        promtool.args(arguments).current_dir(monitoring(""));
        let output = promtool.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

/// A panel or rule with a metric that is not exported stays empty without a message.
#[test]
fn documents_of_monitoring_name_exported_metrics_only() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("a", &[]);
    let _waiter = sandbox.waiter(&["run", "a", "--", "true"]);
    let site = Site::start(&sandbox, &["--once", ""]);
    let metrics = site.get("/metrics");
    let types = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let exported: BTreeSet<String> = types.map(|line| names_in(line).remove(0)).collect();

    let dashboard: Value = {
        let text = fs::read_to_string(monitoring("dashboard.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    assert!(dashboard["panels"].as_array().unwrap().len() > 3);
    let page = fs::read_to_string(monitoring("../operate.md")).unwrap();
    let (_, section) = page.split_once("\n## serve\n").unwrap();
    let section = section.split("\n## ").next().unwrap().to_owned();
    let read = |file| fs::read_to_string(monitoring(file)).unwrap();
    let texts = [
        ("dashboard.json", read("dashboard.json")),
        ("alerts.yml", read("alerts.yml")),
        ("operate.md", section.clone()),
    ];
    for (file, text) in texts {
        for name in names_in(&text) {
            assert!(exported.contains(&name), "{file} names {name}");
        }
    }

    let documented = names_in(&section);
    for name in exported {
        assert!(
            documented.contains(&name),
            "operate.md does not describe {name}"
        );
    }
}

/// Returns the words that look like names of metrics.
fn names_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|word| word.starts_with("leasehold_"))
        .map(str::to_owned)
        .collect()
}
