//! A program under test, and waiting for what it does.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use lab_servers::DEADLINE;
use leasehold::{LockState, Locks};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

/// The interval between two checks of a condition that has no notification.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A running program. Dropping it kills the program.
pub(crate) struct Program {
    child: Child,
    /// The lines of its two outputs that are not read yet.
    lines: UnboundedReceiver<String>,
}

impl Program {
    /// Starts a program, which the kernel kills when this thread ends.
    pub(crate) fn start(path: &str, settings: &[(&str, &str)]) -> Self {
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", path])
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("setpriv is installed");

        let (sender, lines) = unbounded_channel();
        send_lines(child.stdout.take().expect("it is piped"), sender.clone());
        send_lines(child.stderr.take().expect("it is piped"), sender);
        Self { child, lines }
    }

    /// Waits for the next line that begins with `start`, and returns the rest of the line.
    pub(crate) async fn line(&mut self, start: &str) -> String {
        let mut others = Vec::new();
        let found = timeout(DEADLINE, async {
            loop {
                let line = self.lines.recv().await?;
                if let Some(rest) = line.strip_prefix(start) {
                    return Some(rest.to_owned());
                }
                others.push(line);
            }
        });

        match found.await {
            Ok(Some(rest)) => rest,
            Ok(None) => panic!("the program has ended without {start:?}: {others:?}"),
            Err(limit) => panic!("{limit}: no line {start:?} in {others:?}"),
        }
    }

    /// The URL of a program that listens.
    pub(crate) async fn url(&mut self) -> String {
        format!("http://{}", self.line("listening on ").await)
    }

    /// Writes to the standard input of the program and closes it.
    pub(crate) fn send(&mut self, text: &str) {
        let mut input = self.child.stdin.take().expect("it is open");
        input.write_all(text.as_bytes()).expect("it is read");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, signal).expect("it is not reaped yet");
    }

    /// Stops the program, and waits until none of its threads runs.
    pub(crate) async fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        let threads = format!("/proc/{}/task", self.child.id());
        until("a program to be stopped", async || {
            let mut threads = fs::read_dir(&threads)
                .expect("it is not reaped yet")
                .flatten();
            let is_stopped = |thread: fs::DirEntry| {
                let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                stat.rsplit(") ")
                    .next()
                    .is_some_and(|state| state.starts_with('T'))
            };
            threads.all(is_stopped).then_some(())
        })
        .await;
    }

    /// Waits until the program has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        until("a program to end", async || {
            child.try_wait().expect("it is a child of this process")
        })
        .await
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both calls fail only if the program has ended, which is the aim.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send_lines(output: impl Read + Send + 'static, lines: UnboundedSender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // The test that reads the lines may have ended.
            let _ = lines.send(line);
        }
    });
}

/// Waits until `look` returns a value.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = timeout(DEADLINE, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(POLL_INTERVAL).await;
        }
    });
    found
        .await
        .unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Waits until the state of a lock is as `is_expected` requires.
pub(crate) async fn until_lock(locks: &Locks, name: &str, is_expected: fn(&LockState) -> bool) {
    until("the state of a lock", async || {
        let state = locks.inspect(name).await.expect("the server replies");
        is_expected(&state).then_some(())
    })
    .await;
}

/// Sends a POST request. Returns the status and the body; `None` without a reply.
pub(crate) async fn post(url: &str) -> Option<(u16, String)> {
    let reply = reqwest::Client::new().post(url).send().await.ok()?;
    let status = reply.status().as_u16();
    Some((status, reply.text().await.ok()?))
}
