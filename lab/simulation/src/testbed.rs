//! Servers of Redis, wires in front of them, and processes, in the virtual time of one test.
//!
//! The first server of a test stops the clock of its runtime, and the library on the thread of the
//! test then follows that clock: a test of the real clients and scripts waits for hours of leases
//! in a moment. The names are those of the real parts in `lab-servers`, so a source of tests can
//! run on both.
//!
//! ```
//! use std::time::Duration;
//! use lab_simulation::testbed::Redis;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! let server = Redis::start();
//! let locks = leasehold::open(&server.url()).await?;
//! let guard = locks.mutex("job").acquire().await?;
//! tokio::time::sleep(Duration::from_secs(3_600)).await;
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! Everything of a test runs on one thread, so the blocking API has no place here.

mod process;
mod redis;
mod wire;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold::simulation::{self, BackgroundTask, BootInstant, Connection};
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::clock::VirtualTime;

pub use process::Process;
pub use redis::Redis;
pub use wire::Wire;

use redis::ServedHost;
use wire::Rules;

/// The world of one test.
#[derive(Debug)]
struct Testbed {
    runtime: Handle,
    virtual_time: VirtualTime,
    state: Mutex<TestbedState>,
}

#[derive(Debug)]
struct TestbedState {
    /// What listens at each host name.
    listeners: BTreeMap<String, Listener>,
    processes: usize,
    ids: Rng,
}

/// A server, and the wire through which its clients reach it.
#[derive(Clone, Debug)]
struct Listener {
    server: Arc<ServedHost>,
    rules: Arc<Rules>,
}

/// Delays each message of all present servers and wires by `delay`, in each direction.
pub fn delay_all(delay: Duration) {
    let testbed = Testbed::current();
    for listener in testbed.state.lock().listeners.values() {
        listener.rules.delay(delay);
    }
}

impl Testbed {
    /// Returns the world of the current test; begins it on first use.
    ///
    /// # Panics
    /// On a runtime of several threads, because a world belongs to one thread.
    fn current() -> Arc<Self> {
        let runtime = Handle::current();
        let is_single = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        assert!(is_single, "virtual time needs a runtime of one thread");

        let present = CURRENT.with_borrow(|current| {
            let current = current.as_ref().filter(|(id, _)| *id == runtime.id());
            current.map(|(_, testbed)| Arc::clone(testbed))
        });
        present.unwrap_or_else(|| Self::begin(runtime))
    }

    fn begin(runtime: Handle) -> Arc<Self> {
        tokio::time::pause();
        fastrand::seed(SEED);

        let id = runtime.id();
        let testbed = Arc::new(Self {
            runtime,
            virtual_time: VirtualTime::begin(),
            state: Mutex::new(TestbedState {
                listeners: BTreeMap::new(),
                processes: 0,
                ids: Rng::with_seed(SEED),
            }),
        });
        // The thread stays in the world until its end, or until it runs another test.
        std::mem::forget(simulation::enter(
            Arc::clone(&testbed) as Arc<dyn simulation::World>
        ));
        CURRENT.set(Some((id, Arc::clone(&testbed))));
        testbed
    }

    fn listen(&self, name: &str, listener: Listener) {
        let mut state = self.state.lock();
        let previous = state.listeners.insert(name.to_owned(), listener);
        assert!(previous.is_none(), "two servers have the name {name}");
    }

    fn listener(&self, name: &str) -> Option<Listener> {
        self.state.lock().listeners.get(name).cloned()
    }
}

impl simulation::World for Testbed {
    fn now(&self) -> BootInstant {
        self.virtual_time.read(process::current_clock())
    }

    fn instant_of(&self, time: BootInstant) -> Instant {
        self.virtual_time.instant_of(process::current_clock(), time)
    }

    fn draw_id(&self) -> [u8; 16] {
        self.state.lock().ids.u128(..).to_be_bytes()
    }

    fn spawn(&self, task: BackgroundTask) -> AbortHandle {
        let task = process::in_current(task);
        self.runtime.spawn(task).abort_handle()
    }

    fn connect(&self, host: &str, _port: u16) -> io::Result<Box<dyn Connection>> {
        let listener = self.listener(host).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(listener.connect(&self.runtime)?))
    }
}

/// A test that fails fails again.
const SEED: u64 = 0x1EA5_E401D;

thread_local! {
    /// The testbed of the runtime that runs on this thread.
    static CURRENT: RefCell<Option<(Id, Arc<Testbed>)>> = const { RefCell::new(None) };
}
