//! How `leasehold release` and `leasehold check` reach the process that holds a lock.
//!
//! The holder listens on an abstract Unix socket that is named after a hash of its claim id. Such a
//! socket needs neither a file nor a folder on which `acquire` and `release` must agree. Both sides
//! compare the user of the other process, which the kernel reports. So neither trusts a process of
//! another user that has taken the address. All users can list the addresses, and not the claim ids:
//! a request is the id itself, which only users who can read the store know.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::time::Duration;

use anyhow::Result;
use leasehold::{ClaimId, Error};
use nix::errno::Errno;
use nix::unistd::geteuid;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

/// How long the holder waits for a request. A client sends its request at once, so only a stopped
/// client takes longer.
const REQUEST_MAX: Duration = Duration::from_secs(1);
/// How long a client waits for the reply. The holder gives up on a silent store sooner, so only a
/// stopped holder takes longer.
const REPLY_MAX: Duration = Duration::from_secs(30);
/// How long a check waits for the reply, which the holder has at once. A stopped holder does not
/// reply, and the store still says whether the lock is held.
const CHECK_MAX: Duration = Duration::from_secs(1);
/// How long to pause after accepting a connection has failed: there may be no free descriptor.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The holder's side: a socket that receives requests.
///
/// A request is a letter, and the claim id as text.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    claim: ClaimId,
}

const RELEASE: char = 'r';
const CHECK: char = 'c';

/// The letter, and the 32 hexadecimal digits of a claim id.
const REQUEST_LENGTH: usize = 33;

/// A request to release the lock, which waits for a reply.
#[derive(Debug)]
pub(crate) struct ReleaseRequest(UnixStream);

/// The outcome of a release request. Its number is the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Released = 0,
    /// It was lost before the request.
    Lost = 1,
    /// The store has not confirmed the release. The lock becomes free when its lease ends.
    Unconfirmed = 2,
}

/// The reply to a check, and no [`Outcome`].
const HELD: u8 = 3;

impl Control {
    /// Listens for requests to release the hold of `claim`.
    pub(crate) fn listen(claim: ClaimId) -> Result<Self> {
        let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(address(claim))?)
            .map_err(|error| socket_error(error, "cannot listen for `leasehold release`"))?;
        listener.set_nonblocking(true)?;

        Ok(Self {
            listener: UnixListener::from_std(listener)?,
            claim,
        })
    }

    /// Waits for a request from the same user to release the same claim. Meanwhile, replies to
    /// checks with `is_held`.
    ///
    /// # Cancel safety
    /// A dropped call closes the connection of a client that has sent no complete request.
    pub(crate) async fn release_request(&self, is_held: impl Fn() -> bool) -> ReleaseRequest {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                sleep(ACCEPT_RETRY).await;
                continue;
            };
            if !is_same_user(&stream) {
                continue;
            }

            match timeout(REQUEST_MAX, self.read_request(&mut stream)).await {
                Ok(Ok(ControlRequest::Release)) => return ReleaseRequest(stream),
                Ok(Ok(ControlRequest::Check)) => {
                    let reply = if is_held() { HELD } else { Outcome::Lost as u8 };
                    // The client may have ended.
                    let _ = stream.write_u8(reply).await;
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }

    async fn read_request(&self, stream: &mut UnixStream) -> io::Result<ControlRequest> {
        let mut request = [0; REQUEST_LENGTH];
        stream.read_exact(&mut request).await?;

        if request == *request_text(RELEASE, self.claim).as_bytes() {
            Ok(ControlRequest::Release)
        } else if request == *request_text(CHECK, self.claim).as_bytes() {
            Ok(ControlRequest::Check)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    /// Replies to all requests that the lock is lost.
    pub(crate) async fn reply_lost(&self) -> Infallible {
        loop {
            self.release_request(|| false)
                .await
                .reply(Outcome::Lost)
                .await;
        }
    }
}

enum ControlRequest {
    Release,
    Check,
}

impl ReleaseRequest {
    pub(crate) async fn reply(mut self, outcome: Outcome) {
        // The client may have ended. The lock is released all the same.
        let _ = self.0.write_u8(outcome as u8).await;
    }
}

/// Requests a release from the holder of a claim. Returns `None` if no such process listens.
///
/// # Cancel safety
/// A dropped call may have released the lock.
pub(crate) async fn request_release(claim: ClaimId) -> Result<Option<Outcome>> {
    match timeout(REPLY_MAX, exchange(RELEASE, claim)).await {
        Ok(reply) => Ok(reply?.and_then(Outcome::from_byte)),
        Err(_elapsed) => Ok(Some(Outcome::Unconfirmed)),
    }
}

/// Returns whether the holder of a claim still has it, by its own clock; `None` if no such process
/// replies.
pub(crate) async fn still_held(claim: ClaimId) -> Result<Option<bool>> {
    match timeout(CHECK_MAX, exchange(CHECK, claim)).await {
        Ok(reply) => Ok(reply?.map(|reply| reply == HELD)),
        Err(_elapsed) => Ok(None),
    }
}

/// Sends a request to the holder of a claim. Returns `None` if no such process listens, or if it
/// ends before it replies.
async fn exchange(letter: char, claim: ClaimId) -> Result<Option<u8>> {
    let mut stream = match connected(claim).await {
        Ok(socket) => UnixStream::from_std(socket.into())?,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) => return Err(socket_error(error, "cannot ask the process of the hold")),
    };
    if !is_same_user(&stream) {
        return Ok(None);
    }

    let request = request_text(letter, claim);
    if stream.write_all(request.as_bytes()).await.is_err() {
        return Ok(None);
    }
    Ok(stream.read_u8().await.ok())
}

/// Connects to the process. The queue of its socket may be full, because it is stopped, or another
/// user has taken the address: the caller limits how long this tries.
async fn connected(claim: ClaimId) -> io::Result<OwnedFd> {
    const PAUSE: Duration = Duration::from_millis(20);

    let address = SocketAddrUnix::new_abstract_name(address(claim).as_bytes())?;
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(rustix::io::Errno::AGAIN) => sleep(PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
}

impl Outcome {
    pub(crate) fn of(released: &leasehold::Result<()>) -> Self {
        match released {
            Ok(()) => Self::Released,
            Err(error) if error.is_lost() => Self::Lost,
            Err(_) => Self::Unconfirmed,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Released, Self::Lost, Self::Unconfirmed]
            .into_iter()
            .find(|outcome| *outcome as u8 == byte)
    }
}

fn request_text(letter: char, claim: ClaimId) -> String {
    format!("{letter}{claim}")
}

/// The abstract address of the process of a claim.
fn address(claim: ClaimId) -> String {
    let hash = sha1_smol::Sha1::from(claim.to_string()).digest();
    format!("leasehold/{hash}")
}

/// A socket that cannot be made says nothing about the process at its other end.
fn socket_error(error: io::Error, action: &str) -> anyhow::Error {
    let forbidden = [Errno::EAFNOSUPPORT, Errno::EPERM, Errno::EACCES].map(|errno| errno as i32);
    if !error
        .raw_os_error()
        .is_some_and(|errno| forbidden.contains(&errno))
    {
        return anyhow::Error::new(error).context(action.to_owned());
    }
    let message = format!("{action}: this process may not use Unix sockets");
    Error::denied(message)
        .help("in a unit of systemd, add AF_UNIX to RestrictAddressFamilies=")
        .into()
}

fn is_same_user(stream: &UnixStream) -> bool {
    let own = geteuid().as_raw();
    let peer = stream.peer_cred();
    peer.is_ok_and(|peer| peer.uid() == own) && has_number(own)
}

/// Whether a user has a number in this user namespace. The kernel reports one and the same number
/// for all users that have none, as in a sandbox of `unshare -U`.
fn has_number(user: u32) -> bool {
    let Ok(map) = fs::read_to_string("/proc/self/uid_map") else {
        return user != OVERFLOW_USER;
    };
    map.lines().any(|line| {
        let numbers: Vec<u32> = line.split_whitespace().flat_map(str::parse).collect();
        matches!(numbers[..], [first, _, count] if user.checked_sub(first).is_some_and(|at| at < count))
    })
}

/// The usual number of all users without one: `user_namespaces(7)`.
const OVERFLOW_USER: u32 = 65_534;
