//! Services of systemd: sockets that it passes, its watchdog, and its sandboxing options.

mod options;

use std::iter;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;

use crate::recipes::exec_start;
use crate::sandbox::{Sandbox, Started, until};

/// Prints what libsystemd finds in its process: the count of sockets, the name of the first one,
/// and whether a watchdog waits. Then reports that it is ready.
const PROGRAM: &str = "
import ctypes, os, socket
systemd = ctypes.CDLL('libsystemd.so.0')
listens = systemd.sd_listen_fds(0)
name = socket.socket(fileno=3).getsockname() if listens > 0 else ''
print(listens, os.path.basename(name), systemd.sd_watchdog_enabled(0, None))
systemd.sd_notify(0, b'READY=1')
";

/// Runs `line` as a service with a socket and a watchdog. `$@` is the program.
///
/// Returns its output, and the messages that systemd gets.
fn service(sandbox: &Sandbox, line: &str) -> (String, Vec<String>) {
    std::fs::write(sandbox.path("program.py"), PROGRAM).unwrap();
    let socket = sandbox.path("socket");
    let notifications = UnixDatagram::bind(sandbox.path("notify")).unwrap();
    let line =
        format!("export WATCHDOG_PID=$$ WATCHDOG_USEC=1000000 NOTIFY_SOCKET=$PWD/notify; {line}");

    let mut activate = Command::new("systemd-socket-activate");
    activate
        .arg("-l")
        .arg(&socket)
        .args(["-E", "LEASEHOLD", "-E", "LEASEHOLD_STORE"])
        .args(["sh", "-c", &line, "sh", "python3", "program.py"])
        .current_dir(sandbox.path(""))
        .env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"))
        .env("LEASEHOLD_STORE", sandbox.url());
    let service = Started::of(&mut activate);
    // The first connection starts the service.
    until("the socket is open", || {
        UnixStream::connect(&socket).is_ok()
    });
    let out = service.wait().out;

    notifications.set_nonblocking(true).unwrap();
    let mut message = [0; 256];
    let messages = iter::from_fn(|| {
        let len = notifications.recv(&mut message).ok()?;
        Some(String::from_utf8_lossy(&message[..len]).into_owned())
    });
    (out, messages.collect())
}

/// Only the command sends messages: it knows when it is ready.
#[test]
fn command_gets_the_sockets_the_watchdog_and_the_notifications_of_its_service() {
    let command = exec_start("app.service")
        .replace("/usr/bin/leasehold", "$LEASEHOLD")
        .replace("/usr/local/bin/app", "\"$@\"");
    for sandbox in [Sandbox::new(), Sandbox::on_redis()] {
        let (out, messages) = service(&sandbox, &format!("exec {command}"));
        assert_eq!(out, "1 socket 1\n", "{}", sandbox.url());
        assert_eq!(messages, ["READY=1"], "{}", sandbox.url());
    }
}

/// They name a process that has not become leasehold.
#[test]
fn variables_that_name_another_process_stay_as_they_are() {
    for sandbox in [Sandbox::new(), Sandbox::on_redis()] {
        let line = "$LEASEHOLD run a -- sh -c 'test $LISTEN_PID = $WATCHDOG_PID && \
                    test $LISTEN_PID = $0 && exec \"$@\"' $$ \"$@\"";
        assert_eq!(service(&sandbox, line).0, "0  0\n", "{}", sandbox.url());
    }
}
