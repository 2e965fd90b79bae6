//! The sandbox of a test: a folder, a store, and the built program.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab_servers::Redis;
use leasehold::blocking::Guard;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// Far longer than any step of these tests takes, on any machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The shortest and the longest pause between two looks at a condition.
const POLL_MIN: Duration = Duration::from_millis(5);
const POLL_MAX: Duration = Duration::from_millis(100);

/// A store, and a folder for other files beside it.
pub(crate) struct Sandbox {
    folder: TempDir,
    server: Option<Redis>,
    /// The store's URL, if the store is neither in the folder nor on `server`.
    elsewhere: Option<String>,
    settings: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            server: None,
            elsewhere: None,
            settings: String::new(),
        }
    }

    /// Creates a sandbox whose store is a Redis server of its own.
    pub(crate) fn on_redis() -> Self {
        Self::on(Redis::start())
    }

    /// Creates a sandbox whose store is at a URL.
    pub(crate) fn at(url: String) -> Self {
        Self {
            elsewhere: Some(url),
            ..Self::new()
        }
    }

    /// Creates a sandbox whose store is on this server.
    pub(crate) fn on(server: Redis) -> Self {
        Self {
            server: Some(server),
            ..Self::new()
        }
    }

    pub(crate) fn server(&self) -> &Redis {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn server_mut(&mut self) -> &mut Redis {
        self.server.as_mut().unwrap()
    }

    /// Sets the only setting of the URL.
    pub(crate) fn set(&mut self, setting: &str) {
        self.settings = format!("?{setting}");
    }

    /// Counts the connections that are subscribed to a channel.
    pub(crate) fn subscribers(&self) -> i64 {
        let channels = self.server().command(&["PUBSUB", "CHANNELS"]);
        let counts = channels
            .texts()
            .into_iter()
            .map(|channel| self.server().command(&["PUBSUB", "NUMSUB", channel]).list()[1].int());
        counts.sum()
    }

    pub(crate) fn url(&self) -> String {
        match (&self.server, &self.elsewhere) {
            (Some(server), _) => format!("{}{}", server.url(), self.settings),
            (None, Some(url)) => format!("{url}{}", self.settings),
            (None, None) => format!("file:{}", self.path("store").display()),
        }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Builds a start of leasehold in the folder, with the store in its environment.
    pub(crate) fn leasehold<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
            .env("LEASEHOLD_STORE", self.url())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env_remove("LEASEHOLD_HELD")
            .env_remove("LEASEHOLD_LOG");
        command
    }

    /// Runs leasehold to its end.
    pub(crate) fn done<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Finished {
        self.leasehold(arguments).output().unwrap().into()
    }

    /// Returns whether flock(1) can lock the file of a name.
    pub(crate) fn flock(&self, name: &str) -> bool {
        let file = self.path("store").join(format!("{name}.lock"));
        Command::new("flock")
            .arg("-n")
            .arg(file)
            .arg("true")
            .status()
            .unwrap()
            .success()
    }

    /// Starts leasehold with pipes for all its standard streams.
    pub(crate) fn started<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Started {
        Started::of(&mut self.leasehold(arguments))
    }

    /// Starts a run of `name` that holds until its standard input ends, and waits for its grant.
    pub(crate) fn holder(&self, name: &str, options: &[&str]) -> Started {
        let before = self.holders(name).len();
        let holder = self.started(&[&["run", name, "--quiet"], options, &["--", "cat"]].concat());
        until("the run holds the lock", || {
            self.holders(name).len() > before
        });
        holder
    }

    /// Holds a name in this process by the library, which takes any name.
    pub(crate) fn held_by_library(&self, name: &str, label: &str) -> Guard {
        let locks = leasehold::blocking::open(&self.url()).unwrap();
        locks.mutex(name).label(label).acquire().unwrap()
    }

    /// Starts a run that has to wait, and waits until it is queued.
    pub(crate) fn waiter(&self, arguments: &[&str]) -> Started {
        let name = arguments[1];
        let before = self.waiters(name).len();
        let waiter = self.started(arguments);
        until("the run is queued", || self.waiters(name).len() > before);
        waiter
    }

    pub(crate) fn show(&self, name: &str) -> Value {
        let done = self.done(&["show", "--json", "--", name]);
        assert_eq!((done.code(), done.err.as_str()), (0, ""));
        serde_json::from_str(&done.out).unwrap()
    }

    pub(crate) fn holders(&self, name: &str) -> Vec<Value> {
        self.show(name)["holders"].as_array().unwrap().clone()
    }

    pub(crate) fn waiters(&self, name: &str) -> Vec<Value> {
        self.show(name)["waiters"].as_array().unwrap().clone()
    }

    /// Returns the token of the only holder.
    pub(crate) fn token(&self, name: &str) -> String {
        let holders = self.holders(name);
        assert_eq!(holders.len(), 1, "{holders:?}");
        holders[0]["token"].as_str().unwrap().to_owned()
    }

    pub(crate) fn is_free(&self, name: &str) -> bool {
        self.holders(name).is_empty() && self.waiters(name).is_empty()
    }

    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap_or_default()
    }

    /// Waits until a command has written its process id into a file, and returns it.
    pub(crate) fn pid(&self, file: &str) -> Pid {
        until("the command has written its process id", || {
            self.read(file).ends_with('\n')
        });
        Pid::from_raw(self.read(file).trim().parse().unwrap())
    }

    pub(crate) fn touch(&self, file: &str) {
        File::create(self.path(file)).unwrap();
    }
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            status: output.status,
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

impl Finished {
    /// Returns the exit code. Panics if a signal ended the process.
    #[track_caller]
    pub(crate) fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| panic!("ended by signal {:?}: {self:?}", self.status.signal()))
    }

    /// Asserts that the signal ended the process, and what it has printed.
    #[track_caller]
    pub(crate) fn assert_signal(&self, signal: Signal, err_has: &str) {
        assert_eq!(self.status.signal(), Some(signal as i32), "{self:?}");
        assert!(!self.status.core_dumped(), "{self:?}");
        assert!(
            self.err.contains(err_has) && (!err_has.is_empty() || self.err.is_empty()),
            "{self:?}"
        );
    }

    #[track_caller]
    pub(crate) fn assert(&self, code: i32, out: &str, err_has: &str) {
        assert_eq!(self.code(), code, "{self:?}");
        assert_eq!(self.out, out, "{self:?}");
        assert!(
            self.err.contains(err_has) && (!err_has.is_empty() || self.err.is_empty()),
            "{self:?}"
        );
    }

    /// Checks that `ls` has listed these names.
    #[track_caller]
    pub(crate) fn assert_names(&self, names: &[&str]) {
        assert_eq!(self.code(), 0, "{self:?}");
        let rows = self.out.lines().skip(1);
        let listed: Vec<&str> = rows.filter_map(|row| row.split(' ').next()).collect();
        assert_eq!(listed, names, "{self:?}");
    }
}

/// A running process, which is killed when its test ends.
pub(crate) struct Started {
    child: Option<Child>,
}

impl From<Child> for Started {
    fn from(child: Child) -> Self {
        Self { child: Some(child) }
    }
}

impl Started {
    pub(crate) fn is_running(&mut self) -> bool {
        self.child_mut().try_wait().unwrap().is_none()
    }

    /// Starts a command with pipes for all its standard streams.
    pub(crate) fn of(command: &mut Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self {
            child: Some(command.spawn().unwrap()),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child().id().try_into().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Takes the standard output, to read from it while the process runs.
    pub(crate) fn out(&mut self) -> ChildStdout {
        self.child_mut().stdout.take().unwrap()
    }

    /// Closes the standard input, which ends `cat`, and waits for the end of the process.
    pub(crate) fn end(mut self) -> Finished {
        drop(self.child_mut().stdin.take());
        self.wait()
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(mut self) -> Finished {
        let mut child = self.child.take().unwrap();
        let stdin = child.stdin.take();
        let done = child.wait_with_output().unwrap().into();
        drop(stdin);
        done
    }

    /// Reads standard error until a line contains `text`, and returns that line.
    pub(crate) fn wait_for_output(&mut self, text: &str) -> String {
        let stderr = self.child_mut().stderr.as_mut().unwrap();
        let mut lines = BufReader::with_capacity(1, stderr)
            .lines()
            .map(Result::unwrap);
        lines
            .find(|line| line.contains(text))
            .unwrap_or_else(|| panic!("no line of standard error contains {text:?}"))
    }

    fn child(&self) -> &Child {
        self.child.as_ref().unwrap()
    }

    fn child_mut(&mut self) -> &mut Child {
        self.child.as_mut().unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Polls a condition until it is true.
///
/// Many conditions start a process. So the longer a condition takes, the less often it is polled:
/// the tests beside this one need the processor.
#[track_caller]
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        let waited = begun.elapsed();
        assert!(waited < TIMEOUT, "timed out: {what}");
        sleep((waited / 8).clamp(POLL_MIN, POLL_MAX));
    }
}

/// Returns whether a process runs. A zombie does not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    state(pid).is_some_and(|state| !['Z', 'X'].contains(&state))
}

pub(crate) fn is_stopped(pid: Pid) -> bool {
    state(pid) == Some('T')
}

/// The letter of a process's state in /proc.
fn state(pid: Pid) -> Option<char> {
    let stat = Path::new("/proc").join(pid.to_string()).join("stat");
    let stat = std::fs::read(stat).ok()?;
    // A name may have been cut inside a character.
    let stat = String::from_utf8_lossy(&stat);
    stat.rsplit_once(") ")?.1.chars().next()
}
