//! The tests drop an acquire after every number of polls, on a free lock and on a lock that is
//! being handed over. Meanwhile replies are lost, late or refused, or the connection is reset. The
//! queue is empty afterwards, and the next client is granted the lock.
//!
//! Shows G-10.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::WorkerConfig;
use lab::backends::redis;
use lab_servers::{Redis, Wire};
use leasehold::{Guard, Locks};
use tokio::runtime::Builder;
use tokio::time::sleep;

use super::testbed;

const SETTINGS: &str = "crash-grace=1s";
const POLLS: u32 = 12;
/// How long a trace of the dropped acquire may remain at most. The client replaces a silent
/// connection after two seconds, and then sends its requests again.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The fate of the replies to the client that acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replies {
    Arrive,
    /// The first reply is lost, with all that follow on the same connection.
    AreLost,
    AreLate,
    /// The connection is reset in the middle of a reply.
    AreReset,
}

#[test]
fn cancellation_with_prompt_replies_leaves_no_entry() -> Result<()> {
    sweep(Replies::Arrive)
}

#[test]
fn cancellation_with_lost_replies_leaves_no_entry() -> Result<()> {
    sweep(Replies::AreLost)
}

#[test]
fn cancellation_with_late_replies_leaves_no_entry() -> Result<()> {
    sweep(Replies::AreLate)
}

#[test]
fn cancellation_with_reset_connections_leaves_no_entry() -> Result<()> {
    sweep(Replies::AreReset)
}

#[test]
fn cancellation_with_refused_requests_leaves_no_entry() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let leasehold = testbed.locks();
    for polls in 0..POLLS {
        testbed.redis()[0].command(&["CONFIG", "SET", "maxmemory", "1"]);
        let lock = leasehold.mutex("a");
        testbed.run(async {
            poll(
                polls,
                Duration::from_millis(1),
                Box::pin(lock.acquire()),
                async |_| {},
            )
            .await;
            leasehold::drain().await;
        });
        testbed.redis()[0].command(&["CONFIG", "SET", "maxmemory", "0"]);
        testbed.check_empty(&["a".to_owned()])?;
    }

    redis::check_clean(&testbed, &WorkerConfig::default())
}

/// Tries every number of polls at once, each with a client and a wire of its own.
fn sweep(replies: Replies) -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let cases = (0..POLLS).flat_map(|polls| {
        [false, true].map(|contended| Case {
            replies,
            polls,
            contended,
        })
    });
    let cases: Vec<Case> = cases.collect();
    let redis = testbed.redis()[0];
    let url = &testbed.url();
    thread::scope(|scope| {
        let tries: Vec<_> = cases
            .iter()
            .map(|case| scope.spawn(|| case.run(redis, url)))
            .collect();
        tries
            .into_iter()
            .try_for_each(|tried| tried.join().expect("a drop does not panic"))
    })?;

    let names = cases.iter().map(|case| case.name()).collect();
    redis::check_clean(
        &testbed,
        &WorkerConfig {
            names,
            ..WorkerConfig::default()
        },
    )
}

/// One dropped acquire.
#[derive(Clone, Copy)]
struct Case {
    replies: Replies,
    polls: u32,
    contended: bool,
}

impl Case {
    fn name(self) -> String {
        format!(
            "{}-{}",
            self.polls,
            if self.contended { "contended" } else { "free" }
        )
    }

    fn run(self, redis: &Redis, url: &str) -> Result<()> {
        let wire = Wire::to(redis.address());
        Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(async {
                let theirs = leasehold::open(url).await?;
                let leasehold =
                    leasehold::open(&format!("{}?{SETTINGS}", wire.url_of("redis"))).await?;
                self.drop_after(&theirs, &leasehold, &wire).await?;
                nothing_left(&theirs, &self.name()).await
            })
    }

    async fn drop_after(self, theirs: &Locks, leasehold: &Locks, wire: &Wire) -> Result<()> {
        let mut holder = if self.contended {
            Some(theirs.mutex(self.name()).acquire().await?)
        } else {
            None
        };
        begin(wire, self.replies);

        let lock = leasehold.mutex(self.name());
        let pause = Duration::from_millis(if self.replies == Replies::AreLate {
            5
        } else {
            1
        });
        let middle = async |at: u32| {
            if at == self.polls / 2 {
                halfway(wire, self.replies, holder.take()).await;
            }
        };
        poll(self.polls, pause, Box::pin(lock.acquire()), middle).await;
        drop(holder);
        leasehold::drain().await;
        wire.delay(Duration::ZERO);
        wire.drop_replies(0);
        Ok(())
    }
}

fn begin(wire: &Wire, replies: Replies) {
    match replies {
        Replies::Arrive | Replies::AreReset => {}
        Replies::AreLost => wire.drop_replies(1),
        Replies::AreLate => wire.delay(Duration::from_millis(10)),
    }
}

async fn halfway(wire: &Wire, replies: Replies, holder: Option<Guard>) {
    if let Some(holder) = holder {
        holder
            .release()
            .await
            .expect("the client holds the lock, and the server is reachable");
    }
    if replies == Replies::AreReset {
        wire.partition();
    }
}

/// Polls a future this number of times, with pauses in which the caller does something else, and
/// drops it.
async fn poll<T>(
    polls: u32,
    pause: Duration,
    mut future: Pin<Box<impl Future<Output = T>>>,
    mut between: impl AsyncFnMut(u32),
) {
    for at in 0..polls {
        between(at).await;
        if let Poll::Ready(done) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            drop(done);
            return;
        }
        sleep(pause).await;
    }
}

async fn nothing_left(theirs: &Locks, name: &str) -> Result<()> {
    let begun = Instant::now();
    while !theirs.inspect(name).await?.entries.is_empty() {
        ensure!(
            begun.elapsed() < TIMEOUT,
            "a claim remains in the queue of {name}"
        );
        sleep(Duration::from_millis(1)).await;
    }
    Ok(theirs.mutex(name).acquire().await?.release().await?)
}
