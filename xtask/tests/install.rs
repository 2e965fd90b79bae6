//! What is missing, on a machine without any program.
#![allow(missing_docs)]

use std::process::{Command, Output};

#[test]
fn missing_programs_are_listed_with_their_packages() {
    let output = without_programs(&["install", "--list"]);

    let text = String::from_utf8_lossy(&output.stdout);
    for line in [
        "  git (Debian package git)",
        "  redis-server (Debian package redis-server)",
        "  clippy (component of rustup)",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn missing_parts_fail_the_installation_with_the_command_that_installs_them() {
    let output = without_programs(&["install"]);

    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    assert!(error.contains("rustup component add"), "{error}");
}

fn without_programs(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(arguments)
        .env("PATH", "/dev/null")
        .output()
        .expect("xtask was built")
}
