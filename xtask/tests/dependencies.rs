//! The dependencies that the documents state for a set of features.
#![allow(missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "leasehold";
const HEAD: &str = "| features | packages |";

#[test]
fn stated_numbers_of_dependencies_are_true() {
    let page = fs::read_to_string(root().join("docs/install.md")).expect("it exists");
    let table = page.split_once(HEAD).expect("the page has the table").1;
    let rows: Vec<&str> = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(rows.len() >= 5, "the table has {} rows", rows.len());

    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let stated: usize = cells[2].parse().expect("a row ends with a number");
        let found = dependencies(LIBRARY, &features(cells[1])).len();
        assert_eq!(found, stated, "{} in docs/install.md", cells[1]);
    }
}

#[test]
fn tls_without_aws_lc_rs_has_no_cryptography_of_its_own() {
    let without = dependencies(LIBRARY, "redis,tls");
    for package in ["aws-lc-rs", "aws-lc-sys", "ring"] {
        assert!(!contains(&without, package), "{package} is compiled");
    }

    let with = dependencies(LIBRARY, "redis,tls,aws-lc-rs");
    assert!(contains(&with, "aws-lc-sys"), "{with:?}");
}

#[test]
fn aws_lc_rs_without_tls_adds_no_package() {
    assert_eq!(
        dependencies(LIBRARY, "redis,aws-lc-rs"),
        dependencies(LIBRARY, "redis")
    );
}

#[test]
fn command_without_console_has_no_http_server() {
    assert!(!contains(&dependencies("leasehold-cli", ""), "hyper"));
    assert!(contains(&dependencies("leasehold-cli", "console"), "hyper"));
}

fn contains(packages: &BTreeSet<String>, name: &str) -> bool {
    let prefix = format!("{name} v");
    packages.iter().any(|package| package.starts_with(&prefix))
}

/// The features that a cell names in code spans. The other words are remarks.
fn features(cell: &str) -> String {
    let spans: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
    spans.join(",")
}

/// The packages that cargo compiles besides those of leasehold.
fn dependencies(package: &str, features: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args([
            "tree",
            "--locked",
            "--package",
            package,
            "--edges",
            "no-dev",
        ])
        .args(["--no-default-features", "--features", features])
        .args(["--target", "x86_64-unknown-linux-gnu"])
        .args(["--prefix", "none", "--format", "{p}"])
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");

    let text = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
    let packages = text.lines().map(|line| line.trim_end_matches(" (*)"));
    packages
        .filter(|package| !package.is_empty() && !package.starts_with("leasehold"))
        .map(str::to_owned)
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
