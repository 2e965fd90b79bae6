//! A real PgBouncer.

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use tempfile::TempDir;

use crate::child::ServerProcess;
use crate::port::Port;
use crate::postgres::{folder_of_server, start_unprivileged};
use crate::{Postgres, Wire, until};

const CONFIGURATION: &str = "pgbouncer.ini";
const LOG: &str = "pgbouncer.log";

/// A PgBouncer in front of a PostgreSQL server, on a free loopback port. Dropping it kills it.
#[derive(Debug)]
pub struct PgBouncer {
    // Declared before the folder and the port, so that it ends before they are free.
    _child: ServerProcess,
    folder: TempDir,
    port: Port,
}

impl PgBouncer {
    /// Starts it with a pool of three connections; `mode` is `transaction`, `session` or
    /// `statement`.
    ///
    /// # Panics
    /// Panics if PgBouncer is not installed or does not start.
    #[must_use]
    pub fn start(server: &Postgres, mode: &str) -> Self {
        // In session mode each connection of a client keeps one of the pool.
        let pool_size = if mode == "session" { 100 } else { 3 };
        let server = format!("host={} port=5432", server.host().display());
        Self::to(&server, mode, pool_size)
    }

    /// Starts it with a pool of so many connections to the server to which a wire leads.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn behind(wire: &Wire, mode: &str, pool_size: u32) -> Self {
        let server = format!("host=127.0.0.1 port={}", wire.port());
        Self::to(&server, mode, pool_size)
    }

    fn to(server: &str, mode: &str, pool_size: u32) -> Self {
        let folder = folder_of_server();
        let port = Port::reserve();
        let users = folder.path().join("users");
        let configuration = format!(
            "[databases]\n* = {server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = {mode}\ndefault_pool_size = {pool_size}\nmax_client_conn = 5000\n\
             admin_users = postgres\n\
             server_login_retry = 1\n",
            port.number(),
            users.display(),
        );
        fs::write(&users, "\"postgres\" \"\"\n\"app\" \"\"\n").expect("the folder is ours");
        let file = folder.path().join(CONFIGURATION);
        fs::write(&file, configuration).expect("the folder is ours");

        let log = folder.path().join(LOG);
        let args = [file.to_str().expect("the path is UTF-8")];
        // Debian keeps it where the path of a user may not lead.
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"]
            .into_iter()
            .find(|file| Path::new(file).is_file())
            .unwrap_or("pgbouncer");
        let child = start_unprivileged(program, "pgbouncer", &args, None, &log);
        let started = Self {
            _child: child,
            folder,
            port,
        };
        let connects = || Ok(TcpStream::connect(started.address()).ok());
        until("PgBouncer to listen", connects)
            .unwrap_or_else(|error| panic!("{error}: {}", started.log()));
        started
    }

    /// The address `127.0.0.1:PORT` for clients.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// The whole log.
    #[must_use]
    pub fn log(&self) -> String {
        let log = self.folder.path().join(LOG);
        fs::read_to_string(log).unwrap_or_else(|error| format!("(no log: {error})"))
    }
}
