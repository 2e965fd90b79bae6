//! Examining the store of a URL.

use leasehold_core::internal::examination::danger;
use leasehold_core::internal::{StoreKind, background};

use super::prepare;
use crate::schemes::kind_of;
use crate::shown_url::redacted;
use crate::{Error, Examination, Finding, Result, Severity};

/// Examines risks to locks in the store of a URL.
///
/// It connects, reads the settings of the servers, and tries the requests that locks need on a key
/// of its own. It changes no lock. It takes about a second. docs/operate.md lists all findings.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let examination = leasehold::examine("redis://localhost").await?;
/// for finding in &examination.findings {
///     println!("{}: {}; {}", finding.severity, finding.message, finding.remedy);
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`is_unavailable`](Error::is_unavailable) if the store cannot be reached, and
/// [`is_invalid`](Error::is_invalid) for an invalid URL. A store that cannot be used for another
/// reason is a finding.
///
/// # Cancel safety
/// It only reads; dropping it has no effect.
#[doc(alias = "ping")]
pub async fn examine(url: &str) -> Result<Examination> {
    background::start()?;
    let examined = background::on_background(examine_store(url)).await;
    examined.map_err(|error| error.during("examine the store", &redacted(url), None))
}

async fn examine_store(url: &str) -> Result<Examination> {
    let is_local = kind_of(url).is_none_or(StoreKind::is_local);
    let unopened = match prepare(url) {
        Ok((unopened, _)) => unopened,
        Err(error) if is_local => return refused(url, Examination::default(), error),
        Err(error) => return Err(error),
    };

    let mut examination = unopened.examine().await?;
    // The store checks more than the examination does, and refuses what it cannot use.
    if let Err(error) = unopened.open(None).await {
        return refused(url, examination, error);
    }
    // The URL of a folder may not name its path.
    examination.store = if is_local {
        unopened.shown_url
    } else {
        redacted(url)
    };
    Ok(examination.sorted())
}

/// Adds the refusal of a store to what an examination has found.
fn refused(url: &str, mut examination: Examination, error: Error) -> Result<Examination> {
    // The findings explain it.
    if examination.worst() != Some(Severity::Danger) {
        if error.is_unavailable() || error.is_invalid() {
            return Err(error);
        }
        examination.findings.push(refusal(url, &error));
    }
    examination.store = redacted(url);
    Ok(examination.sorted())
}

fn refusal(url: &str, error: &Error) -> Finding {
    let remedy = error
        .hint()
        .unwrap_or("Read the message: it names the reason.");
    danger("refused", error.reason(), remedy).about(redacted(url))
}
