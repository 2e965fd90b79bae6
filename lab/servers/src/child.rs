//! Child processes that end no later than the process that started them.

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

/// A running program. Dropping it kills the program. The kernel also kills the program when this
/// process ends in any way.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    name: String,
    process: process::Child,
}

/// The settings of a program besides its arguments.
pub(crate) struct Environment<'a> {
    /// The one CPU that the program runs on. `None` allows every CPU.
    pub(crate) cpu: Option<usize>,
    /// The program's wall clock. `None` is the machine's clock.
    pub(crate) clock: Option<&'a Clock>,
}

impl ServerProcess {
    /// Starts a program and appends its output to a file.
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
            .expect("the folder of the output file exists");
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

    /// The exit status, if the program has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process
            .try_wait()
            .expect("only this object waits for the child")
    }

    /// Ends the program by SIGKILL, unless it has already ended.
    pub(crate) fn kill(&mut self) {
        self.process
            .kill()
            .expect("a process may kill its own child");
        self.process
            .wait()
            .expect("only this object waits for the child");
    }

    /// Stops the program, as `kill -STOP` does, and waits until the kernel reports it as stopped.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        until("a process to be stopped", || {
            Ok(self.state()?.starts_with('T').then_some(()))
        })
        .expect("a living process can be stopped");
    }

    /// Continues the program, as `kill -CONT` does.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("the id of a process is positive");
        kill_process(pid, signal)
            .unwrap_or_else(|e| panic!("cannot send a signal to {}: {e}", self.name));
    }

    /// The part of `/proc/PID/stat` after the program's name in parentheses. It begins with the
    /// state of the process.
    fn state(&self) -> io::Result<String> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        Ok(stat.rsplit(") ").next().unwrap_or_default().to_owned())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended, which is the aim.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program that is installed or was fetched by `cargo xtask test`.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The name of the program, or the path of its file.
    pub(crate) name: String,
    /// The Debian package that contains the program, if there is one.
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

    /// Panics if the program is missing. The message says how to install it.
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
            "{name} is missing: run `cargo xtask test`, which installs it{or}"
        );
    }
}

type Start = (Command, Sender<io::Result<process::Child>>);

/// Starts a child process from one thread that lives as long as this process.
///
/// The kernel sends the parent's death signal when the *thread* that started the child ends.
/// Several tests may share one server, and the threads of tests end earlier than the process. So
/// one thread starts all children.
fn spawn(command: Command) -> io::Result<process::Child> {
    static PARENT: LazyLock<Sender<Start>> = LazyLock::new(|| {
        let (sender, orders) = channel::<Start>();
        let parent = move || {
            for (mut command, reply) in orders {
                reply
                    .send(command.spawn())
                    .expect("the caller waits for the reply");
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
    started.recv().expect("the thread replies to every order")
}
