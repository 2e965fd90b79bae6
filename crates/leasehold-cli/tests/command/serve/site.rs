//! A running `leasehold serve`, and requests to it.

use std::io::{BufRead, BufReader};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::sandbox::{Finished, Sandbox, Started};

pub(crate) struct Site {
    process: Started,
    /// The beginning of every URL, such as `http://127.0.0.1:4711`.
    base: String,
}

pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Site {
    /// Serves the store of a sandbox on a free port.
    pub(crate) fn start(sandbox: &Sandbox, options: &[&str]) -> Self {
        let mut arguments = vec!["serve"];
        if !options.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        arguments.extend(options);

        Self::of(sandbox.started(&arguments))
    }

    /// Waits until a process listens.
    pub(crate) fn of(mut process: Started) -> Self {
        let mut line = String::new();
        BufReader::new(process.out()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://");
        let Some(address) = address else {
            panic!("{line:?}: {:?}", process.end());
        };
        let port = address.trim_end_matches('/').rsplit(':').next().unwrap();
        Self {
            process,
            base: format!("http://127.0.0.1:{port}"),
        }
    }

    /// Stops serving, and returns what was printed after the address.
    pub(super) fn stop(self) -> Finished {
        self.process.signal(Signal::SIGTERM);
        self.process.wait()
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Returns the address and port of the server.
    pub(super) fn address(&self) -> &str {
        self.base.trim_start_matches("http://")
    }

    /// Sends a request with further options of curl.
    pub(super) fn curl(&self, path: &str, options: &[&str]) -> Reply {
        let mut curl = curl(&self.url(path));
        let output = curl.arg("--include").args(options).output().unwrap();
        assert!(output.status.success(), "{path}: {output:?}");

        let text = String::from_utf8(output.stdout).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap();
        Reply {
            status: status.parse().unwrap(),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    /// Returns the body of any reply.
    pub(crate) fn get(&self, path: &str) -> String {
        self.curl(path, &[]).body
    }

    /// Returns the names of the locks.
    pub(crate) fn locks(&self, query: &str) -> Vec<String> {
        let reply: Value = serde_json::from_str(&self.get(&format!("/locks{query}"))).unwrap();

        let locks = reply["locks"].as_array().unwrap();
        locks
            .iter()
            .map(|lock| lock["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

pub(super) fn curl(url: &str) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "60", url]);
    curl
}
