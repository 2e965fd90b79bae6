//! The requests whose callers wait, or whose replies they have not taken yet.

use std::task::Waker;

use crate::client::value::Value;

/// The calls of a connection. A number is used again, so that a request needs no allocation.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The numbers that no call has.
    free: Vec<usize>,
}

#[derive(Debug)]
pub(super) enum Call {
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
        let waiting = Call::Waiting(None);
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
            Call::Waiting(waker) => {
                let waker = waker.take();
                self.calls[call] = Call::Done(reply);
                waker
            }
            Call::Abandoned => {
                self.release(call);
                None
            }
            Call::Free | Call::Done(_) | Call::Taken => unreachable!("a call has one reply"),
        }
    }

    /// Takes the reply, or notes who waits for it. Also returns the waker of an earlier poll:
    /// whoever has locked the calls drops it after that, because it may own a task with a call.
    pub(super) fn poll(&mut self, call: usize, waker: &Waker) -> (Option<Value>, Option<Waker>) {
        match &mut self.calls[call] {
            Call::Waiting(Some(present)) if present.will_wake(waker) => (None, None),
            Call::Waiting(present) => (None, present.replace(waker.clone())),
            done @ Call::Done(_) => match std::mem::replace(done, Call::Taken) {
                Call::Done(reply) => (Some(reply), None),
                _ => unreachable!("it is done"),
            },
            Call::Free | Call::Taken | Call::Abandoned => (None, None),
        }
    }

    /// Ends the wait of a caller. Returns what it leaves behind, which is dropped as [`poll`] says.
    ///
    /// [`poll`]: Self::poll
    pub(super) fn abandon(&mut self, call: usize) -> Call {
        match &mut self.calls[call] {
            waiting @ Call::Waiting(_) => std::mem::replace(waiting, Call::Abandoned),
            Call::Done(_) | Call::Taken => self.release(call),
            Call::Free | Call::Abandoned => Call::Free,
        }
    }

    /// Returns who waits.
    pub(super) fn wakers(&mut self) -> Vec<Waker> {
        let waiting = self.calls.iter_mut().filter_map(|call| match call {
            Call::Waiting(waker) => waker.take(),
            Call::Free | Call::Done(_) | Call::Taken | Call::Abandoned => None,
        });
        waiting.collect()
    }

    /// How many calls there are.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.calls.len() - self.free.len()
    }

    fn release(&mut self, call: usize) -> Call {
        self.free.push(call);
        std::mem::replace(&mut self.calls[call], Call::Free)
    }
}
