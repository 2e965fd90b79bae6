//! The settings of a file store that is not open yet, and its URL.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::folder::sharing::Access;
use super::folder::{self, Folder};
use super::{File, counter};
use crate::local_fs::Locality;
use crate::stores::url::{Setting, Settings, Transport, UrlForm};
use crate::stray_character;
use crate::{Error, Result};

/// A file store that is not open yet.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{Locks, stores::File};
/// # let folder = std::env::temp_dir().join(format!("doc-builder-{}", std::process::id()));
/// let store = File::builder(&folder).open()?;
/// let locks = Locks::from_store(store, &format!("file:{}", folder.display()))?;
/// # drop(locks); std::fs::remove_dir_all(folder).ok();
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug)]
pub struct FileBuilder {
    folder: PathBuf,
    locality: Locality,
    access: Option<Access>,
    records_kept: Duration,
}

impl FileBuilder {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            locality: Locality::Known,
            access: None,
            records_kept: Setting::RECORDS.default_duration(),
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
        let shown = self.folder.to_string_lossy();
        stray_character::check("the path of the folder", &shown)?;
        let boot = counter::this_boot()?;
        let folder = Folder::open(&self.folder, self.locality, self.access)?;
        File::open(folder, boot, self.records_kept)
    }

    /// Applies the settings of a URL, after its `?`.
    fn with_settings(mut self, settings: Option<&str>) -> Result<Self> {
        let Some(settings) = settings else {
            return Ok(self);
        };
        if settings.is_empty() {
            return Err(Error::invalid("the URL ends with ?").help(SETTINGS_HELP));
        }
        // What is wrong with the value of a setting has a remedy of its own.
        let has_remedy = |error: &Error| error.hint().is_some_and(|hint| hint.starts_with("write"));
        let settings = Settings::parse(settings, &FILE_URL).map_err(|error| {
            if has_remedy(&error) {
                return error;
            }
            error.help(SETTINGS_HELP)
        })?;

        self = self.local(settings.get("local").is_some());
        self.records_kept = settings.duration(&Setting::RECORDS);
        self.access = settings.get("mode").map(Access::of_file_mode).transpose()?;
        Ok(self)
    }
}

impl File {
    /// The folder of `system:`, which the users of the group `leasehold` share.
    pub const SYSTEM_FOLDER: &str = "/var/lib/leasehold";

    /// Opens the store of a `file:` URL from the part after the colon. An empty path is the user's
    /// state folder.
    pub(crate) fn at_url_path(url: &str) -> Result<Self> {
        let (path, settings) = split_settings(url);
        let folder = folder::path_of_url(path)?;
        FileBuilder::new(&folder).with_settings(settings)?.open()
    }

    /// Opens the store of a `system:` URL from the part after the colon.
    pub(crate) fn at_system_url(url: &str) -> Result<Self> {
        let (path, settings) = split_settings(url);
        if !path.is_empty() {
            let message = format!("system: has a fixed folder, but the URL names {path:?}");
            return Err(Error::invalid(message).help("write system:, or file:/some/folder"));
        }

        let folder = Path::new(Self::SYSTEM_FOLDER);
        let builder = FileBuilder::new(folder).with_settings(settings)?;
        check_system_folder(folder)?;
        builder.open()
    }
}

pub(super) fn split_settings(url: &str) -> (&str, Option<&str>) {
    url.split_once('?')
        .map_or((url, None), |(path, settings)| (path, Some(settings)))
}

/// Checks that the folder of `system:` exists and that this user is in its group.
fn check_system_folder(folder: &Path) -> Result<()> {
    let shown = folder.display();
    let listed = std::fs::read_dir(folder);
    match listed.map_err(|error| error.kind()) {
        Err(ErrorKind::NotFound) => {
            let message = format!("system: needs the folder {shown}, which does not exist");
            Err(Error::unsupported(message).help("run `sudo leasehold setup-system` once"))
        }
        Err(ErrorKind::PermissionDenied) => {
            let message = format!("system: permission denied for the folder {shown}");
            Err(Error::denied(message).help(
                "add this user to its group: sudo usermod -aG leasehold USER; then log in again",
            ))
        }
        // Opening the folder reports any other error.
        Ok(_) | Err(_) => Ok(()),
    }
}

const FORM: UrlForm = UrlForm {
    store: "file",
    schemes: &[("file", Transport::Local)],
    example: "file:/some/folder",
    default_port: 0,
    settings: &[&[
        Setting::word("local", &["yes"]),
        Setting::text("mode"),
        Setting::RECORDS,
    ]],
    dialect: None,
};
pub(super) static FILE_URL: UrlForm = FORM;
pub(super) static SYSTEM_URL: UrlForm = UrlForm {
    schemes: &[("system", Transport::Local)],
    ..FORM
};
const SETTINGS_HELP: &str = "write file:/folder?local=yes or file:/folder?mode=0660; \
     a folder with a ? in its name cannot be written as a URL";
