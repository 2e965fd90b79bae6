//! What an examination of a store finds.

use std::fmt;
use std::time::Duration;

/// The result of `leasehold::examine`: risks to locks in a store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("doc-examine-{}", std::process::id()));
/// # let url = format!("file:{}", folder.display());
/// let examination = leasehold::examine(&url).await?;
/// for finding in &examination.findings {
///     println!("{}: {}; {}", finding.severity, finding.message, finding.remedy);
/// }
/// # std::fs::remove_dir_all(folder).ok();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Examination {
    /// The store's URL without its password. That of a folder has the folder's path.
    pub store: String,
    /// The risks to locks, the dangers first.
    pub findings: Vec<Finding>,
    /// The servers, as far as they sent a reply.
    pub servers: Vec<ExaminedServer>,
    /// The parts that could not be examined, each with the reason.
    pub unknown: Vec<String>,
}

impl Examination {
    /// Returns the severity of the worst finding.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Sorts the findings, the dangers first.
    #[doc(hidden)]
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.findings
            .sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        self
    }

    /// Adds what the checks of a server or a folder find.
    #[doc(hidden)]
    pub fn check<F>(&mut self, checks: &[Check<F>], facts: &F, server: impl fmt::Display) {
        let found = checks.iter().filter_map(|check| check.finding(facts));
        let findings = found.map(|finding| finding.about(&server));
        self.findings.extend(findings);
    }

    #[doc(hidden)]
    pub fn add(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.servers.extend(other.servers);
        self.unknown.extend(other.unknown);
    }
}

/// One thing that endangers locks, and what removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable name, such as `eviction`.
    pub code: &'static str,
    /// The server or the folder that it concerns.
    pub server: String,
    /// The risk to locks.
    pub message: String,
    /// The change that removes the risk.
    pub remedy: String,
}

impl Finding {
    /// Sets the server or the folder.
    #[doc(hidden)]
    #[must_use]
    pub fn about(self, server: impl fmt::Display) -> Self {
        Self {
            server: server.to_string(),
            ..self
        }
    }

    fn new(severity: Severity, code: &'static str, message: String, remedy: &str) -> Self {
        Self {
            severity,
            code,
            server: String::new(),
            message,
            remedy: remedy.to_owned(),
        }
    }
}

/// Creates the finding of a danger.
#[must_use]
pub fn danger(code: &'static str, message: impl Into<String>, remedy: &str) -> Finding {
    Finding::new(Severity::Danger, code, message.into(), remedy)
}

/// Creates the finding of a warning.
#[must_use]
pub fn warning(code: &'static str, message: impl Into<String>, remedy: &str) -> Finding {
    Finding::new(Severity::Warning, code, message.into(), remedy)
}

/// A risk that a server or a folder may have, the message about it, and the remedy.
pub struct Check<F> {
    severity: Severity,
    code: &'static str,
    probe: RiskProbe<F>,
    message: &'static str,
    remedy: &'static str,
}

/// Returns the text for `{}` in the message if the facts show the risk.
type RiskProbe<F> = fn(&F) -> Option<String>;

impl<F> Check<F> {
    /// Creates the check of a danger.
    pub const fn danger(code: &'static str, probe: RiskProbe<F>) -> Self {
        Self {
            severity: Severity::Danger,
            code,
            probe,
            message: "",
            remedy: "",
        }
    }

    /// Creates the check of a warning.
    pub const fn warning(code: &'static str, probe: RiskProbe<F>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::danger(code, probe)
        }
    }

    /// Sets the message.
    #[must_use]
    pub const fn message(self, message: &'static str) -> Self {
        Self { message, ..self }
    }

    /// Sets the message about a connection that others may read.
    #[must_use]
    pub const fn exposed(self) -> Self {
        self.message(
            "the connection leaves this machine without TLS, and others may read or change it",
        )
    }

    /// Sets the remedy.
    #[must_use]
    pub const fn remedy(self, remedy: &'static str) -> Self {
        Self { remedy, ..self }
    }

    /// Returns the finding if the facts show the risk.
    pub fn finding(&self, facts: &F) -> Option<Finding> {
        let found = (self.probe)(facts)?;
        let message = self.message.replacen("{}", &found, 1);
        Some(Finding::new(self.severity, self.code, message, self.remedy))
    }
}

/// Parses a version such as `7.0.15`; a part that is missing or no number is 0.
#[must_use]
pub fn version_numbers(version: &str) -> [u32; 3] {
    let mut parts = version.split('.');
    [(); 3].map(|()| {
        let number = parts.next().and_then(|part| part.parse().ok());
        number.unwrap_or(0)
    })
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Locks work, but worse than they could: later, slower, or less safe in a rare failure.
    Warning,
    /// A lock may be granted twice, or cannot be used.
    Danger,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Danger => "danger",
        })
    }
}

/// A server that was examined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExaminedServer {
    /// The server, as the URL names it without its password.
    pub server: String,
    /// Its product and version, if it reports them.
    pub version: Option<String>,
    /// The median and the 99th percentile of the round trips.
    pub round_trip: Option<RoundTrip>,
    /// By how much its clock is ahead of this machine's, in milliseconds.
    pub clock_ahead_ms: Option<i64>,
}

/// Creates a server of which nothing is known.
#[must_use]
pub fn examined_server(server: String) -> ExaminedServer {
    ExaminedServer {
        server,
        version: None,
        round_trip: None,
        clock_ahead_ms: None,
    }
}

/// Round trips to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoundTrip {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
}

/// Computes the percentiles of round trips; `None` without samples.
#[must_use]
pub fn percentiles(mut samples: Vec<Duration>) -> Option<RoundTrip> {
    samples.sort_unstable();
    let last = samples.len().checked_sub(1)?;
    let at = |percent: usize| samples[last * percent / 100];
    Some(RoundTrip {
        p50: at(50),
        p99: at(99),
    })
}
