//! Examining the store of a URL.

use crate::examination::{Examination, Finding, Severity};
use crate::runtime::background;
#[allow(unused_imports, reason = "a build may have the store in memory only")]
use crate::stores;
use crate::{Error, Result};

use super::shown_url::redacted;
use super::{StoreKind, open_store};

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
    let scheme = url.split(':').next().unwrap_or_default();
    let mut examination = match StoreKind::of(scheme) {
        #[cfg(feature = "redis")]
        Some(StoreKind::Redlock) => stores::Redlock::builder(url)?.examine().await?,
        #[cfg(feature = "redis")]
        Some(StoreKind::Redis) => match super::dialect(url) {
            None => stores::Redis::builder(url)?.examine().await?,
            Some("redisson") => stores::Redisson::builder(url)?.examine().await?,
            Some(_) => stores::RedisPlain::builder(url)?.examine().await?,
        },
        #[cfg(feature = "zookeeper")]
        Some(StoreKind::ZooKeeper) => stores::examine_zookeeper(url).await?,
        _ => Examination::default(),
    };
    // The store checks more than the examination does, and refuses what it cannot use.
    match open_store(url, None).await {
        Ok(opened) => {
            if let Some(path) = folder_of(&opened.shown_url) {
                examination.add(examine_file(path));
            }
        }
        // The findings explain it.
        Err(_) if examination.worst() == Some(Severity::Danger) => {}
        Err(error) if error.is_unavailable() || error.is_invalid() => return Err(error),
        Err(error) => examination.findings.push(refusal(url, &error)),
    }
    examination.store = redacted(url);
    Ok(examination.sorted())
}

fn refusal(url: &str, error: &Error) -> Finding {
    let remedy = error
        .hint()
        .unwrap_or("Read the message: it names the reason.");
    Finding {
        server: redacted(url),
        ..Finding::danger("refused", error.reason(), remedy)
    }
}

fn folder_of(url: &str) -> Option<&str> {
    match url.split_once(':') {
        Some(("file", path)) => Some(path),
        Some(("system", _)) => Some("/var/lib/leasehold"),
        _ => None,
    }
}

#[cfg(feature = "file")]
fn examine_file(path: &str) -> Examination {
    stores::examine_folder(std::path::Path::new(path))
}

#[cfg(not(feature = "file"))]
fn examine_file(_path: &str) -> Examination {
    Examination::default()
}
