//! Services of systemd: sockets that it passes, and its watchdog.

use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::sandbox::{Sandbox, Started, until};

/// Prints what libsystemd finds in its process: the count of sockets, the name of the first one,
/// and whether a watchdog waits.
const PROGRAM: &str = "
import ctypes, os, socket
systemd = ctypes.CDLL('libsystemd.so.0')
listens = systemd.sd_listen_fds(0)
name = socket.socket(fileno=3).getsockname() if listens > 0 else ''
print(listens, os.path.basename(name), systemd.sd_watchdog_enabled(0, None))
";

/// Runs `line` as a service with a socket and a watchdog. `$@` is the program.
fn service(sandbox: &Sandbox, line: &str) -> String {
    std::fs::write(sandbox.path("program.py"), PROGRAM).unwrap();
    let socket = sandbox.path("socket");
    let line = format!("export WATCHDOG_PID=$$ WATCHDOG_USEC=1000000; {line}");

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
    service.wait().out
}

#[test]
fn command_gets_the_sockets_and_the_watchdog_of_its_service() {
    for sandbox in [Sandbox::new(), Sandbox::on_redis()] {
        let out = service(&sandbox, "exec $LEASEHOLD run a -- \"$@\"");
        assert_eq!(out, "1 socket 1\n", "{}", sandbox.url());
    }
}

/// They name a process that has not become leasehold.
#[test]
fn variables_that_name_another_process_stay_as_they_are() {
    for sandbox in [Sandbox::new(), Sandbox::on_redis()] {
        let line = "$LEASEHOLD run a -- sh -c 'test $LISTEN_PID = $WATCHDOG_PID && \
                    test $LISTEN_PID = $0 && exec \"$@\"' $$ \"$@\"";
        assert_eq!(service(&sandbox, line), "0  0\n", "{}", sandbox.url());
    }
}
