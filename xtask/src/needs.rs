//! What the chores need from the machine besides Rust.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{jars, wheels};

/// A program or a file, how to ask whether it is there, and the Debian package that has it.
struct Need {
    program: &'static str,
    asked: &'static str,
    package: &'static str,
}

const PROGRAMS: [Need; 20] = [
    Need { program: "flock", asked: "--version", package: "util-linux" },
    Need { program: "unshare", asked: "--version", package: "util-linux" },
    Need { program: "script", asked: "--version", package: "bsdutils" },
    // A FUSE file system, which the file store must refuse.
    Need { program: "bindfs", asked: "--version", package: "bindfs" },
    // What starts servers for tests, and what they are.
    Need { program: "setpriv", asked: "--version", package: "util-linux" },
    Need { program: "taskset", asked: "--version", package: "util-linux" },
    Need { program: "openssl", asked: "version", package: "openssl" },
    Need { program: "redis-server", asked: "--version", package: "redis-server" },
    Need { program: "java", asked: "-version", package: "default-jre-headless" },
    Need { program: "/usr/share/java/zookeeper.jar", asked: "", package: "libzookeeper-java" },
    // A database whose tables refuse late writers.
    Need { program: "/usr/lib/postgresql", asked: "", package: "postgresql" },
    // What contends with us for locks on ZooKeeper.
    Need { program: "javac", asked: "-version", package: "default-jdk-headless" },
    Need { program: "/usr/share/java/curator-recipes.jar", asked: "", package: "libcurator-recipes-java" },
    // What makes a clock that tests can set.
    Need { program: "cc", asked: "--version", package: "gcc" },
    // What fetches other servers.
    Need { program: "pip3", asked: "--version", package: "python3-pip" },
    Need { program: "curl", asked: "--version", package: "curl" },
    // By which it knows whom it fetches from.
    Need { program: "/etc/ssl/certs/ca-certificates.crt", asked: "", package: "ca-certificates" },
    // What runs libraries that locks are shared with.
    Need { program: "node", asked: "--version", package: "nodejs" },
    Need { program: "npm", asked: "--version", package: "npm" },
    Need { program: "go", asked: "version", package: "golang-go" },
];
/// Debian starts these when they are installed. The tests start their own, so a new one would only be in the way.
const SERVICES: [&str; 2] = ["redis-server", "postgresql"];
/// Parts of the Rust toolchain: the program and the component of rustup.
const COMPONENTS: [(&str, &str); 2] = [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")];

/// Installs what is missing, or says what to install.
pub(crate) fn meet() -> Result<()> {
    for (program, component) in COMPONENTS {
        if !has(program, "--version") {
            run("rustup", &["component", "add", component])?;
        }
    }
    let missing: Vec<&Need> = PROGRAMS.iter().filter(|need| !need.is_met()).collect();
    if !missing.is_empty() {
        install(&missing)?;
    }
    wheels::fetch()?;
    jars::fetch()
}

impl Need {
    /// What is asked nothing is no program, but a file that must be there.
    fn is_met(&self) -> bool {
        if self.asked.is_empty() { Path::new(self.program).exists() } else { has(self.program, self.asked) }
    }
}

/// Whether a program is there and answers.
pub(crate) fn has(program: &str, asked: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(asked).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn install(missing: &[&Need]) -> Result<()> {
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    if !is_root() || !has("apt-get", "--version") {
        let programs: Vec<&str> = missing.iter().map(|need| need.program).collect();
        let (programs, packages) = (programs.join(", "), packages.join(" "));
        bail!("{programs} missing; on Debian: sudo apt-get install {packages}");
    }
    run("apt-get", &["update", "--quiet"])?;
    run("apt-get", &[&["install", "--yes", "--no-install-recommends"], packages.as_slice()].concat())?;
    missing.iter().filter(|need| SERVICES.contains(&need.package)).for_each(|need| stop_service(need.package));
    let still = missing.iter().find(|need| !need.is_met());
    ensure!(still.is_none(), "{} is still missing", still.map_or("", |need| need.program));
    Ok(())
}

/// In a container it was never started, and a machine where it cannot be stopped can be tested on too.
fn stop_service(service: &str) {
    let mut stop = Command::new("service");
    let _ = stop.args([service, "stop"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

fn is_root() -> bool {
    let told = Command::new("id").arg("-u").output();
    told.is_ok_and(|told| told.stdout.trim_ascii() == b"0")
}

pub(crate) fn run(program: &str, args: &[&str]) -> Result<()> {
    let line = format!("{program} {}", args.join(" "));
    println!("xtask: {line}");
    let status = Command::new(program).args(args).stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {line}"))?;
    ensure!(status.success(), "{line} failed ({status})");
    Ok(())
}
