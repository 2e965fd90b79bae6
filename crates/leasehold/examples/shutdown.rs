//! A worker that completes its jobs at a shutdown, and takes no further one after a loss.

use leasehold::{Guard, Watch};
use tokio::sync::mpsc;

/// First a shutdown, and then a loss.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = leasehold::open("memory:").await?;
    let guard = locks.mutex("worker").acquire().await?;
    let (jobs, worker) = start(&guard);
    jobs.send("one").await?;
    jobs.send("two").await?;
    drop(jobs); // as after SIGTERM
    assert_eq!(worker.await?, 2);
    guard.release().await?;

    let guard = locks.mutex("worker").acquire().await?;
    let (_jobs, worker) = start(&guard);
    locks.break_hold("worker", guard.token()).await?;
    assert_eq!(worker.await?, 0);

    // A guard that `main` still holds at its end, also at an error, is dropped. The runtime waits
    // up to a second until the release has reached the store. `std::process::exit` drops nothing
    // and waits for nothing: drop the guards and await `leasehold::drain()` before it.
    let _until_the_end = locks.mutex("worker").acquire().await?;
    Ok(())
}

fn start(guard: &Guard) -> (mpsc::Sender<&'static str>, tokio::task::JoinHandle<u32>) {
    let (jobs, queue) = mpsc::channel(8);
    (jobs, tokio::spawn(work(queue, guard.watch())))
}

/// Returns the number of completed jobs.
async fn work(mut queue: mpsc::Receiver<&'static str>, watch: Watch) -> u32 {
    let mut completed = 0;
    loop {
        let job = tokio::select! {
            biased;
            _ = watch.lost() => None,
            job = queue.recv() => job,
        };
        let Some(job) = job else { return completed };

        println!("job {job}");
        completed += 1;
    }
}
