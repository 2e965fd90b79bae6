//! The requests whose callers wait, or whose replies they have not taken yet.

use std::task::Waker;

use crate::client::value::Value;

/// The calls of a connection. A number is used again, so that a request needs no allocation.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<CallState>,
    /// The numbers that no call has.
    free: Vec<usize>,
}

#[derive(Debug)]
pub(super) enum CallState {
    Free,
    /// The waker is that of the caller, once it waits.
    Waiting(Option<Waker>),
    Done(Value),
    /// The caller has taken the reply.
    Taken,
    /// The caller no longer waits, and the reply is still to come.
    Abandoned,
}

impl Calls {
    pub(super) fn add(&mut self) -> usize {
        let waiting = CallState::Waiting(None);
        if let Some(call) = self.free.pop() {
            self.calls[call] = waiting;
            return call;
        }
        self.calls.push(waiting);
        self.calls.len() - 1
    }

    /// Notes the reply, and returns who waits for it. The reply of an abandoned call is dropped.
    pub(super) fn complete(&mut self, call: usize, reply: Value) -> Option<Waker> {
        match &mut self.calls[call] {
            CallState::Waiting(waker) => {
                let waker = waker.take();
                self.calls[call] = CallState::Done(reply);
                waker
            }
            CallState::Abandoned => {
                self.release(call);
                None
            }
            CallState::Free | CallState::Done(_) | CallState::Taken => {
                unreachable!("a call has one reply")
            }
        }
    }

    /// Takes the reply, or notes who waits for it. Also returns the waker of an earlier poll:
    /// whoever has locked the calls drops it after that, because it may own a task with a call.
    pub(super) fn poll(&mut self, call: usize, waker: &Waker) -> (Option<Value>, Option<Waker>) {
        match &mut self.calls[call] {
            CallState::Waiting(Some(present)) if present.will_wake(waker) => (None, None),
            CallState::Waiting(present) => (None, present.replace(waker.clone())),
            done @ CallState::Done(_) => match std::mem::replace(done, CallState::Taken) {
                CallState::Done(reply) => (Some(reply), None),
                _ => unreachable!("it is done"),
            },
            CallState::Free | CallState::Taken | CallState::Abandoned => (None, None),
        }
    }

    /// Ends the wait of a caller. Returns what it leaves behind, which is dropped as [`poll`] says.
    ///
    /// [`poll`]: Self::poll
    pub(super) fn abandon(&mut self, call: usize) -> CallState {
        match &mut self.calls[call] {
            waiting @ CallState::Waiting(_) => std::mem::replace(waiting, CallState::Abandoned),
            CallState::Done(_) | CallState::Taken => self.release(call),
            CallState::Free | CallState::Abandoned => CallState::Free,
        }
    }

    /// Whether a caller waits for a reply.
    pub(super) fn any_waits(&self) -> bool {
        let waits = |call: &CallState| matches!(call, CallState::Waiting(_));
        self.calls.iter().any(waits)
    }

    /// Returns who waits.
    pub(super) fn wakers(&mut self) -> Vec<Waker> {
        let waiting = self.calls.iter_mut().filter_map(|call| match call {
            CallState::Waiting(waker) => waker.take(),
            CallState::Free | CallState::Done(_) | CallState::Taken | CallState::Abandoned => None,
        });
        waiting.collect()
    }

    /// How many calls there are.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.calls.len() - self.free.len()
    }

    fn release(&mut self, call: usize) -> CallState {
        self.free.push(call);
        std::mem::replace(&mut self.calls[call], CallState::Free)
    }
}
