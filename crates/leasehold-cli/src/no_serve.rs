//! `leasehold serve` in a build without the feature `serve`.

use anyhow::Result;
use leasehold::Error;

use crate::commands::Serve;
use crate::exit::Exit;

#[allow(clippy::unused_async, reason = "the other build awaits")]
pub(crate) async fn serve(_: &Serve) -> Result<Exit> {
    let error = Error::unsupported("this build of leasehold has no web server");
    Err(error.help("build it with the feature serve").into())
}
