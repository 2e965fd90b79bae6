//! Examining the store of a URL.

use leasehold_core::internal::background;
use leasehold_core::internal::examination::danger;

use super::{prepare, split_reply_timeout};
use crate::schemes::Scheme;
use crate::shown_url::redacted;
use crate::{Error, Examination, Finding, Result, Severity};

/// Examines risks to locks in the store of a URL.
///
/// It connects, reads the settings of the servers, and tries the requests that locks need on a key
/// of its own. It changes no lock. It takes about a second. docs/doctor.md lists all findings.
///
/// # Errors
/// [`is_unavailable`](Error::is_unavailable) if the store cannot be reached, and
/// [`is_invalid`](Error::is_invalid) for an invalid URL. A store that cannot be used for another
/// reason is a finding.
///
/// # Cancel safety
/// It only reads; dropping it has no effect.
pub async fn examine(url: &str) -> Result<Examination> {
    background::start()?;
    let examined = background::on_background(examine_store(url)).await;
    examined.map_err(|error| error.during("examine the store", &redacted(url), None))
}

async fn examine_store(url: &str) -> Result<Examination> {
    let name = url.split(':').next().unwrap_or_default();
    let kind = Scheme::named(name).and_then(|scheme| scheme.kind().ok());
    let mut examination = match kind {
        Some(kind) => (kind.examine)(&split_reply_timeout(url).0).await?,
        None => Examination::default(),
    };
    examination.store = redacted(url);
    // The store checks more than the examination does, and refuses what it cannot use.
    let opening = async {
        let (unopened, _) = prepare(url)?;
        unopened.open(None).await?;
        Ok::<_, Error>(unopened.shown_url)
    };
    match opening.await {
        Ok(shown_url) => {
            if let Some(kind) = kind {
                examination.add((kind.examine_opened)(&shown_url));
            }
            // The URL of a folder may not name its path.
            if Scheme::named(name).is_some_and(|scheme| scheme.is_local) {
                examination.store = shown_url;
            }
        }
        // The findings explain it.
        Err(_) if examination.worst() == Some(Severity::Danger) => {}
        Err(error) if error.is_unavailable() || error.is_invalid() => return Err(error),
        Err(error) => examination.findings.push(refusal(url, &error)),
    }
    Ok(examination.sorted())
}

fn refusal(url: &str, error: &Error) -> Finding {
    let remedy = error
        .hint()
        .unwrap_or("Read the message: it names the reason.");
    danger("refused", error.reason(), remedy).about(redacted(url))
}
