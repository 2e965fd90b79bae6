//! The names in a folder.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Dir, DirEntry, FileType};

use super::directory::{read_inside, remove_if_abandoned};
use super::names::{self, CONTINUED};
use crate::local_fs::io_error;
use crate::{Name, Result};

/// Every name that has a file with one of the endings, sorted.
///
/// A folder of a long name that this user may not read is logged and left out: one user's files do
/// not hide the names of others.
pub(super) fn names(root: &OwnedFd, path: &Path, endings: &[&str]) -> Result<Vec<Name>> {
    let mut listing = Listing {
        endings,
        names: Vec::new(),
    };
    listing.collect(root, path, "")?;
    listing.names.sort_unstable();
    listing.names.dedup();
    Ok(listing.names)
}

/// Removes the folders, here and in the folders of long names, that were begun a long time ago and
/// never finished.
///
/// `depth` bounds the folders in folders, of which another user may have made any number.
pub(super) fn remove_abandoned(folder: &OwnedFd, path: &Path, depth: usize) {
    for entry in Dir::read_from(folder).into_iter().flatten().flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        remove_if_abandoned(folder, name);

        let is_continued = name.as_bytes().ends_with(CONTINUED.as_bytes());
        let inner_path = path.join(name);
        if is_continued
            && depth > 0
            && let Ok(Some(inner)) = read_inside(folder, name, &inner_path)
        {
            remove_abandoned(&inner, &inner_path, depth - 1);
        }
    }
}

/// The names of the files with one of the endings.
struct Listing<'a> {
    endings: &'a [&'a str],
    names: Vec<Name>,
}

impl Listing<'_> {
    /// Collects the names below a folder. `prefix` is the encoded part of the names above it.
    fn collect(&mut self, folder: &OwnedFd, path: &Path, prefix: &str) -> Result<()> {
        let failed = |error| io_error(error, "list the folder", path);
        for entry in Dir::read_from(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // A file of another program may have any name.
            let Ok(file) = entry.file_name().to_str() else {
                continue;
            };

            let pieces = self.endings.iter().filter_map(|end| file.strip_suffix(end));
            let names = pieces.filter_map(|piece| names::decode(&format!("{prefix}{piece}")));
            self.names.extend(names);

            if let Some(piece) = file.strip_suffix(CONTINUED)
                && may_be_directory(&entry)
                && let Err(error) = self.collect_inside(folder, &path.join(file), prefix, piece)
            {
                tracing::warn!(%error, "left out the names in a folder");
            }
        }
        Ok(())
    }

    fn collect_inside(
        &mut self,
        folder: &OwnedFd,
        path: &Path,
        prefix: &str,
        piece: &str,
    ) -> Result<()> {
        // Another user may have made folders in folders without end.
        if prefix.len() + piece.len() > names::ENCODED_MAX {
            return Ok(());
        }
        let name = path.file_name().expect("the path of an entry has a name");
        match read_inside(folder, name, path)? {
            Some(inner) => self.collect(&inner, path, &format!("{prefix}{piece}")),
            None => Ok(()),
        }
    }
}

/// Whether an entry is a directory. Some file systems do not report the types of their entries.
fn may_be_directory(entry: &DirEntry) -> bool {
    matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
}
