//! A headless Chromium, driven by its debugging protocol.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket, client};

use crate::sandbox::until;

pub(super) struct Browser {
    process: Child,
    socket: WebSocket<TcpStream>,
    session: Option<String>,
    last_id: u64,
    _profile: TempDir,
}

impl Browser {
    /// Starts the browser and opens a page.
    pub(super) fn open(url: &str) -> Self {
        let profile = TempDir::new().unwrap();
        let mut process = Command::new("chromium")
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-dev-shm-usage", "--remote-debugging-port=0"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let address = debugging_address(&mut process);
        let host = address.strip_prefix("ws://").unwrap();
        let stream = TcpStream::connect(host.split('/').next().unwrap()).unwrap();
        let (socket, _) = client(address.as_str(), stream).unwrap();

        let mut browser = Self {
            process,
            socket,
            session: None,
            last_id: 0,
            _profile: profile,
        };
        browser.attach(url);
        browser
    }

    fn attach(&mut self, url: &str) {
        let target = self.call("Target.createTarget", &json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call("Target.attachToTarget", &target);
        self.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        self.call("Page.enable", &json!({}));
        self.call("Page.navigate", &json!({"url": url}));
    }

    /// Sends a command and returns its result.
    pub(super) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last_id += 1;
        let mut command = json!({"id": self.last_id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.socket
            .send(Message::text(command.to_string()))
            .unwrap();

        loop {
            let message = self.socket.read().unwrap().into_text().unwrap();
            let reply: Value = serde_json::from_str(&message).unwrap();
            if reply["id"] == self.last_id {
                assert_eq!(reply["error"], Value::Null, "{method}");
                return reply["result"].clone();
            }
        }
    }

    /// Evaluates an expression of the page.
    pub(super) fn value(&mut self, expression: &str) -> Value {
        let result = self.evaluate(expression);
        assert_eq!(result["exceptionDetails"], Value::Null, "{expression}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression of the page is true. It fails while the page is being loaded.
    #[track_caller]
    pub(super) fn wait_for(&mut self, expression: &str) {
        until(expression, || {
            self.evaluate(expression)["result"]["value"] == true
        });
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true});
        self.call("Runtime.evaluate", &parameters)
    }

    /// Returns what the window shows, as a PNG.
    pub(super) fn picture(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", &json!({"format": "png"}));
        let mut decoder = Command::new("base64")
            .arg("--decode")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = decoder.stdin.take().unwrap();
        let text = picture["data"].as_str().unwrap().to_owned();
        let writing = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
        let output = decoder.wait_with_output().unwrap();
        writing.join().unwrap();
        output.stdout
    }

    /// Presses the keys of a text, one after the other.
    pub(super) fn press(&mut self, text: &str) {
        for key in text.chars() {
            self.call("Input.insertText", &json!({"text": key.to_string()}));
        }
    }

    /// Presses a key that has a name.
    pub(super) fn press_key(&mut self, key: &str, code: u32) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "text": text,
                "windowsVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", &event);
        }
    }
}

/// Reads the address that the browser prints on standard error.
fn debugging_address(process: &mut Child) -> String {
    let stderr = BufReader::new(process.stderr.take().unwrap());
    let mut lines = stderr.lines().map(Result::unwrap);
    let address = lines.find_map(|line| {
        let address = line.strip_prefix("DevTools listening on ")?;
        Some(address.to_owned())
    });
    // The browser ends when nothing reads what it prints.
    std::thread::spawn(move || lines.for_each(drop));
    address.expect("the browser prints its address")
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
