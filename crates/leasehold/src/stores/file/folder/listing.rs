//! The names in a folder.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Dir, DirEntry, FileType};

use super::directory::Directory;
use super::names::{self, Piece};
use crate::local_fs::io_error;
use crate::{Name, Result};

/// Every name that has a file with one of the endings, sorted.
///
/// A folder of a long name that this user may not read is logged and left out: one user's files do
/// not hide the names of others.
pub(super) fn names(root: &Directory, endings: &[&str]) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    collect(root, endings, "", &mut names)?;
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Removes the folders, here and in the folders of long names, that were begun a long time ago and
/// never finished.
///
/// `depth` bounds the folders in folders, of which another user may have made any number.
pub(super) fn remove_abandoned(folder: &Directory, depth: usize) {
    for entry in Dir::read_from(folder).into_iter().flatten().flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        folder.remove_abandoned(name);

        let is_continued = matches!(
            name.to_str().and_then(|name| names::piece_of(name, "")),
            Some(Piece::Continued(_))
        );
        if is_continued
            && depth > 0
            && let Ok(Some(inner)) = folder.read_inside(name)
        {
            remove_abandoned(&inner, depth - 1);
        }
    }
}

/// Collects the names below a folder. `prefix` is the encoded part of the names above it.
fn collect(
    folder: &Directory,
    endings: &[&str],
    prefix: &str,
    names: &mut Vec<Name>,
) -> Result<()> {
    let failed = |error| io_error(error, "list the folder", folder.path());
    for entry in Dir::read_from(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A file of another program may have any name.
        let Ok(file) = entry.file_name().to_str() else {
            continue;
        };

        for ending in endings {
            match names::piece_of(file, ending) {
                Some(Piece::Last(piece)) => {
                    names.extend(names::decode(&format!("{prefix}{piece}")));
                }
                Some(Piece::Continued(_)) | None => {}
            }
        }
        if let Some(Piece::Continued(piece)) = names::piece_of(file, "")
            && may_be_directory(&entry)
        {
            let longer = format!("{prefix}{piece}");
            collect_inside(folder, &entry, endings, &longer, names);
        }
    }
    Ok(())
}

fn collect_inside(
    folder: &Directory,
    entry: &DirEntry,
    endings: &[&str],
    prefix: &str,
    names: &mut Vec<Name>,
) {
    // Another user may have made folders in folders without end.
    if prefix.len() > names::ENCODED_MAX {
        return;
    }

    let name = OsStr::from_bytes(entry.file_name().to_bytes());
    let collected = match folder.read_inside(name) {
        Ok(Some(inner)) => collect(&inner, endings, prefix, names),
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = collected {
        tracing::warn!(%error, "left out the names in a folder");
    }
}

/// Whether an entry is a directory. Some file systems do not report the types of their entries.
fn may_be_directory(entry: &DirEntry) -> bool {
    matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
}
