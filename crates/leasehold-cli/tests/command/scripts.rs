//! Scripts that use leasehold, and holds without a command.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use nix::unistd::Pid;

use crate::sandbox::{Finished, Sandbox, Started};

pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_leasehold");

impl Sandbox {
    /// Builds a start of a script that finds leasehold in its PATH. A shell may have arguments.
    pub(crate) fn script(&self, shell: &str, text: &str) -> Command {
        let folder = std::path::Path::new(BIN).parent().unwrap().display();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap());

        let mut words = shell.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .args(["-c", text])
            .current_dir(self.path(""))
            .stdin(Stdio::null())
            .env("PATH", path)
            .env("LEASEHOLD_STORE", self.url())
            .env("XDG_RUNTIME_DIR", self.path(""))
            .env_remove("LEASEHOLD_HELD")
            .env_remove("LEASEHOLD_LOG");
        command
    }

    pub(crate) fn run_script(&self, shell: &str, text: &str) -> Finished {
        self.script(shell, text).output().unwrap().into()
    }

    pub(crate) fn start_script(&self, text: &str) -> Started {
        let mut script = self.script("sh", text);
        script.stdout(Stdio::piped()).stderr(Stdio::piped());
        Started::from(script.spawn().unwrap())
    }

    /// Returns the process id of the only holder.
    pub(crate) fn holder_pid(&self, name: &str) -> Pid {
        let pid = self.holders(name)[0]["pid"].as_i64().unwrap();
        Pid::from_raw(pid.try_into().unwrap())
    }
}

/// Starts a hold and reads the token that it prints.
pub(crate) fn holding(sandbox: &Sandbox, arguments: &[&str]) -> (Started, String) {
    let mut hold = sandbox.started(&[&["hold"], arguments].concat());
    let mut token = String::new();
    BufReader::new(hold.out()).read_line(&mut token).unwrap();
    (hold, token.trim().to_owned())
}
