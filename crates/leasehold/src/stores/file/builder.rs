//! The settings of a file store that is not open yet, and its URL.

use std::path::{Path, PathBuf};

use super::folder::{self, Folder};
use super::{File, counter};
use crate::local_fs::Locality;
use crate::stores::url::Settings;
use crate::{Error, Result};

/// A file store that is not open yet.
#[must_use]
#[derive(Clone, Debug)]
pub struct FileBuilder {
    folder: PathBuf,
    locality: Locality,
}

impl FileBuilder {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            locality: Locality::Known,
        }
    }

    /// States that the folder's file system is local to this machine.
    ///
    /// This is for a file system that leasehold does not know, FUSE for example. Do not state it of
    /// a file system that several machines use: each of them would grant the lock. Network file
    /// systems that leasehold knows are refused in any case.
    pub fn local(mut self, is_local: bool) -> Self {
        self.locality = if is_local {
            Locality::Stated
        } else {
            Locality::Known
        };
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    /// As [`File::at`].
    pub fn open(self) -> Result<File> {
        let boot = counter::this_boot()?;
        File::open(Folder::open(&self.folder, self.locality)?, boot)
    }
}

impl File {
    /// Opens the store of a `file:` URL from the part after the colon. An empty path is the user's
    /// state folder.
    pub(crate) fn at_url_path(url: &str) -> Result<Self> {
        let (path, is_local) = match url.split_once('?') {
            None => (url, false),
            Some((path, settings)) => (path, states_local(settings)?),
        };

        let folder = folder::path_of_url(path)?;
        Self::builder(&folder).local(is_local).open()
    }
}

/// Returns whether the settings of a URL are `local=yes`.
fn states_local(settings: &str) -> Result<bool> {
    const HELP: &str =
        "write file:/folder?local=yes; a folder with a ? in its name cannot be written as a URL";

    let settings = Settings::parse(settings, "file", &["local"]);
    match settings.map_err(|error| error.help(HELP))?.get("local") {
        Some("yes") => Ok(true),
        _ => Err(Error::invalid("the only value of the setting local is yes").help(HELP)),
    }
}
