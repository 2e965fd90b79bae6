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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::Severity;
    /// # let folder = std::env::temp_dir().join(format!("doc-worst-{}", std::process::id()));
    /// # let url = format!("file:{}", folder.display());
    /// let examination = leasehold::examine(&url).await?;
    /// assert_ne!(examination.worst(), Some(Severity::Danger));
    /// # std::fs::remove_dir_all(folder).ok();
    /// # Ok(()) }
    /// ```
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
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// # let folder = std::env::temp_dir().join(format!("doc-finding-{}", std::process::id()));
/// # let url = format!("file:{}", folder.display());
/// let findings = leasehold::examine(&url).await?.findings;
/// assert!(findings.iter().all(|finding| !finding.remedy.is_empty()));
/// # std::fs::remove_dir_all(folder).ok();
/// # Ok(()) }
/// ```
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

/// A service on which stores keep locks, in the words of its own documentation.
pub struct Service {
    /// Its name before a version.
    pub name: &'static str,
    /// The oldest release that leasehold works with.
    pub oldest: &'static str,
    /// What to install instead of an older one.
    pub install: &'static str,
    /// How a URL asks for TLS.
    pub encrypt: &'static str,
    /// The settings that allow a longer time without a reply.
    pub patience: &'static str,
}

/// What a store observes of a server: the risks that the servers of all services may have follow from
/// it. A part is absent if it is not known.
pub struct ServerFacts {
    /// The service that the server belongs to.
    pub service: &'static Service,
    /// The server, as the URL names it without its password.
    pub server: String,
    /// The release, without the name of the service.
    pub version: Option<String>,
    /// Whether a connection leaves this machine without TLS.
    pub is_exposed: bool,
    /// The median and the 99th percentile of the round trips.
    pub round_trip: Option<RoundTrip>,
    /// How long a holder may have no reply before it loses its locks.
    pub grace: Duration,
    /// By how much the server's clock is ahead of this machine's.
    pub clock_ahead_ms: Option<i64>,
    /// By how much the rates of the clocks differ, in millionths.
    pub clock_rate_ppm: Option<i64>,
}

const CLOCK_DIFFERENCE_MAX_MS: u64 = 1_000;
/// The margin that leases have for clocks of different rates. The finding states it.
const CLOCK_RATE_MAX_PPM: i64 = 500;

impl ServerFacts {
    /// Creates the facts of a server of which nothing is known yet.
    #[must_use]
    pub fn new(service: &'static Service, server: impl fmt::Display) -> Self {
        Self {
            service,
            server: server.to_string(),
            version: None,
            is_exposed: false,
            round_trip: None,
            grace: Duration::MAX,
            clock_ahead_ms: None,
            clock_rate_ppm: None,
        }
    }

    /// Returns the risks that the facts show.
    pub fn findings(&self) -> impl Iterator<Item = Finding> {
        let found = [
            self.old_version(),
            self.exposure(),
            self.clock_difference(),
            self.clock_rate(),
            self.slowness(),
        ];
        let found = found.into_iter().flatten();
        found.map(|finding| finding.about(&self.server))
    }

    /// Returns what an examination states of the server.
    #[must_use]
    pub fn examined(&self) -> ExaminedServer {
        let version = self.version.as_ref();
        ExaminedServer {
            server: self.server.clone(),
            version: version.map(|version| format!("{} {version}", self.service.name)),
            round_trip: self.round_trip,
            clock_ahead_ms: self.clock_ahead_ms,
        }
    }

    fn old_version(&self) -> Option<Finding> {
        let version = self.version.as_ref()?;
        let Service { name, oldest, .. } = self.service;
        let is_old = version_numbers(version) < version_numbers(oldest);
        is_old.then(|| {
            let message = format!("the server is {name} {version}, and leasehold needs {oldest}");
            danger("version", message, self.service.install)
        })
    }

    fn exposure(&self) -> Option<Finding> {
        self.is_exposed.then(|| {
            let encrypt = self.service.encrypt;
            warning(
                "no-tls",
                "the connection leaves this machine without TLS, and others may read or change it",
                &format!("use {encrypt}, or a network without other users"),
            )
        })
    }

    fn clock_difference(&self) -> Option<Finding> {
        let ahead = self.clock_ahead_ms?;
        (ahead.unsigned_abs() > CLOCK_DIFFERENCE_MAX_MS).then(|| {
            warning(
                "clock-difference",
                format!("the server's clock differs by {ahead} ms from this machine's"),
                "synchronise the clocks (NTP): the ages of holds in show and ls are wrong, and \
                 tokens after a loss of data may not rise",
            )
        })
    }

    fn clock_rate(&self) -> Option<Finding> {
        let rate = self.clock_rate_ppm?;
        (rate > CLOCK_RATE_MAX_PPM).then(|| {
            danger(
                "clock-rate",
                format!(
                    "the server's clock runs {rate} ppm or more off this machine's, or was set \
                     during the examination; leases allow {CLOCK_RATE_MAX_PPM} ppm"
                ),
                "find out which clock is wrong; a virtual machine may need another clock source",
            )
        })
    }

    /// A holder renews ten times in its grace, and gives up after 0.6 of it without a reply.
    fn slowness(&self) -> Option<Finding> {
        let p99 = self.round_trip?.p99;
        let patience = self.service.patience;
        let message = format!("the 99th percentile of round trips is {p99:?}");
        if p99 > self.grace / 4 {
            let remedy = format!("use a longer {patience}, or a server that is nearer");
            return Some(danger("slow", message, &remedy));
        }
        (p99 > self.grace / 20).then(|| {
            let remedy = format!("use a longer {patience}, or find out what delays replies");
            warning("slow", message, &remedy)
        })
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
///
/// ```
/// assert!(leasehold::Severity::Danger > leasehold::Severity::Warning);
/// ```
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
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let examination = leasehold::examine("redis://localhost").await?;
/// for server in &examination.servers {
///     println!("{server:?}");
/// }
/// # Ok(()) }
/// ```
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

/// Round trips to a server.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let examination = leasehold::examine("redis://localhost").await?;
/// for round_trip in examination.servers.iter().filter_map(|server| server.round_trip) {
///     println!("{round_trip:?}");
/// }
/// # Ok(()) }
/// ```
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

#[cfg(test)]
mod tests {
    use super::*;

    static SERVICE: Service = Service {
        name: "Test",
        oldest: "6.2",
        install: "install Test 6.2",
        encrypt: "tests://",
        patience: "grace=",
    };

    /// The severity and the code of each finding.
    fn found(change: impl Fn(&mut ServerFacts)) -> Vec<(Severity, &'static str)> {
        let mut facts = ServerFacts::new(&SERVICE, "server");
        facts.grace = Duration::from_secs(2);
        change(&mut facts);
        let findings = facts.findings();
        findings
            .map(|finding| (finding.severity, finding.code))
            .collect()
    }

    #[test]
    fn old_version_is_a_danger() {
        let found = |version: &str| found(|facts| facts.version = Some(version.to_owned()));
        assert_eq!(found("6.2.0"), []);
        assert_eq!(found("7.0.15"), []);
        for old in ["6.0.16", "5.9"] {
            assert_eq!(found(old), [(Severity::Danger, "version")]);
        }
    }

    #[test]
    fn slowness_is_judged_by_the_grace() {
        let found = |millis| {
            found(|facts| facts.round_trip = percentiles(vec![Duration::from_millis(millis)]))
        };
        assert_eq!(found(99), []);
        assert_eq!(found(101), [(Severity::Warning, "slow")]);
        assert_eq!(found(501), [(Severity::Danger, "slow")]);
    }

    #[test]
    fn clock_is_a_risk_beyond_the_margins() {
        assert_eq!(found(|facts| facts.clock_ahead_ms = Some(-1_000)), []);
        let ahead = found(|facts| facts.clock_ahead_ms = Some(-1_001));
        assert_eq!(ahead, [(Severity::Warning, "clock-difference")]);

        assert_eq!(found(|facts| facts.clock_rate_ppm = Some(500)), []);
        let rate = found(|facts| facts.clock_rate_ppm = Some(501));
        assert_eq!(rate, [(Severity::Danger, "clock-rate")]);
    }
}
