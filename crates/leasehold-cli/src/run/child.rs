//! COMMAND, its process group, and its descendants.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus, getpid, wait};
use tokio::signal::unix::{SignalKind, signal};

use super::children::{Children, has_child_in};
use super::exec_shim::{self, Spawn};
use super::nested;
use super::process_table::{Process, ProcessTable};
use super::signals::end_by_real_time;
use super::stopping::{KILLED_MAX, still_run};
use super::watchdog::{Message, Watchdog};
use crate::exit::{Exit, print_error};

/// The running command, the process group that it leads, and all processes that it has started.
#[derive(Debug)]
pub(crate) struct Child {
    /// The id of the process and of its group.
    pid: Pid,
    changes: ChildSignals,
    /// The parent of the command, if it is not leasehold itself.
    watchdog: Option<Rc<Watchdog>>,
    /// Whether the end of the command was noted. Its id may then belong to another process or
    /// group.
    is_reaped: bool,
    /// The children of leasehold: the watchdog, or else the command and its orphaned descendants.
    children: Children,
    /// Children of leasehold that the command did not start, until they are reaped: their ids may
    /// then belong to any process.
    others: Vec<i32>,
}

/// A change of the command's state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Ended(Exit),
    Stopped(Signal),
    /// The command had already ended, and now all of its descendants have ended too.
    AllEnded,
    /// The watchdog has ended, by this signal of another process if there is one. leasehold is the
    /// parent of its children now.
    WatchdogEnded(Option<i32>),
}

impl Child {
    /// Starts the command. Must be called from the main thread, because the command is killed when
    /// the calling thread ends.
    ///
    /// From now on, if the parent of a descendant ends, the descendant becomes a child of
    /// leasehold.
    pub(crate) fn spawn(settings: Spawn<'_>) -> io::Result<Self> {
        let prepared = Prepared::new(&settings)?;
        let process = exec_shim::start(settings.preparation.arguments(settings.command))
            // The numbers of an outer run are none of this one.
            .env_remove(nested::SLOT)
            .envs(settings.environment)
            .spawn()?;
        Ok(prepared.child(process.id().cast_signed(), None))
    }

    /// Starts a watchdog that starts the command.
    ///
    /// `remaining` returns how long the hold stays valid.
    pub(crate) async fn spawn_guarded(
        settings: Spawn<'_>,
        remaining: impl Fn() -> Duration,
    ) -> io::Result<Self> {
        let mut prepared = Prepared::new(&settings)?;
        let watchdog = Watchdog::start(settings, remaining)?;
        let Some(pid) = prepared.changes.until_started(&watchdog).await? else {
            // The command may run already.
            let by = watchdog.reap();
            // leasehold returns an error, and releases the lock if none of them is left.
            let children = &prepared.children;
            let others = &prepared.others;
            let left = children.kill_descendants(watchdog.pid(), others, KILLED_MAX)?;
            if !left.is_empty() {
                return Err(io::Error::other(Unended(still_run(&left))));
            }
            end_by_real_time(by);
            return Err(io::Error::other(watchdog_ended(by)));
        };
        Ok(prepared.child(pid, Some(Rc::new(watchdog))))
    }

    /// The process group.
    pub(crate) fn group(&self) -> Pid {
        self.pid
    }

    pub(crate) fn watchdog(&self) -> Option<Rc<Watchdog>> {
        self.watchdog.clone()
    }

    /// Waits until the command ends or is stopped, and after its end for its descendants.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call returns a change that a dropped call has not returned.
    pub(crate) async fn changed(&mut self) -> io::Result<Change> {
        if let Some(watchdog) = self.watchdog() {
            return self.reported(&watchdog).await;
        }
        if self.is_reaped {
            self.descendants_ended().await?;
            return Ok(Change::AllEnded);
        }

        loop {
            match wait_for_any(WaitOptions::UNTRACED)? {
                Waited::Changed(pid, status) if pid == self.pid.as_raw() => {
                    if let Some(change) = self.note(status) {
                        return Ok(change);
                    }
                }
                // A descendant whose parent has ended. Nothing else would reap it.
                Waited::Changed(pid, status) => self.note_other(pid, status),
                Waited::None | Waited::NoChildren => self.changes.received().await,
            }
        }
    }

    /// Waits for a change that the watchdog reports, or for its end.
    async fn reported(&mut self, watchdog: &Watchdog) -> io::Result<Change> {
        loop {
            watchdog.check_stop();
            let own = [self.pid.as_raw(), watchdog.pid()];
            self.children.reap_except(&[&own, &*self.others].concat());
            if watchdog.all_ended() {
                return Ok(Change::AllEnded);
            }

            let message = tokio::select! {
                message = watchdog.receive() => message?,
                () = self.changes.received() => continue,
            };
            let Some(message) = message else {
                self.watchdog = None;
                return Ok(Change::WatchdogEnded(watchdog.reap()));
            };
            if self.is_outdated(message) {
                watchdog.send(Message::Noted);
            } else if let Some(change) = self.note_report(message) {
                watchdog.send(Message::Noted);
                return Ok(change);
            }
        }
    }

    /// Whether the command runs again after the stop that a message reports. leasehold was stopped
    /// with it, and has continued it before it could read the message.
    fn is_outdated(&self, message: Message) -> bool {
        let runs = || match Process::read(self.pid.as_raw()) {
            Ok(command) => command.is_some_and(|command| !command.is_stopped),
            // The message stands if the command cannot be read.
            Err(_) => false,
        };
        matches!(message, Message::Stopped(_)) && runs()
    }

    fn note_report(&mut self, message: Message) -> Option<Change> {
        let change = match message {
            Message::Stopped(signal) => Change::Stopped(Signal::try_from(signal).ok()?),
            Message::Exited(code) => Change::Ended(Exit::by_code(code)),
            Message::Killed(signal) => Change::Ended(Exit::Signal(signal)),
            Message::AllEnded => Change::AllEnded,
            _ => return None,
        };
        self.is_reaped |= matches!(change, Change::Ended(_));
        Some(change)
    }

    fn note(&mut self, status: WaitStatus) -> Option<Change> {
        if let Some(signal) = status.stopping_signal() {
            return Signal::try_from(signal).ok().map(Change::Stopped);
        }

        self.is_reaped = true;
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(Change::Ended(Exit::by_code(code))),
            (None, Some(signal)) => Some(Change::Ended(Exit::Signal(signal))),
            (None, None) => None,
        }
    }

    /// Notes a change of another child, whose id may belong to any process after its end.
    fn note_other(&mut self, pid: i32, status: WaitStatus) {
        if !status.stopped() {
            self.others.retain(|other| *other != pid);
        }
    }

    /// Waits until all descendants have ended. The kernel knows: as long as one runs, leasehold has
    /// a child. A list of `/proc` is read in steps, and misses one whose parent ends meanwhile.
    async fn descendants_ended(&mut self) -> io::Result<()> {
        loop {
            match wait_for_any(WaitOptions::empty())? {
                Waited::Changed(pid, status) => {
                    self.note_other(pid, status);
                    continue;
                }
                Waited::NoChildren => return Ok(()),
                // Descendants of the other children do not belong to the command, and may run
                // forever.
                Waited::None if !self.others.is_empty() && self.has_others_only() => return Ok(()),
                Waited::None => {}
            }

            self.changes.received().await;
        }
    }

    fn has_others_only(&self) -> bool {
        let children = self.children.except(&self.others);
        children.is_ok_and(|children| children.is_empty())
    }

    /// Whether the end of the command was noted.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_reaped
    }

    /// Returns the command, unless it has ended, and its descendants, as far as `/proc` shows them.
    pub(crate) fn left_over(&self) -> Vec<i32> {
        let descendants = self.descendants().unwrap_or_default();
        descendants.iter().map(|process| process.pid).collect()
    }

    /// Signals the command's group while the command runs. After that, signals all descendants.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.is_reaped {
            self.signal_all(signal);
        } else {
            // Fails if the whole group has ended.
            let _ = killpg(self.pid, signal);
        }
    }

    /// Signals the command and all its descendants, in other groups and sessions too.
    pub(crate) fn signal_all(&self, signal: Signal) {
        let descendants = self.descendants();
        // The group gets the signal at once, so none of its processes can escape by forking.
        let is_own_group = || descendants.is_err() && has_child_in(self.pid.as_raw());
        if !self.is_reaped || is_own_group() {
            // Fails if the whole group has ended.
            let _ = killpg(self.pid, signal);
        }

        let number = rustix::process::Signal::from_named_raw(signal as i32)
            .expect("both libraries know the same signals");
        let others = descendants.unwrap_or_default();
        others
            .into_iter()
            .filter(|process| self.is_reaped || process.group != self.pid.as_raw())
            .for_each(|process| process.signal(number));
    }

    /// Kills the command and all its descendants, also those that fork faster than `/proc` can be
    /// read, and those that it does not show.
    ///
    /// Only their parent finds them: the watchdog, which reports their end, or else leasehold.
    pub(crate) fn kill_all(&self, within: Duration) {
        self.signal_all(Signal::SIGKILL);
        if let Some(watchdog) = &self.watchdog {
            watchdog.send(Message::Kill);
            return;
        }

        // The next wait finds out which of them still run.
        let command = self.pid.as_raw();
        let killed = self
            .children
            .kill_descendants(command, &self.others, within);
        if let Err(error) = killed {
            print_error(format_args!("cannot find the command's processes: {error}"));
        }
    }

    fn descendants(&self) -> io::Result<Vec<Process>> {
        let mut found = ProcessTable::read()?.descendants(&[own_pid()], &self.others);
        if let Some(watchdog) = &self.watchdog {
            found.retain(|process| process.pid != watchdog.pid());
        }
        Ok(found)
    }
}

impl Drop for Child {
    /// Ends the watchdog. leasehold adopts its children then, such as a command that it has not
    /// reaped yet.
    fn drop(&mut self) {
        if self.watchdog.take().is_some() {
            self.children.reap_except(&[]);
        }
    }
}

/// An error after which the lock is not released: processes of the command still run after KILL.
#[derive(Debug)]
pub(crate) struct Unended(String);

impl std::error::Error for Unended {}

impl Display for Unended {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}; the lock is not released beside them",
            self.0
        )
    }
}

impl Unended {
    pub(crate) fn is_in(error: &anyhow::Error) -> bool {
        let error = error.downcast_ref::<io::Error>();
        matches!(error.and_then(io::Error::get_ref), Some(inner) if inner.is::<Self>())
    }
}

/// leasehold, ready to start a command.
struct Prepared {
    changes: ChildSignals,
    children: Children,
    others: Vec<i32>,
}

impl Prepared {
    fn new(settings: &Spawn<'_>) -> io::Result<Self> {
        let changes = ChildSignals::new()?;
        let children = Children::open()?;
        let others = children.at_start()?;
        for fd in settings.inheritable_fds {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        set_child_subreaper(true)?;
        Ok(Self {
            changes,
            children,
            others,
        })
    }

    fn child(self, pid: i32, watchdog: Option<Rc<Watchdog>>) -> Child {
        Child {
            pid: Pid::from_raw(pid),
            changes: self.changes,
            watchdog,
            is_reaped: false,
            children: self.children,
            others: self.others,
        }
    }
}

/// Reaps the orphans of a container if leasehold is its first process.
///
/// # Cancel safety
///
/// Cancel safe: it only reaps processes that have ended.
pub(crate) async fn reap_as_init() -> io::Result<std::convert::Infallible> {
    if own_pid() != 1 {
        return std::future::pending().await;
    }

    let mut changes = ChildSignals::new()?;
    loop {
        while let Waited::Changed(..) = wait_for_any(WaitOptions::empty())? {}
        changes.received().await;
    }
}

/// Reports each SIGCHLD.
#[derive(Debug)]
struct ChildSignals(tokio::signal::unix::Signal);

impl ChildSignals {
    fn new() -> io::Result<Self> {
        signal(SignalKind::child()).map(Self)
    }

    async fn received(&mut self) {
        self.0.recv().await;
    }

    /// Waits for the next message of the watchdog, which must not stay stopped meanwhile. Returns
    /// `None` if the watchdog has ended.
    async fn until_report(&mut self, watchdog: &Watchdog) -> io::Result<Option<Message>> {
        loop {
            watchdog.check_stop();
            tokio::select! {
                message = watchdog.receive() => return message,
                () = self.received() => {}
            }
        }
    }

    /// Waits until the watchdog has started the command. Returns the command's id, or `None` if the
    /// watchdog has ended.
    async fn until_started(&mut self, watchdog: &Watchdog) -> io::Result<Option<i32>> {
        loop {
            match self.until_report(watchdog).await? {
                Some(Message::Started(command)) => return Ok(Some(command)),
                Some(Message::NotStarted(errno)) => {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

enum Waited {
    Changed(i32, WaitStatus),
    /// No child has changed its state.
    None,
    NoChildren,
}

fn wait_for_any(options: WaitOptions) -> io::Result<Waited> {
    loop {
        match wait(WaitOptions::NOHANG | options) {
            Ok(Some((pid, status))) => return Ok(Waited::Changed(pid.as_raw_pid(), status)),
            Ok(None) => return Ok(Waited::None),
            Err(Errno::CHILD) => return Ok(Waited::NoChildren),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// What messages say of a watchdog that has ended. If no signal has ended it, it has failed, and has
/// printed why.
pub(super) fn watchdog_ended(by: Option<i32>) -> &'static str {
    match by {
        Some(_) => "the watchdog of the command was killed",
        None => "the watchdog of the command has ended",
    }
}

fn own_pid() -> i32 {
    getpid().as_raw_pid()
}
