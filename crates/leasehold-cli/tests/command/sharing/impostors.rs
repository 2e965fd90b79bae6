//! Other objects in the places of the files of a store. Another user puts them there, and leasehold
//! leaves them as they are.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, inotify, makedev, mknodat};
use rustix::io::Errno;

use super::*;
use crate::sandbox::is_stopped;

/// Another user of a shared folder.
const ATTACKER: User = BOB;

/// The place of the FIFO of a process that holds the lock.
const MEMBER: &str = ".members/*";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Impostor {
    /// A second name of a file of the victim, which the attacker may write.
    HardLink,
    /// A second name of an empty file: leasehold begins to write into an empty file.
    EmptyHardLink,
    Symlink,
    Fifo,
    Device,
    /// A folder of the attacker that all users may write.
    Directory,
    /// A private file of the victim, which was in the folder under another name.
    RenamedFile,
    /// A private folder of the victim, which was in the folder under another name.
    RenamedDirectory,
}

const IMPOSTORS: [Impostor; 8] = [
    Impostor::HardLink,
    Impostor::EmptyHardLink,
    Impostor::Symlink,
    Impostor::Fifo,
    Impostor::Device,
    Impostor::Directory,
    Impostor::RenamedFile,
    Impostor::RenamedDirectory,
];

impl Impostor {
    /// Puts this at a path. `$1` is the path, the files of the victim are in `$2`, and `$3` is the
    /// folder of the store.
    fn place(self, at: &Path, folder: &Path, victims: &Path) {
        let script = match self {
            Self::HardLink => "ln \"$2/team\" \"$1\"",
            Self::EmptyHardLink => "ln \"$2/empty\" \"$1\"",
            Self::Symlink => "ln -s \"$2/team\" \"$1\"",
            Self::Fifo => "mkfifo -m 666 \"$1\"",
            Self::Device => return make_device(at),
            Self::Directory => "mkdir -m 777 \"$1\"",
            Self::RenamedFile => "mv \"$3/private\" \"$1\"",
            Self::RenamedDirectory => "mv \"$3/folder\" \"$1\"",
        };
        attack(script, &[at, victims, folder]);
    }
}

/// Removes the FIFO of the only process, and returns its path.
fn take_member(folder: &Path) -> PathBuf {
    let mut members = fs::read_dir(folder.join(".members")).unwrap();
    let fifo = members.next().unwrap().unwrap().path();
    attack("rm \"$1\"", &[&fifo]);
    fifo
}

/// Runs a script of the attacker.
fn attack(script: &str, arguments: &[&Path]) {
    let mut shell = ATTACKER.command("sh");
    shell.args(["-ec", script, "sh"]).args(arguments);
    let done: Finished = shell.output().unwrap().into();
    assert_eq!(done.code(), 0, "{script}: {done:?}");
}

/// The null device: root alone can make one, for instance by unpacking an archive.
fn make_device(at: &Path) {
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, at, FileType::CharacterDevice, mode, makedev(1, 3)).unwrap();
    fs::set_permissions(at, Permissions::from_mode(0o666)).unwrap();
}

/// Another user puts something in the place of each file and folder of the store. leasehold changes
/// no mode, owner or content of it, and does not even open it if it can be of another program.
///
/// Shows G-22.
#[test]
fn impostors_of_files_are_neither_changed_nor_opened() {
    // The last byte of this name is the name of a file in a folder.
    let long = "n".repeat(201);
    let long_folder = format!("{}+", &long[1..]);
    let places = [
        (".counter", "a"),
        ("a.lock", "a"),
        ("a.queue", "a"),
        (".members", "a"),
        (long_folder.as_str(), long.as_str()),
        (MEMBER, "a"),
    ];
    // Each user in a folder with the sticky bit and in one without it.
    let folders = [
        (0o2770, ALICE),
        (0o1777, ALICE),
        (0o3770, ROOT),
        (0o777, ROOT),
    ];

    let mut wrong = Vec::new();
    for (mode, victim) in folders {
        let sandbox = shared_store(mode);
        for (place, name) in places {
            let cases = IMPOSTORS.map(|impostor| Case {
                mode,
                victim,
                place,
                name,
                impostor,
            });
            for case in cases.into_iter().filter(|case| case.is_attack()) {
                if let Err(found) = case.check(&sandbox) {
                    wrong.push(format!("{case:?}: {found}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[derive(Clone, Copy, Debug)]
struct Case<'a> {
    /// The mode of the folder.
    mode: u32,
    victim: User,
    /// What leasehold opens or changes in the folder.
    place: &'a str,
    /// A name of a lock that needs it.
    name: &'a str,
    impostor: Impostor,
}

impl Case<'_> {
    /// Whether another user can put this there, and leasehold must keep it as it is.
    ///
    /// With the sticky bit, a user cannot rename the files of another user. The folder of another
    /// user cannot be moved into another one. A folder of another user may be used as a folder, and
    /// removed when it is empty. A FIFO without a reader is what a dead process leaves.
    fn is_attack(self) -> bool {
        match self.impostor {
            Impostor::RenamedFile => !self.is_sticky(),
            Impostor::RenamedDirectory => !self.is_sticky() && !self.is_for_member(),
            Impostor::Directory => !self.is_for_directory(),
            Impostor::Fifo => !self.is_for_member(),
            _ => true,
        }
    }

    /// Whether leasehold may open it, and even use it: flock(1) may have made the file, and
    /// leasehold the folder.
    fn may_be_opened(self) -> bool {
        match self.impostor {
            Impostor::RenamedFile => !self.is_for_member(),
            Impostor::RenamedDirectory => self.is_for_directory(),
            _ => false,
        }
    }

    fn is_for_directory(self) -> bool {
        self.place == ".members" || self.place.ends_with('+')
    }

    fn is_for_member(self) -> bool {
        self.place == MEMBER
    }

    fn is_sticky(self) -> bool {
        self.mode & 0o1000 != 0
    }

    /// Runs leasehold as the victim. An error says what was wrong.
    fn check(self, sandbox: &Sandbox) -> Result<(), String> {
        let folder = sandbox.path("store");
        let victims = sandbox.path("victims");
        self.make_folders(&folder, &victims);
        let holder = self.is_for_member().then(|| self.stopped_holder(sandbox));
        let at = match &holder {
            Some(_) => take_member(&folder),
            None => folder.join(self.place),
        };
        self.impostor.place(&at, &folder, &victims);

        let watched = [at, victims.join("team"), victims.join("empty")];
        let before = watched.each_ref().map(|path| State::of(path));
        let events = (!self.may_be_opened()).then(|| Events::of(&watched));
        let done = self.victim.tries(sandbox, self.name);

        let events = events.map_or_else(Vec::new, Events::read);
        let after = watched.each_ref().map(|path| State::of(path));
        if !events.is_empty() || after != before {
            return Err(format!("{events:?}, {after:?} was {before:?}"));
        }
        let is_refused = match holder {
            // The holder still has the lock file locked.
            Some(_) => done.code() == 75,
            None => [64, 70, 77].contains(&done.code()) && done.err.contains(self.place),
        };
        if !is_refused && !self.may_be_opened() {
            return Err(format!("{done:?}"));
        }
        Ok(())
    }

    /// Starts a process whose FIFO the attacker can remove. It is stopped, so that it does not
    /// notice that and join again, and not in the middle of a step, which would hold up the victim.
    fn stopped_holder(self, sandbox: &Sandbox) -> Started {
        let user = if self.is_sticky() {
            ATTACKER
        } else {
            self.victim
        };
        let holder = user.holder(sandbox, self.name);
        let in_steps = ["a.queue", ".counter"].map(|file| sandbox.path("store").join(file));
        until("it is stopped between two steps", || {
            holder.signal(Signal::SIGCONT);
            holder.signal(Signal::SIGSTOP);
            until("it is stopped", || is_stopped(holder.pid()));
            in_steps.iter().all(|file| is_unlocked(file))
        });
        holder
    }

    /// Makes the folder of the store, and one with files of the victim.
    fn make_folders(self, folder: &Path, victims: &Path) {
        for made in [folder, victims] {
            fs::remove_dir_all(made).ok();
        }
        let victim = self.victim.id;
        make_folder(folder, 0, TEAM, self.mode);
        make_folder(victims, victim, TEAM, 0o755);
        make_folder(&folder.join("folder"), victim, victim, 0o700);

        // With `fs.protected_hardlinks`, a user may link only files that they may write. Neither
        // mode is the one of files in the folder.
        let (writable, group) = match self.mode & 0o002 {
            0 => (0o666, victim),
            _ => (0o660, TEAM),
        };
        for (file, content, mode) in [
            (victims.join("team"), "secret of the team", writable),
            (victims.join("empty"), "", writable),
            (folder.join("private"), "secret", 0o600),
            (folder.join("folder/readable"), "secret", 0o644),
        ] {
            fs::write(&file, content).unwrap();
            chown(&file, Some(victim), Some(group)).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        }
    }
}

/// Whether no process is in a step that locks this file. A file that is not there is not locked.
fn is_unlocked(file: &Path) -> bool {
    fs::File::open(file).map_or(true, |opened| opened.try_lock().is_ok())
}

/// The properties that must stay.
#[derive(Debug, PartialEq)]
struct State {
    inode: u64,
    mode: u32,
    owner: (u32, u32),
    content: Option<Vec<u8>>,
}

impl State {
    /// `None` if the file is gone.
    fn of(path: &Path) -> Option<Self> {
        let status = fs::symlink_metadata(path).ok()?;
        Some(Self {
            inode: status.ino(),
            mode: status.mode(),
            owner: (status.uid(), status.gid()),
            content: status.is_file().then(|| fs::read(path).unwrap()),
        })
    }
}

/// Watches files: opening them, changes of the content and of attributes.
struct Events(OwnedFd);

impl Events {
    fn of(paths: &[PathBuf]) -> Self {
        use inotify::{CreateFlags, WatchFlags};

        let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
        let events =
            WatchFlags::OPEN | WatchFlags::ATTRIB | WatchFlags::MODIFY | WatchFlags::DONT_FOLLOW;
        for path in paths {
            inotify::add_watch(&watch, path, events).unwrap();
        }
        Self(watch)
    }

    fn read(self) -> Vec<inotify::ReadFlags> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => events.push(event.events()),
                Err(Errno::AGAIN) => return events,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
