//! Work of which several pieces run at a time.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;

/// Runs `run` once for each item, for `jobs` items at a time. An item begins when an earlier one
/// has ended. After an error, no further item begins in its thread.
///
/// # Errors
/// The first error of `run`.
pub(crate) fn run_each<T: Sync>(
    items: &[T],
    jobs: usize,
    run: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let left = Mutex::new(items.iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run_rest = || {
        while let Some(item) = next() {
            run(item)?;
        }
        Ok(())
    };

    thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(run_rest)).collect();
        threads.into_iter().try_for_each(|thread| {
            let outcome = thread.join();
            outcome.unwrap_or_else(|panic| resume_unwind(panic))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn each_item_runs_once_and_so_many_run_at_a_time() -> Result<()> {
        let together = Barrier::new(2);
        let runs = Mutex::new(Vec::new());
        run_each(&[0, 1, 2, 3], 2, |item| {
            // It ends only when another item runs at the same time.
            together.wait();
            runs.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(*item);
            Ok(())
        })?;

        let mut runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
        runs.sort_unstable();
        assert_eq!(runs, [0, 1, 2, 3]);
        Ok(())
    }
}
