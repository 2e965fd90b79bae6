//! The surroundings of one test: a store, its servers, the workers, and a client that inspects.

mod route;
mod servers;

use std::any::{Any, type_name};
use std::cell::Cell;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use lab_servers::Wire;
use leasehold::{LockState, Locks};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::backends::Disk;
use crate::{Event, EventKind, Process, WorkerConfig, now, until};

pub use route::Route;
pub use servers::{Server, Servers};

/// A store with its servers, workers for it, and a client that inspects it.
#[derive(Debug)]
pub struct Testbed {
    worker: PathBuf,
    url: String,
    /// The URL that workers get; it leads through the wires.
    pub(crate) worker_url: String,
    notes: TempDir,
    runtime: Runtime,
    locks: Locks,
    next_thread: Cell<u32>,
    scratch_files: Cell<u32>,
    /// The wires between workers and servers, one for each server.
    pub wires: Vec<Wire>,
    /// The way of the long holder to the servers.
    pub(crate) holder_route: Route,
    // Dropped after the client and the wires, which use them.
    pub(crate) servers: Box<dyn Servers>,
    /// The small disk of the folder or the server. Dropped last.
    pub(crate) disk: Option<Disk>,
}

impl Testbed {
    /// A testbed with the store of this URL, whose servers the caller runs. `worker` is the path of
    /// the worker program, which only a test knows.
    ///
    /// # Errors
    /// If the store cannot be opened.
    pub fn at(worker: &str, url: &str) -> Result<Self> {
        Self::with_servers(worker, url.to_owned(), Vec::new(), None)
    }

    /// A testbed with the store of this URL and its servers.
    ///
    /// # Errors
    /// If the store cannot be opened.
    pub fn with_servers(
        worker: &str,
        url: String,
        wires: Vec<Wire>,
        servers: impl Servers,
    ) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let locks = runtime.block_on(leasehold::open(&url))?;

        Ok(Self {
            worker: worker.into(),
            worker_url: url.clone(),
            url,
            notes: notes()?,
            runtime,
            locks,
            next_thread: Cell::new(0),
            scratch_files: Cell::new(0),
            wires,
            holder_route: Route::default(),
            servers: Box::new(servers),
            disk: None,
        })
    }

    /// The URL of the store.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// A new path outside the store.
    #[must_use]
    pub fn scratch_file(&self) -> PathBuf {
        self.scratch_files.set(self.scratch_files.get() + 1);
        self.notes.path().join(self.scratch_files.get().to_string())
    }

    /// Deletes the files of [`scratch_file`](Self::scratch_file). No worker runs.
    pub(crate) fn remove_scratch_files(&mut self) -> Result<()> {
        self.notes = notes()?;
        Ok(())
    }

    /// Starts a worker; its threads get numbers that no other worker of this testbed has.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(&self, config: WorkerConfig) -> Result<Process> {
        Process::start(&self.worker, self.complete(config))
    }

    /// Fills in the URL and the number of the first thread.
    fn complete(&self, mut config: WorkerConfig) -> WorkerConfig {
        config.first_thread = self.next_thread.get();
        self.next_thread.set(config.first_thread + config.threads);
        if config.store.is_empty() {
            config.store = self.url();
        }
        config
    }

    /// Has a new worker acquire and release each name once.
    ///
    /// # Errors
    /// If a worker fails.
    pub(crate) fn hold_each_once(&self, last: &WorkerConfig) -> Result<()> {
        for name in &last.names {
            let config = WorkerConfig {
                names: vec![name.clone()],
                cycles: 1,
                ..last.clone()
            };
            self.start(config)?.finish()?;
        }
        Ok(())
    }

    /// The store as this process has opened it.
    #[must_use]
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Runs a future on the runtime of the testbed.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// The state of a lock.
    ///
    /// # Errors
    /// If the store cannot be inspected.
    pub fn inspect(&self, name: &str) -> Result<LockState> {
        Ok(self.run(self.locks.inspect(name))?)
    }

    /// Waits until a thread is queued.
    ///
    /// # Errors
    /// If the thread is not seen in the queue before the deadline.
    pub fn wait_until_waiting(&self, name: &str, thread: u32) -> Result<Event> {
        let label = thread.to_string();
        until(&format!("thread {thread} to wait"), || {
            let lock_state = self.inspect(name)?;
            Ok(lock_state
                .waiters()
                .any(|entry| entry.info.label == label)
                .then_some(()))
        })?;

        Ok(Event {
            at: now(),
            thread,
            name: 0,
            kind: EventKind::ObservedWaiting,
        })
    }

    /// Checks that the queues of these names are empty.
    ///
    /// # Errors
    /// If a queue has an entry.
    pub fn check_empty(&self, names: &[String]) -> Result<()> {
        for name in names {
            let lock_state = self.inspect(name)?;
            ensure!(
                lock_state.entries.is_empty(),
                "left in the queue: {lock_state:?}"
            );
        }
        Ok(())
    }

    /// One of the servers.
    #[must_use]
    pub fn server(&self, number: usize) -> &dyn Server {
        self.servers.server(number)
    }

    /// One of the servers, to be killed or restarted.
    pub fn server_mut(&mut self, number: usize) -> &mut dyn Server {
        self.servers.server_mut(number)
    }

    /// The servers that are of type `T`.
    #[must_use]
    pub fn servers_of<T: Server>(&self) -> Vec<&T> {
        (0..self.servers.count())
            .filter_map(|number| (self.server(number) as &dyn Any).downcast_ref())
            .collect()
    }

    /// The servers as one group of type `T`.
    ///
    /// # Errors
    /// If the servers are of another type.
    pub(crate) fn servers<T: Servers>(&self) -> Result<&T> {
        (&*self.servers as &dyn Any)
            .downcast_ref()
            .with_context(|| format!("the servers are not a {}", type_name::<T>()))
    }

    /// The servers as one group of type `T`, to be changed.
    ///
    /// # Errors
    /// If the servers are of another type.
    pub(crate) fn servers_mut<T: Servers>(&mut self) -> Result<&mut T> {
        (&mut *self.servers as &mut dyn Any)
            .downcast_mut()
            .with_context(|| format!("the servers are not a {}", type_name::<T>()))
    }
}

fn notes() -> Result<TempDir> {
    Ok(tempfile::Builder::new()
        .prefix("leasehold-lab-")
        .tempdir()?)
}
