//! The log on standard error.

use std::io::{IsTerminal, stderr};

use tracing::Metadata;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, fmt, registry};

use crate::commands::{LogFormat, LogOptions};
use crate::exit::{StandardError, print_error};

/// Starts the log if `LEASEHOLD_LOG` or --verbose requests it.
///
/// Otherwise no filter is built, because building one takes longer than acquiring a lock.
pub(crate) fn start(options: &LogOptions) {
    let filter = match std::env::var_os("LEASEHOLD_LOG") {
        Some(filter) if !filter.is_empty() => parse(&filter.to_string_lossy()),
        _ if options.verbose => EnvFilter::new("leasehold=info"),
        _ => return,
    };

    // An event repeats the fields of the span around it.
    let is_event = filter_fn(is_event);
    let lines = fmt::layer()
        .with_ansi(has_colours())
        .with_writer(|| StandardError);
    match options.log_format {
        LogFormat::Text => {
            let lines = lines.with_target(false).with_filter(is_event);
            registry().with(filter).with(lines).init();
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_filter(is_event);
            registry().with(filter).with(lines).init();
        }
    }
}

/// Reads a filter. One that cannot be read is reported, and the log has the level `info`.
fn parse(filter: &str) -> EnvFilter {
    EnvFilter::try_new(filter).unwrap_or_else(|error| {
        print_error(format_args!(
            "LEASEHOLD_LOG={filter:?} is not a log filter: {error}; \
             write a level, such as info or leasehold=debug"
        ));
        EnvFilter::new("leasehold=info")
    })
}

fn is_event(metadata: &Metadata<'_>) -> bool {
    metadata.is_event()
}

/// Whether the log has colours. In a file or a log collector, colours would appear as escape
/// sequences.
fn has_colours() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stderr().is_terminal() && !is_refused
}
