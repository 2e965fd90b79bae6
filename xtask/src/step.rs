//! One command that a task runs.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::repository;

/// A command with a name. It runs in the folder of the workspace unless it has another one.
pub(crate) struct Step {
    name: String,
    program: OsString,
    args: Vec<String>,
    env: Vec<(String, String)>,
    folder: PathBuf,
}

impl Step {
    /// A cargo command; `args` is split at spaces.
    pub(crate) fn cargo(name: &str, args: &str) -> Self {
        Self::new(name, cargo()).args(args.split_whitespace())
    }

    /// A command whose name is its program.
    pub(crate) fn program(program: &str) -> Self {
        Self::new(program, program.into())
    }

    fn new(name: &str, program: OsString) -> Self {
        Self {
            name: name.to_owned(),
            program,
            args: Vec::new(),
            env: Vec::new(),
            folder: repository::root(),
        }
    }

    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub(crate) fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.args.extend(args.into_iter().map(str::to_owned));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn folder(mut self, folder: &Path) -> Self {
        folder.clone_into(&mut self.folder);
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs the command and prints its command line before.
    ///
    /// # Errors
    /// Names the step and the command that repeats it.
    pub(crate) fn run_printed(&self) -> Result<()> {
        println!("xtask: {}", self.command_line());

        self.run()
    }

    /// Runs the command.
    ///
    /// # Errors
    /// Names the step and the command that repeats it.
    pub(crate) fn run(&self) -> Result<()> {
        self.run_as(self.command())
    }

    /// Runs the command and writes its output to a file, in the order in which it is printed.
    ///
    /// # Errors
    /// Names the step and the command that repeats it.
    pub(crate) fn run_into(&self, file: &File) -> Result<()> {
        let mut command = self.command();
        command.stdout(file.try_clone()?).stderr(file.try_clone()?);

        self.run_as(command)
    }

    /// Runs the command and returns its exit code.
    ///
    /// # Errors
    /// Names the step and the command that repeats it, if it did not start or a signal ended it.
    pub(crate) fn code(&self) -> Result<i32> {
        let status = self.command().status();
        let status = status.with_context(|| self.failure("did not start"))?;

        status
            .code()
            .with_context(|| self.failure(&format!("failed ({status})")))
    }

    fn run_as(&self, mut command: Command) -> Result<()> {
        let status = command
            .status()
            .with_context(|| self.failure("did not start"))?;

        if !status.success() {
            bail!(self.failure(&format!("failed ({status})")));
        }
        Ok(())
    }

    /// Runs the command and returns what it writes to standard output.
    ///
    /// # Errors
    /// Names the step and the command that repeats it.
    pub(crate) fn output(&self) -> Result<String> {
        let output = self
            .command()
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| self.failure("did not start"))?;

        if !output.status.success() {
            bail!(self.failure(&format!("failed ({})", output.status)));
        }
        String::from_utf8(output.stdout).with_context(|| self.failure("did not print UTF-8"))
    }

    fn command(&self) -> Command {
        let mut command = with_default_signals(&self.program);

        command
            .args(&self.args)
            .envs(self.env.iter().cloned())
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        command
    }

    fn failure(&self, outcome: &str) -> String {
        format!(
            "step `{}` {outcome}; to repeat it:\n  {}",
            self.name,
            self.command_line()
        )
    }

    /// The command as a user types it in a shell.
    pub(crate) fn command_line(&self) -> String {
        let program = match self.program.to_string_lossy() {
            path if self.program == cargo() && path.contains('/') => "cargo".to_owned(),
            program => quoted(&program),
        };
        let env = self
            .env
            .iter()
            .map(|(name, value)| format!("{name}={} ", quoted(value)));
        let args = self.args.iter().map(|arg| format!(" {}", quoted(arg)));

        env.chain([program]).chain(args).collect()
    }
}

/// A command that receives all signals.
///
/// nohup(1) and background jobs of a shell ignore some signals. Every process of every test would
/// inherit that, and a signal that a test sends would have no effect. env(1) of GNU resets it.
fn with_default_signals(program: &OsString) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(program);
    command
}

/// Whether a program exists and exits with success for these arguments.
pub(crate) fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());

    command.status().is_ok_and(|status| status.success())
}

/// The cargo that runs xtask.
pub(crate) fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);

    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_quoted_for_a_shell() {
        let step = Step::cargo("docs", "doc --features")
            .arg("")
            .env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(
            step.command_line(),
            "RUSTDOCFLAGS='-D warnings' cargo doc --features ''"
        );

        let step = Step::program("echo").arg("it's $HOME");
        assert_eq!(step.command_line(), r"echo 'it'\''s $HOME'");
    }

    #[test]
    fn failure_names_the_step_and_the_command() {
        let error = Step::program("false")
            .arg("x")
            .run()
            .expect_err("false(1) fails");

        assert_eq!(
            error.to_string(),
            "step `false` failed (exit status: 1); to repeat it:\n  false x"
        );
    }

    #[test]
    fn output_of_failed_step_is_an_error() -> Result<()> {
        assert_eq!(Step::program("echo").arg("a").output()?, "a\n");
        Step::program("false").output().expect_err("false(1) fails");
        Ok(())
    }
}
