//! Who has a lock file locked, as the kernel tells in `/proc/locks`; for people.

use std::fs;

use rustix::fs::{major, minor};

use super::directory::Location;
use crate::Stranger;

/// The processes that have a file locked by flock(2), as far as this process may see them.
pub(super) fn holders_of(at: &Location) -> Vec<Stranger> {
    // Nothing is decided by it, so what cannot be read is not told.
    let (Ok(Some(about)), Ok(locks)) = (at.stat(), fs::read_to_string("/proc/locks")) else { return Vec::new() };
    let file = format!("{:02x}:{:02x}:{}", major(about.st_dev), minor(about.st_dev), about.st_ino);
    locks.lines().filter_map(|line| holder(line, &file)).map(named).collect()
}

/// The process that a line such as `3: FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF` tells of, if it is of this file. Those
/// who wait have an arrow after the number.
fn holder(line: &str, file: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    (words.next()? == "FLOCK").then_some(())?;
    let pid = words.nth(2)?.parse().ok()?;
    (words.next()? == file).then_some(pid)
}

fn named(pid: u32) -> Stranger {
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Stranger { pid, program: program.trim_end().to_owned() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::directory::Directory;
    use super::super::filesystem::Locality;
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        assert_eq!(holder("3: FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF", "fe:00:264"), Some(4711));
        assert_eq!(holder("3: -> FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF", "fe:00:264"), None);
        assert_eq!(holder("3: POSIX  ADVISORY  WRITE 4711 fe:00:264 0 EOF", "fe:00:264"), None);
        assert_eq!(holder("3: FLOCK  ADVISORY  READ 4711 fe:00:2640 0 EOF", "fe:00:264"), None);
        assert_eq!(holder("", "fe:00:264"), None);
    }

    #[test]
    fn a_lock_of_our_own_is_told() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = fs::File::create(folder.path().join("a.lock")).expect("made");
        let directory = Directory::open_or_make(folder.path(), Locality::Known).expect("it opens");
        let at = Arc::new(directory).file("a.lock");
        assert_eq!(holders_of(&at), []);
        file.lock().expect("it is free");
        let pids: Vec<u32> = holders_of(&at).iter().map(|stranger| stranger.pid).collect();
        assert_eq!(pids, [std::process::id()]);
    }
}
