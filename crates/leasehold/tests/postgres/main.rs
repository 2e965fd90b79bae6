//! Behaviour of the PostgreSQL store alone, on real servers.

// The tests wait for most of their time, but each one makes a database first.
// xtask: threads 6

#![cfg(feature = "postgres")]
#![allow(missing_docs)]

mod functions;
mod not_covered;
mod pins;
mod pooler;
mod rights;
mod servers;
mod sessions;
mod transactions;
mod upgrades;
mod urls;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lab_servers::{Postgres, PostgresSession};
use leasehold::{Error, Guard, Locks, Result, Token};
use tokio::task::JoinHandle;

/// The server of all tests that neither stop nor change their server. Each test has a database of its
/// own.
static SERVER: LazyLock<Postgres> = LazyLock::new(Postgres::start);

/// An empty database on a server.
struct Database<'a> {
    server: &'a Postgres,
    name: String,
}

impl Database<'static> {
    fn new() -> Self {
        Self::on(&SERVER)
    }
}

impl<'a> Database<'a> {
    fn on(server: &'a Postgres) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);

        let name = format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        assert!(server.run(&format!("CREATE DATABASE {name}")).is_empty());
        Self { server, name }
    }

    /// The URL for the owner of the server, without settings.
    fn url(&self) -> String {
        self.url_of("postgres")
    }

    fn url_of(&self, role: &str) -> String {
        format!("postgres://{role}@{}/{}", self.server.address(), self.name)
    }

    /// The URL for a client whose connections pass a proxy or a pooler.
    fn url_at(&self, address: &str) -> String {
        format!("postgres://postgres@{address}/{}", self.name)
    }

    fn session(&self) -> PostgresSession {
        self.session_of("postgres")
    }

    fn session_of(&self, role: &str) -> PostgresSession {
        self.server.session_as(role, &self.name)
    }

    /// Executes statements as the owner of the server.
    fn run(&self, statements: &str) -> Vec<String> {
        self.session().run(statements)
    }

    /// Creates a role that may do nothing but connect. Roles belong to the server, so each test has
    /// names of its own.
    fn role(&self, role: &str) {
        assert!(self.run(&format!("CREATE ROLE {role} LOGIN")).is_empty());
    }

    /// Makes the schema, and lets roles call its functions.
    async fn set_up(&self, roles: &[&str]) {
        let set_up = set_up(&self.url(), roles).await;
        set_up.expect("it is the owner");
    }
}

async fn set_up(url: &str, roles: &[&str]) -> Result<()> {
    let builder = leasehold::stores::Postgres::builder(url).expect("a URL");
    let roles: Vec<String> = roles.iter().map(ToString::to_string).collect();
    builder.set_up(&roles).await
}

async fn open(url: &str) -> Locks {
    leasehold::open(url).await.expect("it opens")
}

async fn open_error(url: &str) -> Error {
    leasehold::open(url).await.expect_err("it is refused")
}

async fn acquire(locks: &Locks, name: &str) -> Guard {
    locks.mutex(name).acquire().await.expect("granted")
}

/// Acquires in a task of its own, and returns once the claim waits in the queue.
async fn queue_up(locks: &Locks, name: &str) -> JoinHandle<Result<Guard>> {
    let before = waiting(locks, name).await;
    let acquiring = tokio::spawn(locks.mutex(name).acquire());
    leasehold_conformance::support::waiters(locks, name, before + 1).await;
    acquiring
}

/// Returns the hold of a task that acquires.
async fn granted(acquiring: JoinHandle<Result<Guard>>) -> Guard {
    let granted = tokio::time::timeout(TIMEOUT, acquiring).await;
    granted
        .expect("granted in time")
        .expect("it ran")
        .expect("granted")
}

async fn waiting(locks: &Locks, name: &str) -> usize {
    let lock_state = locks.inspect(name).await.expect("inspected");
    lock_state.waiters().count()
}

/// Whether a mutex is granted at once. The hold is released.
async fn is_free(locks: &Locks, name: &str) -> bool {
    match locks.mutex(name).try_acquire().await.expect("tried") {
        Ok(held) => {
            held.release().await.expect("released");
            true
        }
        Err(_) => false,
    }
}

/// Acquires and releases a lock.
async fn use_once(locks: &Locks, name: &str) -> Token {
    let held = acquire(locks, name).await;
    let token = held.token();
    held.release().await.expect("released");
    token
}

const URL: &str = "LEASEHOLD_TEST_URL";

/// Not a test: [`Program`] runs it. It acquires `a` and holds it until it is killed.
#[tokio::test]
async fn program_that_holds_a_lock() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    // Its end is noticed by its connection alone.
    leasehold::keep_no_process_file();
    match leasehold::open(&url).await {
        Ok(locks) => {
            let _held = acquire(&locks, "a").await;
            println!("\nholds");
            std::future::pending::<()>().await;
        }
        Err(error) => println!("\n{:?} {error}", error.kind()),
    }
}

/// Another process, which holds the lock `a`. Dropping it kills it.
struct Program {
    child: Child,
    /// `holds`, or the error of the process.
    outcome: String,
}

impl Program {
    fn start(url: &str, environment: &[(&str, &str)]) -> Self {
        let own = std::env::current_exe().expect("it has a path");
        let mut child = Command::new(own)
            .args(["--exact", "program_that_holds_a_lock", "--nocapture"])
            .env(URL, url)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = child.stdout.take().expect("it is a pipe");
        // The harness prints its own lines before.
        let outcome = BufReader::new(output)
            .lines()
            .map_while(std::result::Result::ok)
            .find(|line| line.starts_with(|c: char| c.is_uppercase()) || line == "holds")
            .expect("it prints its outcome");
        Self { child, outcome }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is a child");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How long a test waits for an event that must happen.
const TIMEOUT: Duration = Duration::from_secs(20);
