//! The replies of a hostile Redis server, to whole stores in virtual time.
//!
//! The server is the model that executes the scripts, so most replies are right. The first byte of
//! an input selects the store. Each further line changes one reply: the number of replies that are
//! sent unchanged before it, a space, and the bytes that replace it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lab_redis_model::{Host, Wire};
use leasehold::modelled::BootInstant;
use leasehold::simulation::{self, BackgroundTask, Connection};
use parking_lot::Mutex;
use tokio::io::duplex;
use tokio::runtime::Builder;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

/// One URL for each store.
const URLS: &[&str] = &[
    "redis://model",
    "redis://model?dialect=plain",
    "redis://model?dialect=redisson",
    "redlock://a,b,c?quarantine=off",
    "redis+sentinel://model/master",
    "redis+cluster://model",
];

/// An operation of a client ends by its own limits within this time.
const OPERATION_MAX: Duration = Duration::from_secs(60);

pub(super) fn run(input: &[u8]) {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs no resources");
    let url = URLS[usize::from(input.first().copied().unwrap_or(0)) % URLS.len()];

    runtime.block_on(async {
        let changes = Changes::parse(input.get(1..).unwrap_or_default());
        let world = Arc::new(HostileWorld {
            start: Instant::now(),
            host: Host::start(&"0123456789".repeat(4)),
            changes: Arc::new(Mutex::new(changes)),
            ids: Mutex::new(0),
        });
        let _scope = simulation::enter(world);
        // Each operation may fail, and none may panic.
        let _ = timeout(OPERATION_MAX, use_store(url)).await;
    });
}

async fn use_store(url: &str) -> leasehold::Result<()> {
    let locks = leasehold::open(url).await?;
    let name = locks.mutex("job").lease(Duration::from_secs(3));

    let held = name.try_acquire().await;
    let _second = name.try_acquire_for(Duration::from_secs(2)).await;
    sleep(Duration::from_secs(1)).await;
    let _shown = locks.inspect("job").await.map(|state| format!("{state:?}"));
    let _names = timeout(Duration::from_secs(5), locks.list("", 10)).await;
    if let Ok(Some(guard)) = held {
        guard.release().await?;
    }
    name.try_acquire().await?;
    Ok(())
}

/// The replies that are changed.
#[derive(Debug, Default)]
struct Changes(VecDeque<(usize, Vec<u8>)>);

impl Changes {
    fn parse(text: &[u8]) -> Self {
        let lines = text.split(|byte| *byte == b'\n');
        let changes = lines.filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b' ')?;
            let count = std::str::from_utf8(&line[..at]).ok()?.parse().ok()?;
            let replacement = line[at + 1..].to_vec();
            // A line has no line feed, so a carriage return is written for both.
            let bytes = replacement.split(|byte| *byte == b'\r');
            Some((count, bytes.collect::<Vec<_>>().join(&b"\r\n"[..])))
        });
        Self(changes.collect())
    }

    fn apply(&mut self, sent: &mut Vec<u8>) {
        match self.0.front_mut() {
            Some((0, replacement)) => {
                *sent = std::mem::take(replacement);
                self.0.pop_front();
            }
            Some((count, _)) => *count -= 1,
            None => {}
        }
    }
}

struct HostileWire(Arc<Mutex<Changes>>);

impl Wire for HostileWire {
    async fn before(&mut self) -> io::Result<()> {
        sleep(Duration::from_millis(1)).await;
        Ok(())
    }

    async fn pass(&mut self, sent: &mut Vec<u8>) -> io::Result<()> {
        self.0.lock().apply(sent);
        Ok(())
    }
}

/// A world with one client and one server.
struct HostileWorld {
    start: Instant,
    host: Arc<Host>,
    changes: Arc<Mutex<Changes>>,
    ids: Mutex<u128>,
}

impl simulation::World for HostileWorld {
    fn now(&self) -> BootInstant {
        let passed = self.start.elapsed() + DAY;
        BootInstant::from_nanos(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
    }

    fn instant_of(&self, time: BootInstant) -> Instant {
        let passed = Duration::from_nanos(time.as_nanos()).saturating_sub(DAY);
        self.start + passed + Duration::from_micros(1)
    }

    fn draw_id(&self) -> [u8; 16] {
        let mut ids = self.ids.lock();
        *ids += 1;
        ids.to_be_bytes()
    }

    fn spawn(&self, task: BackgroundTask) -> AbortHandle {
        tokio::spawn(task).abort_handle()
    }

    fn connect(&self, _host: &str, _port: u16) -> io::Result<Box<dyn Connection>> {
        let (ours, theirs) = duplex(64 * 1024);
        let host = Arc::clone(&self.host);
        let wire = HostileWire(Arc::clone(&self.changes));
        tokio::spawn(async move { host.serve(theirs, wire).await });
        Ok(Box::new(ours))
    }
}

/// The clock of the machine does not begin at zero.
const DAY: Duration = Duration::from_secs(86_400);
