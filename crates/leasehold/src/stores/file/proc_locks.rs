//! Who has a lock file locked, as the kernel tells in `/proc/locks`; for people.

use std::fs;

use rustix::fs::{major, minor};

use super::folder::directory::Location;
use crate::ExternalHolder;

/// The processes that have a file locked by flock(2), as far as this process may see them.
pub(super) fn flock_holders(at: &Location) -> Vec<ExternalHolder> {
    // Nothing is decided by it, so what cannot be read is not told.
    let (Ok(Some(what)), Ok(locks)) = (at.stat(), fs::read_to_string("/proc/locks")) else {
        return Vec::new();
    };
    let file = format!(
        "{:02x}:{:02x}:{}",
        major(what.st_dev),
        minor(what.st_dev),
        what.st_ino
    );
    locks
        .lines()
        .filter_map(|queue| parse_holder(queue, &file))
        .map(process_name)
        .collect()
}

/// The process that a line such as `3: FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF` tells of, if it is of this file. Those
/// who wait have an arrow after the number.
fn parse_holder(queue: &str, file: &str) -> Option<u32> {
    let mut words = queue.split_whitespace().skip(1);
    (words.next()? == "FLOCK").then_some(())?;
    let pid = words.nth(2)?.parse().ok()?;
    (words.next()? == file).then_some(pid)
}

fn process_name(pid: u32) -> ExternalHolder {
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    ExternalHolder {
        pid,
        program: program.trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::folder::directory::Directory;
    use super::*;
    use crate::local_fs::Locality;

    #[test]
    fn proc_locks_lines_are_parsed() {
        assert_eq!(
            parse_holder(
                "3: FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF",
                "fe:00:264"
            ),
            Some(4711)
        );
        assert_eq!(
            parse_holder(
                "3: -> FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF",
                "fe:00:264"
            ),
            None
        );
        assert_eq!(
            parse_holder(
                "3: POSIX  ADVISORY  WRITE 4711 fe:00:264 0 EOF",
                "fe:00:264"
            ),
            None
        );
        assert_eq!(
            parse_holder(
                "3: FLOCK  ADVISORY  READ 4711 fe:00:2640 0 EOF",
                "fe:00:264"
            ),
            None
        );
        assert_eq!(parse_holder("", "fe:00:264"), None);
    }

    #[test]
    fn own_flock_is_found_in_proc_locks() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = fs::File::create(folder.path().join("a.lock")).expect("made");
        let directory = Directory::open_or_make(folder.path(), Locality::Known).expect("it opens");
        let at = Arc::new(directory).file("a.lock");
        assert_eq!(flock_holders(&at), []);
        file.lock().expect("it is free");
        let pids: Vec<u32> = flock_holders(&at)
            .iter()
            .map(|external_holder| external_holder.pid)
            .collect();
        assert_eq!(pids, [std::process::id()]);
    }
}
