//! Programs started, which do not outlive who started them.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::Clock;
use crate::until;

/// A running program. Dropping it kills it, and so does the kernel when this process ends in any way.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    name: String,
    process: process::Child,
}

/// What a program is given besides its arguments.
pub(crate) struct Environment<'a> {
    /// The one CPU it runs on, if not any.
    pub(crate) cpu: Option<usize>,
    /// Its wall clock, if not the machine's.
    pub(crate) clock: Option<&'a Clock>,
}

impl ServerProcess {
    /// Starts a program with what it says appended to a file.
    pub(crate) fn start(
        program: &Program,
        args: &[&str],
        around: &Environment<'_>,
        output: &Path,
    ) -> Self {
        program.must_be_there();
        let output = File::options()
            .create(true)
            .append(true)
            .open(output)
            .expect("its folder is there");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(cpu) = around.cpu {
            command.args(["taskset", "-c", &cpu.to_string()]);
        }
        command.envs(around.clock.into_iter().flat_map(Clock::environment));
        command.arg(&program.name).args(args).stdin(Stdio::null());
        command
            .stdout(output.try_clone().expect("a file can be opened twice"))
            .stderr(output);
        let process =
            spawn(command).unwrap_or_else(|e| panic!("cannot start {}: {e}", program.name));
        Self {
            name: program.name.clone(),
            process,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process
            .try_wait()
            .expect("nobody else waits for this child")
    }

    /// Ends it by SIGKILL, unless it is dead.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("one may kill one's own child");
        self.process
            .wait()
            .expect("nobody else waits for this child");
    }

    /// Asks it to end, by SIGTERM, and waits until it did.
    pub(crate) fn terminate(&mut self) {
        if self.ended().is_some() {
            return;
        }
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
        let what = format!("{} to end after SIGTERM", self.name);
        until(&what, || Ok(self.ended())).expect("a server asked to end does");
    }

    /// Stops it, as `kill -STOP` does, and waits until it stands still.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        until("a process to be stopped", || {
            Ok(self.state()?.starts_with('T').then_some(()))
        })
        .expect("a living process can be stopped");
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("a process has a number");
        kill_process(pid, signal)
            .unwrap_or_else(|e| panic!("{} cannot be signalled: {e}", self.name));
    }

    /// The word after the program's name in parentheses, and all that follows.
    fn state(&self) -> io::Result<String> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        Ok(stat.rsplit(") ").next().unwrap_or_default().to_owned())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may be dead and buried already, which is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program that is installed or was fetched.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Its name, or the path of its file.
    pub(crate) name: String,
    /// The Debian package that has it, if one does.
    package: Option<&'static str>,
}

impl Program {
    pub(crate) fn installed(name: &str, package: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            package: Some(package),
        }
    }

    pub(crate) fn fetched(file: &Path) -> Self {
        Self {
            name: file.display().to_string(),
            package: None,
        }
    }

    /// Panics with what to do about it if the program is missing.
    pub(crate) fn must_be_there(&self) {
        let name = &self.name;
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path).any(|folder| folder.join(name).is_file());
        let or = self
            .package
            .map(|package| format!(", or `apt-get install {package}`"))
            .unwrap_or_default();
        assert!(
            found,
            "{name} is missing: run `cargo xtask test`, which sees to it{or}"
        );
    }
}

type Start = (Command, Sender<io::Result<process::Child>>);

/// A parent's death signal comes when the *thread* dies that started the child. So one thread starts them all, and lives
/// as long as the process; a server may be shared by tests whose threads come and go.
fn spawn(command: Command) -> io::Result<process::Child> {
    static PARENT: LazyLock<Sender<Start>> = LazyLock::new(|| {
        let (sender, orders) = channel::<Start>();
        let parent = move || {
            for (mut command, reply) in orders {
                reply
                    .send(command.spawn())
                    .expect("who ordered waits for the answer");
            }
        };
        thread::Builder::new()
            .name("parent".into())
            .spawn(parent)
            .expect("a thread can be started");
        sender
    });
    let (reply, started) = channel();
    PARENT
        .send((command, reply))
        .expect("the thread lives as long as the process");
    started.recv().expect("every order is answered")
}
