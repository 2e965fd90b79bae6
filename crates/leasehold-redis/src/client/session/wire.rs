//! The requests and replies of one connection.
//!
//! The task that sends a request also writes it, and one task reads: the driver. A task that reads
//! for others could hang them, because nothing says that it is polled again. For the same reason,
//! nobody relies on another caller to write: what a caller leaves in the buffer, the driver writes.
//! The crate `redis` passes each request through a channel to a task, which takes 12 allocations a
//! pair, and it bounds no reply. So the session is leasehold's own.
//!
//! ```text
//!   caller: append ──► requests ──► output ──► server        the first request, or the eighth
//!                          └── driver, one turn later ──►    those between
//!   driver: server ──► reader ──► call of the oldest request ──► wakes its caller
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio::time::Sleep;

use super::calls::Calls;
use super::{INVALIDATION, PushHandler};
use crate::client::reader::{Frame, LOGIN_REPLY_MAX, REPLY_MAX, Reader};
use crate::client::request::{Command, Malformed, Request, RequestError, command};
use crate::client::value::{ServerError, Value};

/// How many requests may wait for their replies. More callers wait until they may send.
const REQUESTS_MAX: usize = 4096;
/// After this many requests a caller does not wait for those of other tasks. The server executes
/// them while this client writes the next ones.
const FLIGHT: usize = 8;
/// How long a login that cannot be written waits for what the server said before it closed.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How much memory of a buffer is kept after it was written.
const BUFFER_KEPT: usize = 64 << 10;

/// One connection, as those see it who send requests.
pub(super) struct Wire {
    state: Mutex<State>,
    /// Locked by whoever has set [`Writing::Active`], and to close the connection. It is locked
    /// before the state, never after it.
    output: Mutex<Option<Output>>,
    /// One permit for each request that may be appended.
    places: Semaphore,
}

struct State {
    /// Why the connection has ended.
    broken: Option<RequestError>,
    /// Why nothing more is written. The driver still reads, because a server that ends a login says
    /// why.
    unwritable: Option<RequestError>,
    /// The requests that nobody has begun to write, and how many they are.
    requests: Vec<u8>,
    count: usize,
    writing: Writing,
    /// Whether the driver was woken for the requests, and has let others go first.
    planned: Planned,
    /// The driver is woken by it when it has something to do, or the stream can be written.
    driver: Option<Waker>,
    /// Who receives the next replies.
    expected: VecDeque<Expected>,
    calls: Calls,
    /// The number of replies.
    replied: u64,
    is_logged_in: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Idle,
    /// A thread writes, and takes all requests that are appended meanwhile. `again` if the stream
    /// may have become writable since it has tried.
    Active {
        again: bool,
    },
    /// The stream takes no more bytes. It wakes the driver, which continues.
    Blocked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planned {
    No,
    Woken,
    /// The driver was polled, and let the tasks run that could.
    Yielded,
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    /// The reply to a call.
    Reply(usize),
    /// The confirmation of a subscription, which RESP3 pushes.
    Confirmation(usize),
    /// The reply to a request that belongs to the next one.
    Ignored,
}

/// The end of the stream that is written.
struct Output {
    stream: Box<dyn AsyncWrite + Send + Unpin>,
    bytes: Vec<u8>,
    written: usize,
    is_flushed: bool,
}

/// What a connection pushes, besides replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushes {
    /// RESP3: pushes between the replies.
    Marked,
    /// RESP2 with a subscription: messages look like replies.
    Unmarked,
    /// RESP2 without a subscription.
    None,
}

impl Wire {
    /// Returns a connection, and what drives it.
    pub(super) fn new<R>(
        reader: R,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        pushes: Pushes,
        on_push: PushHandler,
    ) -> (Arc<Self>, Driver<R>) {
        let wire = Arc::new(Self {
            state: Mutex::new(State {
                broken: None,
                unwritable: None,
                requests: Vec::new(),
                count: 0,
                writing: Writing::Idle,
                planned: Planned::No,
                driver: None,
                expected: VecDeque::new(),
                calls: Calls::default(),
                replied: 0,
                is_logged_in: false,
            }),
            output: Mutex::new(Some(Output {
                stream: Box::new(writer),
                bytes: Vec::new(),
                written: 0,
                is_flushed: true,
            })),
            places: Semaphore::new(REQUESTS_MAX),
        });
        let driver = Driver {
            wire: Arc::clone(&wire),
            stream: reader,
            reader: Reader::new(),
            pushes,
            on_push,
            last_words: None,
        };
        (wire, driver)
    }

    /// Sends a request and waits for its reply, which may be an error of the server.
    ///
    /// # Cancel safety
    /// Before the first poll nothing was sent. After it, the request is sent even if the future is
    /// dropped, and its reply is ignored.
    pub(super) async fn send(&self, request: &impl Request) -> Result<Value, RequestError> {
        self.place().await?;
        let write = |requests: &mut Vec<u8>| request.write(requests);
        let call = self.append(Expected::Reply, None, write)?;
        Reply { wire: self, call }.await
    }

    /// Sends `ASKING` and a request in one write: it holds for the next request of the connection.
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub(super) async fn send_asking(&self, request: &impl Request) -> Result<Value, RequestError> {
        self.place().await?;
        let write = |requests: &mut Vec<u8>| {
            command("ASKING").write(requests);
            request.write(requests);
        };
        let call = self.append(Expected::Reply, Some(Expected::Ignored), write)?;
        Reply { wire: self, call }.await
    }

    /// Sends a request whose reply is a confirmation of a subscription.
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub(super) async fn subscribe(&self, request: &Command) -> Result<Value, RequestError> {
        self.place().await?;
        let write = |requests: &mut Vec<u8>| request.write(requests);
        let call = self.append(Expected::Confirmation, None, write)?;
        Reply { wire: self, call }.await
    }

    /// Returns whether a caller waits for a reply, and the number of replies.
    pub(super) fn progress(&self) -> (bool, u64) {
        let state = self.state.lock();
        (state.calls.any_waits(), state.replied)
    }

    /// From now on, replies may be large.
    pub(super) fn logged_in(&self) {
        self.state.lock().is_logged_in = true;
    }

    /// Ends the connection: all requests without a reply fail. Only the first error counts.
    pub(super) fn fail(&self, error: RequestError) {
        let wakers = {
            let mut state = self.state.lock();
            if state.broken.is_some() {
                return;
            }
            state.broken = Some(error);
            state.requests = Vec::new();
            state.expected = VecDeque::new();
            let mut wakers = state.calls.wakers();
            wakers.extend(state.driver.take());
            wakers
        };
        self.places.close();

        // The server sees the end even if nobody polls the driver.
        let output = self.output.lock().take();
        drop(output);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Why the connection has ended.
    fn broken(&self) -> Option<RequestError> {
        self.state.lock().broken.clone()
    }

    /// Waits until one more request may be sent. The permit comes back with the reply.
    async fn place(&self) -> Result<(), RequestError> {
        if let Ok(place) = self.places.try_acquire() {
            place.forget();
            return Ok(());
        }
        // Rare, so its future is not a part of that of every request.
        match Box::pin(self.places.acquire()).await {
            Ok(place) => {
                place.forget();
                Ok(())
            }
            Err(_closed) => Err(self.broken().unwrap_or_else(RequestError::closed)),
        }
    }

    /// Appends a request, and sees to it that it is written. Returns the call that receives the
    /// reply.
    fn append(
        &self,
        expected: fn(usize) -> Expected,
        before: Option<Expected>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<usize, RequestError> {
        let mut state = self.state.lock();
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        let is_first = state.expected.is_empty();
        write(&mut state.requests);
        state.count += 1;
        let call = state.calls.add();
        state.expected.extend(before);
        state.expected.push_back(expected(call));

        if state.writing != Writing::Idle || state.driver.is_none() {
            // Whoever writes takes this request too, and the driver begins with what is there.
            return Ok(call);
        }
        if is_first || state.count >= FLIGHT {
            state.writing = Writing::Active { again: false };
            drop(state);
            self.write();
        } else if state.planned == Planned::No {
            state.planned = Planned::Woken;
            let driver = state.driver.clone();
            drop(state);
            if let Some(driver) = driver {
                driver.wake();
            }
        }
        Ok(call)
    }

    /// Writes until all requests are written or the stream takes no more. The caller has set
    /// [`Writing::Active`].
    fn write(&self) {
        let mut locked = self.output.lock();
        let Some(output) = locked.as_mut() else {
            return;
        };
        let error = loop {
            let Some(driver) = self.next_requests(output) else {
                return;
            };
            match output.poll_write_all(&mut Context::from_waker(&driver)) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => break error,
                Poll::Pending => {
                    let mut state = self.state.lock();
                    if state.writing == (Writing::Active { again: false }) {
                        state.writing = Writing::Blocked;
                        return;
                    }
                    state.writing = Writing::Active { again: false };
                }
            }
        };
        drop(locked);
        self.write_failed(RequestError::broken(error));
    }

    /// Ends the connection. During the login, the driver ends it when it has read what has arrived.
    #[cold]
    fn write_failed(&self, error: RequestError) {
        let mut state = self.state.lock();
        match &state.driver {
            Some(driver) if !state.is_logged_in => {
                let driver = driver.clone();
                state.unwritable = Some(error);
                drop(state);
                driver.wake();
            }
            _ => {
                drop(state);
                self.fail(error);
            }
        }
    }

    /// Gives the appended requests to the output if it has written the previous ones. Returns the
    /// waker of the driver, or `None` if there is nothing to write.
    fn next_requests(&self, output: &mut Output) -> Option<Waker> {
        let mut state = self.state.lock();
        if output.is_done() {
            if state.requests.is_empty() || state.broken.is_some() {
                state.writing = Writing::Idle;
                return None;
            }
            output.begin(&mut state.requests);
            state.count = 0;
            state.planned = Planned::No;
        }
        state.driver.clone()
    }

    /// Writes what callers have left to the driver. Returns how large the next reply may be.
    fn poll_write(&self, context: &mut Context<'_>) -> usize {
        let mut state = self.state.lock();
        let driver = state.driver.get_or_insert_with(|| context.waker().clone());
        driver.clone_from(context.waker());
        let largest = if state.is_logged_in {
            REPLY_MAX
        } else {
            LOGIN_REPLY_MAX
        };

        match (state.writing, state.planned) {
            (Writing::Active { .. }, _) => state.writing = Writing::Active { again: true },
            (Writing::Idle, _) if state.requests.is_empty() => {}
            (Writing::Idle, Planned::Woken) => {
                // Tasks that can run may have more requests for the same write.
                state.planned = Planned::Yielded;
                context.waker().wake_by_ref();
            }
            (Writing::Idle | Writing::Blocked, _) => {
                state.writing = Writing::Active { again: false };
                drop(state);
                self.write();
            }
        }
        largest
    }

    /// Gives a reply to the oldest request.
    fn complete(&self, reply: Value) -> Result<(), Malformed> {
        let mut state = self.state.lock();
        let expected = state.expected.pop_front().ok_or(Malformed::Unrequested)?;
        state.replied += 1;
        let call = match expected {
            Expected::Reply(call) | Expected::Confirmation(call) => call,
            Expected::Ignored => return Ok(()),
        };
        let waker = state.calls.complete(call, reply);
        drop(state);

        self.places.add_permits(1);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Whether the next reply is the confirmation of a subscription.
    fn expects_confirmation(&self) -> bool {
        let state = self.state.lock();
        matches!(state.expected.front(), Some(Expected::Confirmation(_)))
    }

    /// Gives the oldest request the beginning of an error, if that is all that a server has sent
    /// before it closed the connection during the login.
    fn complete_cut(&self, rest: &[u8]) {
        let Some(text) = rest.strip_prefix(b"-") else {
            return;
        };
        if !self.state.lock().is_logged_in {
            let error = ServerError::new(text.trim_ascii_end());
            // Without a request, nobody needs to know it.
            let _ = self.complete(Value::Error(error));
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Wire")
            .field("broken", &state.broken)
            .field("expected", &state.expected.len())
            .finish_non_exhaustive()
    }
}

impl Output {
    fn is_done(&self) -> bool {
        self.written == self.bytes.len() && self.is_flushed
    }

    /// Takes the next bytes, and leaves an empty buffer.
    fn begin(&mut self, requests: &mut Vec<u8>) {
        self.bytes.clear();
        if self.bytes.capacity() > BUFFER_KEPT {
            self.bytes = Vec::new();
        }
        std::mem::swap(&mut self.bytes, requests);
        self.written = 0;
        self.is_flushed = false;
    }

    /// TLS keeps bytes until it is flushed.
    fn poll_write_all(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.bytes.len() {
            let stream = Pin::new(&mut self.stream);
            let count = ready!(stream.poll_write(context, &self.bytes[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.is_flushed = true;
        Poll::Ready(Ok(()))
    }
}

/// The reply to a request that was appended.
struct Reply<'a> {
    wire: &'a Wire,
    call: usize,
}

impl Future for Reply<'_> {
    type Output = Result<Value, RequestError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.wire.state.lock();
        let (reply, _earlier) = state.calls.poll(self.call, context.waker());
        let broken = state.broken.clone();
        drop(state);

        match (reply, broken) {
            (Some(reply), _) => Poll::Ready(Ok(reply)),
            (None, Some(broken)) => Poll::Ready(Err(broken)),
            (None, None) => Poll::Pending,
        }
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        let left = self.wire.state.lock().calls.abandon(self.call);
        drop(left);
    }
}

/// Reads the replies of a connection. The connection ends with it.
pub(super) struct Driver<R> {
    wire: Arc<Wire>,
    stream: R,
    reader: Reader,
    pushes: Pushes,
    on_push: PushHandler,
    /// Runs from a failed write of the login on.
    last_words: Option<Pin<Box<Sleep>>>,
}

impl<R: AsyncRead + Unpin> Driver<R> {
    pub(super) fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    pub(super) fn pushes(&self) -> Pushes {
        self.pushes
    }

    /// Drives the connection until it ends.
    pub(super) async fn drive(mut self) {
        let error = std::future::poll_fn(|context| self.poll_end(context)).await;
        self.wire.complete_cut(self.reader.rest());
        self.wire.fail(error);
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<RequestError> {
        let largest = self.wire.poll_write(context);
        // A write may have failed, of this task or of a caller.
        if let Some(broken) = self.wire.broken() {
            return Poll::Ready(broken);
        }
        loop {
            let mut space = ReadBuf::new(self.reader.space());
            let read = Pin::new(&mut self.stream).poll_read(context, &mut space);
            let count = space.filled().len();
            let Poll::Ready(read) = read else {
                return self.poll_last_words_end(context);
            };
            match read {
                Err(error) => return Poll::Ready(RequestError::broken(error)),
                Ok(()) if count == 0 => return Poll::Ready(RequestError::ended()),
                Ok(()) => self.reader.add(count),
            }
            if let Err(error) = self.receive(largest) {
                return Poll::Ready(error.into());
            }
        }
    }

    /// Ends a connection that cannot be written a moment after the write has failed. The kernel may
    /// have received the last words of the server before the runtime has said so to this task.
    fn poll_last_words_end(&mut self, context: &mut Context<'_>) -> Poll<RequestError> {
        let Some(unwritable) = self.wire.state.lock().unwritable.clone() else {
            return Poll::Pending;
        };
        let new = || Box::pin(tokio::time::sleep(LAST_WORDS));
        let last_words = self.last_words.get_or_insert_with(new);
        last_words.as_mut().poll(context).map(|()| unwritable)
    }

    /// Handles the replies and messages that are complete.
    fn receive(&mut self, largest: usize) -> Result<(), Malformed> {
        while let Some(frame) = self.reader.next(largest)? {
            let is_message = match self.pushes {
                Pushes::Marked => frame.is_push(),
                Pushes::Unmarked => frame.word() == Some(b"message"),
                Pushes::None => false,
            };
            if is_message {
                receive_push(&self.wire, frame, &self.on_push)?;
            } else {
                self.wire.complete(frame.parse()?)?;
            }
        }
        Ok(())
    }
}

fn receive_push(wire: &Wire, frame: Frame<'_>, on_push: &PushHandler) -> Result<(), Malformed> {
    if let Some((channel, text)) = frame.message() {
        on_push(channel, text);
        return Ok(());
    }
    match frame.word() {
        Some(b"invalidate") => on_push(INVALIDATION, ""),
        Some(b"subscribe" | b"unsubscribe") if wire.expects_confirmation() => {
            return wire.complete(Value::Nil);
        }
        _ => {}
    }
    Ok(())
}

impl<R> Drop for Driver<R> {
    fn drop(&mut self) {
        self.wire.fail(RequestError::closed());
    }
}

#[cfg(test)]
mod tests;
