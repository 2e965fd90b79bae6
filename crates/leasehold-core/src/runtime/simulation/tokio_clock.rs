//! The clock of a tokio runtime, which a test may pause, as a world for all that runs in it.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::time::clock_gettime;
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{BackgroundTask, Connection, World};
use crate::runtime::clock::{BootInstant, CLOCK};

/// Lets all that runs in the current runtime read its clock, and spawn its tasks there.
///
/// # Panics
/// If there is no current runtime.
pub fn follow_tokio_clock() {
    let mut clocks = CLOCKS.get_or_init(Mutex::default).lock();
    let runtime = Handle::current().id();
    clocks.entry(runtime).or_insert_with(|| {
        Arc::new(TokioClock {
            boot: BootInstant::from_timespec(clock_gettime(CLOCK)),
            instant: Instant::now(),
        })
    });
}

/// Returns the world of the current runtime, if it has one.
pub(super) fn current() -> Option<Arc<dyn World>> {
    let clocks = CLOCKS.get()?;
    let runtime = Handle::try_current().ok()?.id();

    let clock = clocks.lock().get(&runtime).map(Arc::clone)?;
    Some(clock)
}

/// The clocks that are followed, by their runtimes. No two runtimes ever have the same id.
static CLOCKS: OnceLock<Mutex<HashMap<Id, Arc<TokioClock>>>> = OnceLock::new();

/// One moment of both clocks. The clock of tokio decides how much later it is.
struct TokioClock {
    boot: BootInstant,
    instant: Instant,
}

impl World for TokioClock {
    fn now(&self) -> BootInstant {
        self.boot.saturating_add(self.instant.elapsed())
    }

    fn instant_of(&self, time: BootInstant) -> Instant {
        self.instant + time.duration_since(self.boot)
    }

    fn draw_id(&self) -> [u8; 16] {
        uuid::Uuid::new_v4().into_bytes()
    }

    fn spawn(&self, task: BackgroundTask) -> AbortHandle {
        tokio::spawn(task).abort_handle()
    }

    fn connect(&self, _host: &str, _port: u16) -> io::Result<Box<dyn Connection>> {
        let message = "the time of this runtime is that of a test, and a server has its own; \
                       open the store in another runtime";
        Err(io::Error::new(io::ErrorKind::Unsupported, message))
    }
}
