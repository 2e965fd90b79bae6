//! The runtime of the caller whose request is being polled.

use std::cell::Cell;

use tokio::runtime::{Handle, Id};

/// Returns the runtime that polls the public method; `None` if no runtime does.
pub fn caller_runtime() -> Option<Id> {
    match CALLER.get() {
        Caller::Current => current_runtime(),
        Caller::Runtime(id) => Some(id),
        Caller::NoRuntime => None,
    }
}

/// Records the caller's runtime until it is dropped.
pub(crate) struct CallerScope {
    previous: Caller,
}

impl CallerScope {
    /// Records the current runtime, unless an outer scope has recorded one.
    pub(crate) fn begin() -> Self {
        let previous = CALLER.get();
        if let Caller::Current = previous {
            CALLER.set(current_runtime().map_or(Caller::NoRuntime, Caller::Runtime));
        }
        Self { previous }
    }

    /// Records that requests come from a blocked thread, which drives no connection.
    pub(crate) fn begin_blocking() -> Self {
        let previous = CALLER.replace(Caller::NoRuntime);
        Self { previous }
    }
}

impl Drop for CallerScope {
    fn drop(&mut self) {
        CALLER.set(self.previous);
    }
}

/// The runtime around the outermost [`CallerScope`] of this thread.
#[derive(Clone, Copy)]
enum Caller {
    /// Without a scope it is the runtime that runs this code.
    Current,
    Runtime(Id),
    NoRuntime,
}

thread_local! {
    static CALLER: Cell<Caller> = const { Cell::new(Caller::Current) };
}

fn current_runtime() -> Option<Id> {
    Handle::try_current().ok().map(|handle| handle.id())
}
