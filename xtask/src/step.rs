//! One command of a chore.

use std::env;
use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// A command with a name for people.
pub(crate) struct Step {
    name: String,
    program: OsString,
    args: Vec<String>,
    env: Vec<(&'static str, &'static str)>,
}

impl Step {
    /// A cargo command; `line` is split at spaces.
    pub(crate) fn cargo(name: &str, line: &str) -> Self {
        Self { name: name.to_owned(), program: cargo(), args: Vec::new(), env: Vec::new() }.args(line)
    }

    pub(crate) fn args(mut self, line: &str) -> Self {
        self.args.extend(line.split_whitespace().map(str::to_owned));
        self
    }

    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.env.push((name, value));
        self
    }

    /// Runs it and says how long it took.
    ///
    /// # Errors
    /// With the command that repeats it.
    pub(crate) fn run(self) -> Result<()> {
        println!("xtask: {} …", self.name);
        let begun = Instant::now();
        self.run_quietly()?;
        println!("xtask: {} passed in {} s", self.name, begun.elapsed().as_secs());
        Ok(())
    }

    /// Runs it, and says nothing of its own.
    ///
    /// # Errors
    /// With the command that repeats it.
    pub(crate) fn run_quietly(&self) -> Result<()> {
        let mut command = with_all_signals(&self.program);
        command.args(&self.args).envs(self.env.iter().copied()).stdin(Stdio::null());
        let status = command.status().with_context(|| format!("cannot run {}", self.line()))?;
        if !status.success() {
            bail!("{} failed ({status}); to repeat it:\n  {}", self.name, self.line());
        }
        Ok(())
    }

    /// As it would be typed.
    fn line(&self) -> String {
        let env = self.env.iter().map(|(name, value)| format!("{name}={} ", quoted(value)));
        let args = self.args.iter().map(|arg| format!(" {}", quoted(arg)));
        env.chain(["cargo".to_owned()]).chain(args).collect()
    }
}

/// What was started with signals ignored, as nohup(1) and shells in the background do, would pass that on to every
/// process of every test, and a signal that a test sends would do nothing. GNU's env(1) takes it back.
fn with_all_signals(program: &OsStr) -> Command {
    const RESET: &str = "--default-signal";
    let mut asked = Command::new("env");
    asked.args([RESET, "true"]).stderr(Stdio::null());
    if !asked.status().is_ok_and(|status| status.success()) {
        return Command::new(program);
    }
    let mut command = Command::new("env");
    command.arg(RESET).arg(program);
    command
}

/// The cargo that runs this.
pub(crate) fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn quoted(text: &str) -> String {
    if text.is_empty() || text.contains(' ') { format!("'{text}'") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_can_be_typed() {
        let step = Step::cargo("docs", "doc --features").arg("").env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(step.line(), "RUSTDOCFLAGS='-D warnings' cargo doc --features ''");
    }
}
