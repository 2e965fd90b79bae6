//! A value that tasks wait for.
//!
//! It wakes the tasks in the order in which they came. The `watch` of tokio draws their order, so a
//! history in the simulated world would be another one each time.

use std::pin::pin;
use std::sync::Arc;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::sync::Notify;

/// A handle of the value.
#[derive(Debug)]
pub struct Watched<T>(Arc<WatchedValue<T>>);

#[derive(Debug)]
struct WatchedValue<T> {
    present: Mutex<Present<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct Present<T> {
    value: T,
    /// The number of changes.
    version: u64,
    is_closed: bool,
}

/// Nobody changes the value any more.
#[derive(Clone, Copy, Debug)]
pub struct Closed;

impl<T> Watched<T> {
    pub fn new(value: T) -> Self {
        Self(Arc::new(WatchedValue {
            present: Mutex::new(Present {
                value,
                version: 0,
                is_closed: false,
            }),
            changed: Notify::new(),
        }))
    }

    /// Returns the value, which is locked meanwhile.
    pub fn borrow(&self) -> MappedMutexGuard<'_, T> {
        MutexGuard::map(self.0.present.lock(), |present| &mut present.value)
    }

    pub fn set(&self, value: T) {
        let mut previous = value;
        self.set_if(|present| {
            std::mem::swap(present, &mut previous);
            true
        });
        // It ends here, without the lock: the end of a session does work of its own.
        drop(previous);
    }

    /// Changes the value; `change` returns whether it did.
    pub fn set_if(&self, change: impl FnOnce(&mut T) -> bool) {
        let mut present = self.0.present.lock();
        if change(&mut present.value) {
            present.version += 1;
            drop(present);
            self.0.changed.notify_waiters();
        }
    }

    /// Ends all waits that the present value does not end.
    pub fn close(&self) {
        self.0.present.lock().is_closed = true;
        self.0.changed.notify_waiters();
    }

    pub fn is_closed(&self) -> bool {
        self.0.present.lock().is_closed
    }

    /// Waits until the value is closed.
    pub async fn closed(&self) {
        let never = |_: &Present<T>| None::<()>;
        // Only the close ends this wait.
        let _ = self.wait(never).await;
    }

    pub fn version(&self) -> u64 {
        self.0.present.lock().version
    }

    /// Waits until the version is another one, and returns it.
    pub async fn changed_from(&self, version: u64) -> Result<u64, Closed> {
        let other = |present: &Present<T>| (present.version != version).then_some(present.version);
        self.wait(other).await
    }

    /// Waits for a value in which `find` finds something.
    pub async fn wait_for<R>(&self, find: impl Fn(&T) -> Option<R>) -> Result<R, Closed> {
        self.wait(|present| find(&present.value)).await
    }

    /// Waits until `find` finds something, or the value is closed.
    ///
    /// Each turn registers for the next change before it reads the value. A change between the two
    /// ends the registered wait, and the next turn reads it. In the other order that change would
    /// notify nobody, because `notify_waiters` is not remembered for a task that comes later. The
    /// task would sleep until the next change, and there may be none: a session that has just been
    /// opened may stay open for weeks.
    async fn wait<R>(&self, find: impl Fn(&Present<T>) -> Option<R>) -> Result<R, Closed> {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = self.find_or_closed(&find) {
                return found;
            }
            changed.await;
        }
    }

    fn find_or_closed<R>(
        &self,
        find: impl Fn(&Present<T>) -> Option<R>,
    ) -> Option<Result<R, Closed>> {
        let present = self.0.present.lock();
        match find(&present) {
            None if present.is_closed => Some(Err(Closed)),
            found => found.map(Ok),
        }
    }
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Closes a value at the end of a task.
pub struct CloseOnDrop<T>(pub Watched<T>);

impl<T> Drop for CloseOnDrop<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}
