//! The tasks with requests that are built beforehand, over a blocking socket.
//!
//! The measured time is the time that the server and the system need.

use std::time::Instant;

use anyhow::{Result, ensure};
use lab_servers::Raw;

use super::Peer;
use super::library::nanos;
use crate::workload::Workload;

/// The bytes of two requests: one acquires a lock, and one releases it.
pub(crate) trait Requests: Sized {
    /// Builds the requests of one lock.
    fn of(raw: &mut Raw, name: &str) -> Result<Self>;
    /// Appends the request to acquire to `requests`.
    fn acquire(&mut self, requests: &mut Vec<u8>);
    /// Appends the request to release to `requests`.
    fn release(&mut self, requests: &mut Vec<u8>);
    /// Returns whether a reply reports that the lock is held.
    fn is_granted(reply: &[u8]) -> bool;
    /// Returns whether a reply reports that the lock was held until the release.
    fn is_released(reply: &[u8]) -> bool;
}

/// Runs [`Workload::Pairs`] and [`Workload::Names`].
pub(crate) fn run<R: Requests>(raw: &mut Raw, task: &Workload) -> Result<Option<Vec<u64>>> {
    match task {
        Workload::Pairs { name, count } => pairs::<R>(raw, name, *count).map(Some),
        Workload::Names { names, each } => many_names::<R>(raw, *names, *each).map(Some),
        _ => Ok(None),
    }
}

fn pairs<R: Requests>(raw: &mut Raw, name: &str, count: usize) -> Result<Vec<u64>> {
    let mut lock = R::of(raw, name)?;
    let mut took = Vec::with_capacity(count);
    let mut request = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        request.clear();
        lock.acquire(&mut request);
        ensure!(
            R::is_granted(raw.request_bytes(&request)?),
            "the lock was not granted"
        );
        request.clear();
        lock.release(&mut request);
        ensure!(
            R::is_released(raw.request_bytes(&request)?),
            "the lock was not held"
        );
        took.push(nanos(begun.elapsed()));
    }

    Ok(took)
}

/// Acquires all names with one write.
///
/// When all of them are granted, it releases all of them with another write.
fn many_names<R: Requests>(raw: &mut Raw, names: usize, each: usize) -> Result<Vec<u64>> {
    let mut locks = (0..names)
        .map(|name| R::of(raw, &format!("n{name}")))
        .collect::<Result<Vec<R>>>()?;
    let begun = Instant::now();
    for _ in 0..each {
        wave(raw, &mut locks, R::acquire, R::is_granted)?;
        wave(raw, &mut locks, R::release, R::is_released)?;
    }
    Ok(vec![nanos(begun.elapsed())])
}

fn wave<R>(
    raw: &mut Raw,
    locks: &mut [R],
    request: impl Fn(&mut R, &mut Vec<u8>),
    is_done: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    let mut requests = Vec::new();
    for lock in locks.iter_mut() {
        request(lock, &mut requests);
    }
    raw.send(&requests)?;
    for _ in locks {
        ensure!(is_done(raw.receive_bytes()?), "the request was refused");
    }
    Ok(())
}

/// A peer that sends any pair of requests.
pub(crate) struct Bare<R> {
    raw: Raw,
    requests: std::marker::PhantomData<R>,
}

impl<R: Requests + 'static> Bare<R> {
    pub(crate) fn connect(url: &str) -> Result<Box<dyn Peer>> {
        Ok(Box::new(Self {
            raw: connect(url)?,
            requests: std::marker::PhantomData,
        }))
    }
}

impl<R: Requests> Peer for Bare<R> {
    fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>> {
        run::<R>(&mut self.raw, task)
    }
}

pub(crate) fn connect(url: &str) -> Result<Raw> {
    Ok(Raw::connect(url.trim_start_matches("redis://"))?)
}
