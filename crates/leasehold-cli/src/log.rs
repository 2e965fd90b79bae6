//! The log on standard error.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::commands::{LogFormat, LogOptions};
use crate::exit::StandardError;

/// Starts the log if `LEASEHOLD_LOG` or --verbose requests it.
///
/// Otherwise no filter is built, because building one takes longer than acquiring a lock.
pub(crate) fn start(options: &LogOptions) {
    let filter = match std::env::var_os("LEASEHOLD_LOG") {
        Some(filter) if !filter.is_empty() => EnvFilter::from_env("LEASEHOLD_LOG"),
        _ if options.verbose => EnvFilter::new("leasehold=info"),
        _ => return,
    };

    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(has_colours())
        .with_writer(|| StandardError);
    match options.log_format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// Whether the log has colours. In a file or a log collector, colours would appear as escape
/// sequences.
fn has_colours() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stderr().is_terminal() && !is_refused
}
